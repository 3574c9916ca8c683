// The identity of a peer: a name, drawn anew for each connect, and the run that welcomed the peer under it.
#pragma once

#include "core/base/ids.hpp"

namespace pccl::core {

struct Identity {
    Uuid uuid;
    Uuid run;  // nil: not welcomed yet
};

}  // namespace pccl::core
