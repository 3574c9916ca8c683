// The session with the master, as the parts of a peer use it that have something to report or to vote on.
#pragma once

#include "core/base/ids.hpp"
#include "core/wire/control.pb.h"

namespace pccl::core {

class MasterLine {
public:
    // Nothing is sent while there is no connection, or it is not open.
    virtual void tell(proto::PeerMessage message) = 0;
    // A vote is open until its answer comes, and is cast again after a resume. Returns its serial.
    virtual Serial cast(proto::Vote& vote) = 0;
    virtual bool master_open() const = 0;

protected:
    ~MasterLine() = default;
};

}  // namespace pccl::core
