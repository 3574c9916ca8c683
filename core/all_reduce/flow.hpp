// The sending state for one neighbour, over all operations: whose turn it is, and what gets through.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/limits.hpp"
#include "core/wire/frame.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace pccl::core {

// The time from the departure of a slice to its acknowledgement: smoothed mean and variation, as in RFC 6298. Slices
// that left more than once are not measured.
struct AnswerTime {
    Duration smoothed = 0;
    Duration variation = 0;
    std::uint32_t bytes = 0;   // of the largest slice that was measured; 0: none was
    std::uint32_t hedges = 0;  // since the last one that was measured

    void measured(Duration time, std::uint32_t slice_bytes) {
        const Duration off = time > smoothed ? time - smoothed : smoothed - time;
        variation = bytes == 0 ? time / 2 : variation - variation / 4 + off / 4;
        smoothed = bytes == 0 ? time : smoothed - smoothed / 8 + time / 8;
        bytes = std::max(bytes, slice_bytes);
        hedges = 0;
    }
    // After this time a slice is late. Doubles with each hedge.
    Duration patience() const {
        constexpr Duration least = 20 * millisecond;  // the scheduler of a busy system may be that late
        constexpr std::uint32_t doublings_max = 8;
        return (smoothed + std::max(least, 4 * variation)) << std::min(hedges, doublings_max);
    }
};

struct Flow {
    std::size_t next_stripe = 0;
    std::uint32_t eager_used = 0;
    OpId last_served = 0;       // round robin between operations
    Instant answered_at = 0;    // when a flow word about slices last came, also a decline
    Instant through_at = 0;     // when one last showed that more bytes of a slice got through
    std::uint32_t rests = 0;    // frames that nobody wants any more, which words have named since then
    Instant rest_at = 0;        // when more bytes of such a frame were last reported
    Duration longest_wait = 0;  // longest time without an acknowledgement of an operation that got one after all
    Instant declined_at = 0;    // when a slice was declined that leaves at the next tick; 0: none waits for it
    std::uint64_t answers = 0;  // slices of all operations that it acknowledged
    // The shortest time from the departure of a slice to its acknowledgement; never: none is known.
    Duration round_trip = never;
    // The shortest time from the hello on one of its stripes to the answer. Unlike that of a slice, it contains no
    // transfer. never: none is known.
    Duration greeting = never;
    AnswerTime answer_time;
    // Of Limits::near_slots_bytes, so many eighths are in use.
    static constexpr std::uint32_t near_parts = 8;
    std::uint32_t near_parts_used = 1;
    Instant hedge_at = never;  // when a stripe may be late; never: all have slices to send, or none has one in flight
    Duration latest_word = 0;  // the longest time that a stripe waited for a flow word about slices sent on it
    std::map<OpId, wire::FlowWord> future_ready;  // `ready` words that came before our start
    // Words about slices that left ahead of a start, which came before it, each with its link.
    std::multimap<OpId, std::pair<LinkId, wire::FlowWord>> future_answers;

    // How much of the neighbour's memory for partial sums own input may take on a short path.
    std::uint32_t near_slots_bytes(const Limits& limits) const {
        return limits.near_slots_bytes / near_parts * near_parts_used;
    }
    // A slice was acknowledged after `time`. `lost_before`: it left more than once, so only the shortest time counts. If
    // slices take long beside the quickest one, they wait for each other, and more in flight only leaves the cache.
    void acknowledged_within(Duration time, std::uint32_t bytes, bool lost_before) {
        round_trip = std::min(round_trip, time);
        if (lost_before) return;
        answer_time.measured(time, bytes);
        if (answer_time.smoothed > 2 * round_trip)
            near_parts_used = std::max(near_parts_used / 2, 1u);
        else
            near_parts_used = std::min(near_parts_used + 1, near_parts);
    }
    // The path is short. It can be short while slices take long, because the path is slow or busy.
    bool is_near(const Limits& limits) const { return std::min(round_trip, greeting) < limits.long_path; }
    // Slices take long on it.
    bool is_far(const Limits& limits) const { return round_trip != never && round_trip >= limits.long_path; }
    void gets_through(Instant now) {
        through_at = now;
        rests = 0;
    }
};
// One entry for each neighbour that this peer dials.
using Flows = std::map<Uuid, Flow>;

}  // namespace pccl::core
