// The oracle of revoked certificates: who is revoked takes part in nothing from then on.
#include "core/base/format.hpp"
#include "harness/oracles.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

sim::Violation check_revocations(const Scenario& scenario, const Ledger& ledger) {
    // A master that was overtaken answers as before until its disk refuses a record, and the operator cannot reach it.
    const bool two = std::any_of(scenario.faults.begin(), scenario.faults.end(),
                                 [](const Fault& fault) { return fault.kind == FaultKind::two_masters; });
    for (const Ledger::Revocation& revoked : ledger.revocations) {
        if (!revoked.open_to.empty()) {
            return {"revocation", formatted("{} was revoked at {} us, and a second later these have a connection with it:{}",
                                            sim::Trace::name(revoked.node), revoked.at / microsecond, revoked.open_to)};
        }
        const auto life = std::find_if(ledger.lives.begin(), ledger.lives.end(),
                                       [&](const Life& one) { return one.peer == revoked.peer; });
        if (two || life == ledger.lives.end()) continue;
        // Its admission may have been on its way.
        if (life->member_until <= std::max(revoked.at, life->connected_at)) continue;
        return {"revocation", formatted("{} was revoked at {} us, and a call that began at {} us was carried out",
                                        sim::Trace::name(revoked.node), revoked.at / microsecond,
                                        life->member_until / microsecond)};
    }
    return {};
}

}  // namespace pccl::harness
