// A span of time in which the master did not run, or its disk did not answer. No timeout counts it, so no peer is
// removed because of it.
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>

namespace pccl::core {

struct Sleep {
    Instant now = 0;    // when it ended
    Duration time = 0;  // how long it lasted
    bool anew = false;  // true: clocks restart at `now`; false: they only skip the span
    // `clock`: the instant since which a wait is measured.
    void leave_out(Instant& clock) const { clock = anew ? now : std::min(now, clock + time); }
};

}  // namespace pccl::core
