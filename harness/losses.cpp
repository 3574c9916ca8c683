// The oracle of lost members: nobody is removed, or gives up, without a fault or a mistake of its own program.
#include "harness/oracles.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

namespace {

// A member whose submission does not fit those of others that took part in the same synchronization is removed for it.
bool misfit(const Ledger& ledger, const SyncFact& own, Duration seat_kept) {
    return std::any_of(ledger.syncs.begin(), ledger.syncs.end(), [&](const SyncFact& other) {
        if (other.life == own.life || other.group != own.group || other.begin >= own.end) return false;
        // The vote of a member that gave up counts until the master misses it.
        const bool gave_up = other.end != open_end && other.completion.result != Result::success;
        if (other.end != open_end && other.end + (gave_up ? seat_kept : 0) <= own.begin) return false;
        const bool both_send = own.strategy == SyncStrategy::send_only && other.strategy == SyncStrategy::send_only;
        return other.revision != own.revision || own.odd_schema != other.odd_schema ||
               (own.strategy == SyncStrategy::enforce_popular) != (other.strategy == SyncStrategy::enforce_popular) ||
               (both_send && own.before != other.before);
    });
}

}  // namespace

sim::Violation check_losses(const Scenario& scenario, const Ledger& ledger, Excuses& excuses) {
    // The synchronizations in which a membership ended: of two threads that call one each, one is refused.
    std::vector<std::vector<const SyncFact*>> last_syncs(ledger.lives.size());
    for (const SyncFact& fact : ledger.syncs) {
        const Life& life = ledger.lives[fact.life];
        if (life.lost && fact.begin < life.lost_at && fact.answered >= life.lost_at)
            last_syncs[fact.life].push_back(&fact);
    }
    for (std::uint32_t life = 0; life < ledger.lives.size(); ++life) {
        const Life& l = ledger.lives[life];
        if (!l.lost) continue;
        const std::string who = ledger.name(life) + " on " + sim::Trace::name(l.node);
        const auto says = [&](const char* text) { return l.reason.find(text) != std::string::npos; };
        // A run that was ended on purpose: each member was told, unless something happened to its link then.
        if (says("the master was stopped on purpose")) {
            if (excuses.run_ended(l.node, l.asked_at, l.lost_at, true)) continue;
            return {"membership", who + " was told that the master was stopped, and it was not: " + l.reason};
        }
        if ((says("this peer belongs to another run") || says("no longer a member of the run")) &&
            excuses.run_ended(l.node, l.asked_at, l.lost_at, false))
            continue;
        // Where nobody copies a token and no journal loses what was durable, nobody is refused for that. A lost journal is no
        // reason to take a member for a copy of itself, unless fewer tokens are kept than it may have forgotten.
        const bool explained =
            says("another process resumed")
                ? excuses.touched(l.node, l.member_until, l.lost_at, Excuse::copied_token) ||
                      (scenario.limits.former_tokens_max < core::Limits{}.former_tokens_max &&
                       excuses.touched(l.node, l.member_until, l.lost_at, Excuse::lost_journal))
                : !(says("the master lost its journal") || says("this peer belongs to another run")) ||
                      excuses.touched(l.node, l.member_until, l.lost_at);
        if (!explained) return {"membership", who + " was refused: " + l.reason};
        if (says("for its vote")) {
            // Whatever happens to the master: only a program that made no call for so long is removed for that, or one whose
            // vote could not travel.
            const Duration unseen = 4 * excuses.slow() + 100 * millisecond;
            const bool late = l.idle_longest + unseen >= scenario.timeouts.vote && excuses.use(Excuse::late_vote);
            if (!late && !excuses.hindered(l.node, l.idle_longest, l.member_until, l.lost_at)) {
                return {"membership", who + " was removed for a vote, though it was in no call for " +
                                          std::to_string(l.idle_longest / millisecond) + " ms at most: " + l.reason +
                                          "\n    " + excuses.explain(l.node, l.member_until, l.lost_at)};
            }
            continue;
        }
        // It learned in its last synchronization that it is no member any more.
        const auto ended_it = [&](const SyncFact* sync) {
            // Its thread may not have looked at the answer before the program came to its end.
            const bool failed = sync->answered == open_end || sync->completion.result == Result::invalid_usage;
            return failed && misfit(ledger, *sync, excuses.seat_kept());
        };
        if (std::any_of(last_syncs[life].begin(), last_syncs[life].end(), ended_it) && excuses.use(Excuse::revision))
            continue;
        const bool stranger = std::any_of(
            ledger.stranger_hellos.begin(), ledger.stranger_hellos.end(), [&](const Ledger::StrangerHello& hello) {
                return !hello.name.empty() && hello.at < l.lost_at && says(("peer " + hello.name).c_str());
            });
        if (stranger && says("cannot reach") && excuses.use(Excuse::stranger)) continue;
        if (says("did not resume after the master's restart") &&
            excuses.sought(l.member_until, l.lost_at, scenario.timeouts.grace()))
            continue;
        if (says("the master is gone") && excuses.sought(l.member_until, l.lost_at, scenario.timeouts.master)) continue;
        // What it was told for a reason may be lost behind a narrow window when the connection is closed.
        const bool unconnected = says("cannot reach") || says("the master is gone: connection reset");
        if (!excuses.loss(l.node, l.member_until, l.lost_at, unconnected)) {
            return {"membership", who + " was lost, though no fault touched it: " + l.reason + "\n    " +
                                      excuses.explain(l.node, l.member_until, l.lost_at)};
        }
    }
    return {};
}

}  // namespace pccl::harness
