// Who a peer is: a new name with each connect, and the run that welcomed it under that name.
#pragma once

#include "core/base/ids.hpp"

namespace pccl::core {

struct Identity {
    Uuid uuid;
    Uuid run;  // nil: not welcomed yet
};

}  // namespace pccl::core
