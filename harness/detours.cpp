// The oracle `detour`: collectives go around an edge on which bytes are lost.
#include "core/base/format.hpp"
#include "harness/oracles.hpp"
#include "harness/settle.hpp"

#include <algorithm>
#include <vector>

namespace pccl::harness {

using namespace core;

// Each bad edge fails some collectives before it is avoided: one on the ring, one in each direction, one more on each
// other way that a collective may take. So a program does not see many failures in a row.
sim::Violation check_detours(const Scenario& scenario, const Ledger& ledger) {
    constexpr std::uint32_t in_a_row_max = 24;
    if (!only_impairs_edges(scenario)) return {};
    struct Streak {
        std::uint32_t failures = 0;
        Instant until = 0;  // calls that began before are part of the last failure
    };
    std::vector<const LaunchFact*> facts;
    for (const LaunchFact& fact : ledger.launches) {
        if (fact.end != open_end) facts.push_back(&fact);
    }
    std::stable_sort(facts.begin(), facts.end(), [](const auto* a, const auto* b) { return a->end < b->end; });
    std::vector<Streak> streaks(ledger.lives.size());
    for (const LaunchFact* fact : facts) {
        Streak& streak = streaks[fact->life];
        if (fact->completion.result == Result::success) {
            streak.failures = 0;
            continue;
        }
        if (fact->completion.result != Result::rank_connection_lost || fact->begin < streak.until) continue;
        if (fact->completion.cause.has(CauseKind::no_scratch_memory)) continue;  // no detour helps
        streak.until = fact->end;
        if (++streak.failures > in_a_row_max)
            return {"detour",
                    formatted("{} collectives of {} failed one after the other, because of edges on which bytes "
                              "are lost: {}",
                              streak.failures, ledger.name(fact->life), to_text(fact->completion.cause))};
    }
    return {};
}

}  // namespace pccl::harness
