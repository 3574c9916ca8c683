// Liveness beside patience: calls wait, nothing useful has come for longer than all time-outs together take, and the machines
// are in a situation in which they were before since then. They stand still, or go round.
#pragma once

#include "harness/scenario.hpp"

#include <cstdint>
#include <unordered_map>

namespace pccl::harness {

class Stillness {
public:
    explicit Stillness(const Scenario& scenario);
    Duration look_every() const { return every_; }
    // `progress` is another number than before when a call came to success, a slice was reduced for the first time by its
    // operation, or a chunk landed; `situation` stands for the abstract states of all machines. True: there is no progress
    // any more; situation_was() tells when it was the same.
    bool look(Instant now, bool calls_wait, std::uint64_t progress, std::uint64_t situation);
    Instant situation_was() const { return situation_was_; }
    Instant since() const { return since_; }
    // Of the bound, the most that was needed, in per cent.
    std::uint32_t most_needed() const { return most_needed_; }
    void lie() { deaf_ = true; }

private:
    Duration bound_, every_;
    std::uint64_t progress_ = 0;
    Instant since_ = -1, situation_was_ = 0;
    std::unordered_map<std::uint64_t, Instant> seen_;  // situations since then, with the last time of each
    std::uint32_t most_needed_ = 0;
    bool deaf_ = false;
};

}  // namespace pccl::harness
