// The connection to the master, as the parts of a peer use it that have something to report.
#pragma once

#include "core/wire/control.pb.h"

namespace pccl::core {

class MasterLine {
public:
    // Nothing is sent while there is no connection, or it is not open.
    virtual void tell(proto::PeerMessage message) = 0;

protected:
    ~MasterLine() = default;
};

}  // namespace pccl::core
