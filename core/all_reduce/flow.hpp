// What goes to one neighbour, of all operations together: whose turn it is, and what gets through.
#pragma once

#include "core/base/ids.hpp"
#include "core/wire/frame.hpp"

#include <cstdint>
#include <map>

namespace pccl::core {

struct Flow {
    std::size_t next_stripe = 0;
    std::uint32_t eager_used = 0;
    OpId last_served = 0;       // round robin between operations
    Instant answered_at = 0;    // when something new that was sent to it last got through
    std::uint64_t answers = 0;  // slices of all operations that got through
    Duration latest_word = 0;   // the longest time that what was sent on one stripe had to wait for a word about it
    std::map<OpId, wire::FlowWord> future_ready;  // said by the neighbour before our start came
};
// To each neighbour that this peer dials.
using Flows = std::map<Uuid, Flow>;

}  // namespace pccl::core
