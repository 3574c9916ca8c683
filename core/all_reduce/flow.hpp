// The sending state for one neighbour, over all operations: whose turn it is, and what gets through.
#pragma once

#include "core/base/ids.hpp"
#include "core/wire/frame.hpp"

#include <cstdint>
#include <map>
#include <utility>

namespace pccl::core {

struct Flow {
    std::size_t next_stripe = 0;
    std::uint32_t eager_used = 0;
    OpId last_served = 0;       // round robin between operations
    Instant answered_at = 0;    // when a flow word last showed that sent bytes got through
    std::uint64_t answers = 0;  // slices of all operations that it acknowledged
    // The shortest time from the departure of a slice to its acknowledgement; never: none is known.
    Duration round_trip = never;
    Duration latest_word = 0;  // the longest time that a stripe waited for a flow word about slices sent on it
    std::map<OpId, wire::FlowWord> future_ready;  // `ready` words that came before our start
    // Words about slices that left ahead of a start, which came before it, each with its link.
    std::multimap<OpId, std::pair<LinkId, wire::FlowWord>> future_answers;
};
// One entry for each neighbour that this peer dials.
using Flows = std::map<Uuid, Flow>;

}  // namespace pccl::core
