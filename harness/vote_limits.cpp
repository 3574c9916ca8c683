// The oracle `waiting` for the limit on votes: a member that makes no call for longer does not keep another one waiting.
//
// It judges runs of two peers that only idle programs, late messages and broken control links disturb. So a member that
// waits there can only wait for the other one.
#include "core/base/format.hpp"
#include "harness/oracles.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

static bool disturbs_only_members(const Scenario& s) {
    return std::all_of(s.faults.begin(), s.faults.end(), [](const Fault& f) {
        return !f.forever && (f.kind == FaultKind::hang || (f.kind == FaultKind::clog && f.a != 0) ||
                              (f.kind == FaultKind::reset && (f.b & aim_control) != 0));
    });
}

sim::Violation check_vote_limit(const Scenario& scenario, const Ledger& ledger, const Excuses& excuses) {
    const Timeouts& t = scenario.timeouts;
    if (t.vote == 0 || scenario.peers.size() != 2 || !ledger.liars.empty() || !disturbs_only_members(scenario)) return {};
    // The limit begins when the idle member has acknowledged its last answer. It ends when something that was sent after the
    // limit is acknowledged. Both take a heartbeat, and a clogged path delays them. The member that waits may have to resume
    // before it hears of it.
    const Duration most = t.vote + 3 * t.peer + t.grace() + 8 * excuses.slow() + 8 * t.tick();
    for (const VoteFact& call : ledger.votes) {
        if (call.kind == CallKind::connect) continue;
        for (const Life& other : ledger.lives) {
            if (other.process == call.process || other.connected_at == 0 || other.connected_at > call.begin) continue;
            const bool waits_for_it = std::any_of(other.idle.begin(), other.idle.end(), [&](const auto& idle) {
                const Instant late = std::max(call.begin, idle.first) + most;
                return late < std::min({call.answered, call.end, idle.second, other.gone_at});
            });
            if (waits_for_it)
                return {"waiting",
                        formatted("{} waited in a call from {} ms for a program that made no call for longer "
                                  "than the limit on votes",
                                  ledger.name(call.life), call.begin / millisecond)};
        }
    }
    return {};
}

}  // namespace pccl::harness
