#include "harness/never.hpp"

#include "core/base/format.hpp"

#include <algorithm>

namespace pccl::harness {

using core::Probe;

sim::Violation check_never(const Scenario& scenario, const Verdict& verdict) {
    const auto times_hit = [&](Probe probe) { return verdict.probes[static_cast<std::size_t>(probe)]; };
    const auto has = [&](auto fits) { return std::any_of(scenario.faults.begin(), scenario.faults.end(), fits); };
    if (has_liars(scenario)) return {};
    // A master whose journal is older may elect again what it had decided.
    const bool forgets = has([](const Fault& fault) { return fault.kind == FaultKind::older_journal; });
    // Nor does the master wait for ever.
    if (!forgets && times_hit(Probe::sync_recall_unanswered) == 0 && times_hit(Probe::sync_vote_lost) != 0)
        return {"election", "the members elected again, although one that voted then had received all of the state"};
    // One compute, or a machine that stands still, may take longer than a member may be silent about an operation.
    const bool lasts = has([](const Fault& fault) {
        return fault.forever || fault.kind == FaultKind::slow_compute || fault.kind == FaultKind::pause;
    });
    if (!lasts && times_hit(Probe::direct_given_up) != 0)
        return {"progress", "the master gave up a collective over direct edges, although no fault lasts"};
    return {};
}

}  // namespace pccl::harness
