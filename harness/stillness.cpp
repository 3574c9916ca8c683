#include "harness/stillness.hpp"

#include "harness/settle.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

// Twice the longest sequence that may pass without progress: an operation that receives nothing until it (10 peer
// time-outs) and its edge are given up; a lost control link of the master and one of a member; a vote that is given up,
// and the next one; a vote that a liar keeps waiting. And what a synchronization may take for parts of chunks.
static Duration bound_of(const Scenario& s) {
    const Timeouts& t = s.timeouts;
    Duration once = 12 * t.peer + t.grace() + 2 * t.master + 5 * t.vote / 2 + busy_time(s) + s.world.staging_max;
    if (s.workload.optimize_per_mille != 0) once += t.survey;
    return 2 * (once + claimed_work_time(s) + stalled_time(s)) + parts_of_chunks_time(s);
}

Stillness::Stillness(const Scenario& scenario) : bound_(bound_of(scenario)), every_(bound_ / 128) {}

bool Stillness::look(Instant now, bool calls_wait, std::uint64_t progress, std::uint64_t situation) {
    if (since_ < 0 || (!deaf_ && (!calls_wait || progress != progress_))) {
        progress_ = progress;
        since_ = now;
        seen_.clear();
    }
    const auto [seen, first] = seen_.try_emplace(situation, now);
    situation_was_ = seen->second;
    seen->second = now;
    most_needed_ = std::max(most_needed_, static_cast<std::uint32_t>((now - since_) * 100 / bound_));
    return !first && now - since_ > bound_;
}

}  // namespace pccl::harness
