// Detects missing progress before the patience of a scenario has run out.
//
// There is a violation if calls wait, if nothing useful happened for longer than all time-outs together, and if the
// machines are in a situation that they were already in during this time. Then they stand still or go round in circles.
#pragma once

#include "harness/scenario.hpp"

#include <cstdint>
#include <unordered_map>

namespace pccl::harness {

class Stillness {
public:
    explicit Stillness(const Scenario& scenario);
    Duration look_every() const { return every_; }
    // `progress` is a number that changes when a call succeeds, when an operation reduces a slice for the first time,
    // or when a chunk lands. `situation` is a hash of the abstract states of all machines. True: there is no progress
    // any more; situation_was() is the time at which the situation was the same.
    bool look(Instant now, bool calls_wait, std::uint64_t progress, std::uint64_t situation);
    Instant situation_was() const { return situation_was_; }
    Instant since() const { return since_; }
    // The longest time without progress, in per cent of the bound.
    std::uint32_t most_needed() const { return most_needed_; }
    void lie() { deaf_ = true; }

private:
    Duration bound_, every_;
    std::uint64_t progress_ = 0;
    Instant since_ = -1, situation_was_ = 0;
    std::unordered_map<std::uint64_t, Instant> seen_;  // situations since `since_`, with the last time of each
    std::uint32_t most_needed_ = 0;
    bool deaf_ = false;
};

}  // namespace pccl::harness
