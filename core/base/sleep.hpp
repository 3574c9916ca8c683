// A time in which a machine did not run. Nobody is blamed for it.
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>

namespace pccl::core {

struct Sleep {
    Instant now = 0;    // when it ended
    Duration time = 0;  // how long it was
    bool anew = false;  // clocks start anew; otherwise they only leave the time out
    void leave_out(Instant& clock) const { clock = anew ? now : std::min(now, clock + time); }
};

}  // namespace pccl::core
