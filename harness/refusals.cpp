#include "core/base/format.hpp"
#include "harness/facts.hpp"
#include "harness/liars.hpp"
#include "harness/oracles.hpp"
#include "net-sim/describe.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

namespace {

// Whether the master may have counted as many peers as the limit allows, beside the one that asks.
bool may_be_full(const Scenario& scenario, const Ledger& ledger, const Excuses& excuses, const VoteFact& own) {
    std::size_t others = 0;
    for (const Life& life : ledger.lives) {
        others += life.asked_at < own.end && excuses.counted_until(life.gone_at) >= own.begin ? 1 : 0;
    }
    others += ledger.stranger_hellos.size();
    return others > scenario.limits.peers_max;
}

// Names are not proved. After a restart of the master, a liar may register under the name of a newcomer before that one
// does.
bool name_taken(const Scenario& scenario, const Ledger& ledger, const VoteFact& own) {
    return std::any_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& other) {
        return other.liar && other.asked_at <= own.end && other.gone_at >= own.begin &&
               std::any_of(scenario.faults.begin(), scenario.faults.end(), [&](const Fault& f) {
                   const std::uint64_t lies = f.value >> 8 & lie_about_all;
                   return f.kind == FaultKind::liar && f.a == other.node && (lies == 0 || (lies & lie_hello) != 0);
               });
    });
}

// A stranger that knows its name may do so when the link of a newcomer breaks: until its admission it has no seat. The
// ledger does not know the name of one that was never admitted, but it is not that of another peer.
bool name_taken_by_stranger(const Ledger& ledger, const Excuses& excuses, const VoteFact& own) {
    const Uuid& peer = ledger.lives[own.life].peer;
    return std::any_of(ledger.stranger_hellos.begin(), ledger.stranger_hellos.end(), [&](const auto& hello) {
        if (hello.name.empty() || hello.at > own.end || excuses.counted_until(hello.last_said) < own.begin)
            return false;
        if (!peer.is_nil()) return hello.name == short_name(peer);
        return std::none_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& other) {
            return !other.peer.is_nil() && hello.name == short_name(other.peer);
        });
    });
}

// Whether nothing explains that the newcomer was turned away for this reason. Reasons that depend on its path to the
// master are not judged here.
bool refused_for_nothing(const Scenario& scenario, const Ledger& ledger, Excuses& excuses, const VoteFact& own) {
    const Cause& why = own.completion.cause;
    const std::uint32_t node = ledger.lives[own.life].node;
    const auto touched = [&](Excuse kind) { return excuses.touched(node, own.begin, own.end, kind); };
    const auto ended = [&](bool told) { return excuses.run_ended(node, own.begin, own.end, told); };
    if (why.has(CauseKind::superseded))
        return !touched(Excuse::copied_token) && !touched(Excuse::lost_journal) &&
               !(name_taken(scenario, ledger, own) && excuses.use(Excuse::liar)) &&
               !(name_taken_by_stranger(ledger, excuses, own) && excuses.use(Excuse::stranger));
    if (why.has(CauseKind::journal_lost) || why.has(CauseKind::other_run))
        return !excuses.touched(node, own.begin, own.end) && !ended(false);
    if (why.has(CauseKind::master_stopped)) return !ended(true);
    if (why.has(CauseKind::run_full)) return !may_be_full(scenario, ledger, excuses, own);
    if (why.has(CauseKind::revoked)) {
        // Or that of another place of its gang.
        const std::string& gang = ledger.lives[own.life].gang.name;
        return std::none_of(ledger.revocations.begin(), ledger.revocations.end(), [&](const auto& one) {
            const bool mate = !gang.empty() && scenario.peers.at(one.node - 1).gang.name == gang;
            return (one.node == node || mate) && one.at <= own.end;
        });
    }
    return why.has(CauseKind::identity_differs) || why.has(CauseKind::group_not_allowed) ||
           why.has(CauseKind::versions_differ);
}

}  // namespace

sim::Violation check_refusals(const Scenario& scenario, const Ledger& ledger, Excuses& excuses) {
    for (const VoteFact& own : ledger.votes) {
        if (own.kind != CallKind::connect || own.end == open_end || own.completion.result == Result::success ||
            ledger.lives[own.life].liar)
            continue;
        if (refused_for_nothing(scenario, ledger, excuses, own))
            return {"admission",
                    formatted("{} was turned away [{} us .. {} us] without a reason: {}", ledger.name(own.life),
                              own.begin / microsecond, own.end / microsecond, to_text(own.completion.cause))};
    }
    return {};
}

}  // namespace pccl::harness
