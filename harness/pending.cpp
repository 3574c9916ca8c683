#include "core/base/format.hpp"
#include "harness/facts.hpp"
#include "harness/oracles.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

// The next success of an update of this life; null: there is none.
static const VoteFact* next_update(const Ledger& ledger, std::size_t told) {
    const VoteFact& own = ledger.votes[told];
    for (std::size_t i = told + 1; i < ledger.votes.size(); ++i) {
        const VoteFact& fact = ledger.votes[i];
        if (fact.life == own.life && fact.kind == CallKind::update_topology)
            return succeeded(fact) && fact.begin >= own.end ? &fact : nullptr;
    }
    return nullptr;
}

sim::Violation check_pending(const Scenario& scenario, const Ledger& ledger, const Excuses& excuses) {
    const bool lasts =
        std::any_of(scenario.faults.begin(), scenario.faults.end(), [](const Fault& f) { return f.forever; });
    if (lasts || has_liars(scenario) || !ledger.stranger_hellos.empty()) return {};
    for (std::size_t i = 0; i < ledger.votes.size(); ++i) {
        const VoteFact& told = ledger.votes[i];
        if (told.kind != CallKind::are_peers_pending || !succeeded(told) || !told.completion.pending) continue;
        const VoteFact* next = next_update(ledger, i);
        if (next == nullptr || next->completion.epoch != told.completion.epoch) continue;
        // Long after the faults, or before the first one.
        if (told.begin < scenario.chaos_end + 5 * second && next->end > ledger.disturbed_at) continue;
        const auto between = [&](Instant at) {
            return at >= told.begin - 4 * excuses.notice() && at <= next->end;
        };
        const bool changed = std::any_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& life) {
            return between(life.connected_at) || between(std::min(life.gone_at, life.leaves_at));
        });
        if (changed) continue;
        return {"admission", formatted("{} was told [{} us .. {} us] that peers are pending, and the next update, until "
                                       "{} us, admitted nobody",
                                       ledger.name(told.life), told.begin / microsecond, told.end / microsecond,
                                       next->end / microsecond)};
    }
    return {};
}

}  // namespace pccl::harness
