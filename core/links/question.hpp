// A heartbeat of the master that a member has to acknowledge. Messages arrive in order, so everything that the member
// said before it received the heartbeat arrives before the acknowledgement.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>

namespace pccl::core {

struct Question {
    LinkId link = 0;         // 0: not asked yet
    std::uint64_t said = 0;  // number of the heartbeat on that link
    Instant at = 0;
};

}  // namespace pccl::core
