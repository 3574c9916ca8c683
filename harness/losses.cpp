// The oracle of lost members: no member is removed, or gives up, without a fault or a mistake of its own program.
#include "core/base/format.hpp"
#include "harness/facts.hpp"
#include "harness/oracles.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

namespace {

// Whether the submission differs from that of another member in the same synchronization. The master removes a member
// for that.
bool misfit(const Ledger& ledger, const SyncFact& own, Duration seat_kept) {
    return std::any_of(ledger.syncs.begin(), ledger.syncs.end(), [&](const SyncFact& other) {
        if (other.life == own.life || other.group != own.group || other.begin >= own.end) return false;
        // The vote of a member that gave up counts until the master removes it.
        const bool gave_up = other.end != open_end && other.completion.result != Result::success;
        if (other.end != open_end && other.end + (gave_up ? seat_kept : 0) <= own.begin) return false;
        const bool both_send = own.strategy == SyncStrategy::send_only && other.strategy == SyncStrategy::send_only;
        return other.revision != own.revision || own.schema != other.schema ||
               (own.strategy == SyncStrategy::enforce_popular) != (other.strategy == SyncStrategy::enforce_popular) ||
               (both_send && own.before != other.before);
    });
}

bool revoked_by(const Ledger& ledger, const Uuid& peer, Instant at) {
    return std::any_of(ledger.revocations.begin(), ledger.revocations.end(), [&](const Ledger::Revocation& revocation) {
        return revocation.peer == peer && revocation.at <= at;
    });
}

// Whether another member of its gang left, died, or was lost for a reason of its own, before this one was lost. A mate
// that the master counted while it asked to be a member may never have learned of its admission. One that was frozen may
// have ended without learning that it had been removed. So may one whose program made no call for too long, whose
// synchronization did not fit, or whose certificate was revoked.
bool gang_went(const Scenario& scenario, const Ledger& ledger, Excuses& excuses, std::uint32_t life) {
    const Life& own = ledger.lives[life];
    if (own.gang.none()) return false;
    const Duration vote = scenario.timeouts.vote;
    const auto misfits = [&](std::uint32_t mate) {
        return std::any_of(ledger.syncs.begin(), ledger.syncs.end(), [&](const SyncFact& fact) {
            return fact.life == mate && fact.begin <= own.lost_at && misfit(ledger, fact, excuses.seat_kept());
        });
    };
    return std::any_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& other) {
        if (&other == &own || other.gang.name != own.gang.name || other.gang.place == own.gang.place) return false;
        if (other.asked_at > own.connected_at || excuses.counted_until(other.gone_at) < own.asked_at) return false;
        const bool by_gang = std::any_of(other.causes.begin(), other.causes.end(),
                                         [](const Cause& cause) { return cause.has(CauseKind::gang_lost); });
        const Instant gone = std::min(other.gone_at, other.leaves_at);
        return (gone <= own.lost_at && !by_gang) || other.connected_at == never || other.connected_at > own.lost_at ||
               (other.lost && !by_gang) || revoked_by(ledger, other.peer, own.lost_at) ||
               misfits(static_cast<std::uint32_t>(&other - ledger.lives.data())) ||
               (vote != 0 && other.idle_longest + vote / 500 >= vote) ||
               excuses.loss(other.node, own.connected_at, own.lost_at, false);
    });
}

// Of two members that do not reach each other the younger one goes: the other one has more to lose. The name of the one
// that stayed; empty: the member did not have to stay, or the group was not of two members all the time.
std::string younger_that_stayed(const Scenario& scenario, const Ledger& ledger, const Excuses& excuses,
                                const Life& own) {
    if (std::any_of(scenario.faults.begin(), scenario.faults.end(),
                    [](const Fault& f) { return concerns_the_journal(f.kind) || f.kind == FaultKind::liar; }) ||
        !ledger.stranger_hellos.empty())
        return {};
    const Life* other = nullptr;
    for (const Life& life : ledger.lives) {
        const Instant gone = std::min(life.gone_at, life.leaves_at);
        if (&life == &own || life.group != own.group || life.asked_at >= own.lost_at ||
            excuses.counted_until(gone) <= own.member_until)
            continue;
        if (other != nullptr) return {};
        other = &life;
    }
    const bool stays = other != nullptr && std::min(other->gone_at, other->leaves_at) > own.lost_at;
    return stays && other->asked_at > own.connected_at
               ? ledger.name(static_cast<std::uint32_t>(other - ledger.lives.data()))
               : std::string();
}

}  // namespace

sim::Violation check_losses(const Scenario& scenario, const Ledger& ledger, Excuses& excuses) {
    for (const auto& [life, complaint] : ledger.answered_alone) {
        if (!ledger.lives[life].liar) return {"membership", complaint};
    }
    // The synchronizations that were open when a membership ended. Two threads may call one each; then one of them is
    // refused.
    std::vector<std::vector<const SyncFact*>> last_syncs(ledger.lives.size());
    for (const SyncFact& fact : ledger.syncs) {
        const Life& life = ledger.lives[fact.life];
        if (life.lost && fact.begin < life.lost_at && fact.answered >= life.lost_at)
            last_syncs[fact.life].push_back(&fact);
    }
    for (std::uint32_t life = 0; life < ledger.lives.size(); ++life) {
        const Life& l = ledger.lives[life];
        if (!l.lost || l.liar) continue;
        const std::string who = formatted("{} on {}", ledger.name(life), sim::Trace::name(l.node));
        const auto says = [&](CauseKind kind) {
            return std::any_of(l.causes.begin(), l.causes.end(), [&](const Cause& cause) { return cause.has(kind); });
        };
        // And not of another member whose end it was told.
        const auto says_of_itself = [&](CauseKind kind) {
            return std::any_of(l.causes.begin(), l.causes.end(), [&](const Cause& cause) {
                return cause.has(kind) && !cause.has(CauseKind::member_gone);
            });
        };
        if (revoked_by(ledger, l.peer, l.lost_at) && excuses.use(Excuse::revoked)) continue;
        std::string why;
        for (const Cause& cause : l.causes) why += (why.empty() ? "" : " / ") + to_text(cause);
        // The causes behind this one are those of the other member.
        if (says_of_itself(CauseKind::gang_lost)) {
            if (gang_went(scenario, ledger, excuses, life) && excuses.use(Excuse::gang)) continue;
            // Or the place had been taken by a stranger that repeated what a member of before had said.
            if (replaying_strangers(ledger, excuses, l.asked_at, l.lost_at) != 0 && excuses.use(Excuse::copied_token))
                continue;
            return {"gang", formatted("{} was removed with its gang, and no other member was gone: {}", who, why)};
        }
        if (says_of_itself(CauseKind::revoked))
            return {"membership", formatted("{} was told that its certificate was revoked, and it was not: {}", who, why)};
        // The run was ended on purpose. The master told each member, unless something happened to its link at that
        // time.
        if (says(CauseKind::master_stopped)) {
            if (excuses.run_ended(l.node, l.asked_at, l.lost_at, true)) continue;
            return {"membership", formatted("{} was told that the master was stopped, and it was not: {}", who, why)};
        }
        if ((says(CauseKind::other_run) || says(CauseKind::forgotten)) &&
            excuses.run_ended(l.node, l.asked_at, l.lost_at, false))
            continue;
        // Without a copied token, or a journal that lost durable records, no member is refused for these reasons. A
        // lost journal does not make a member look like a copy of itself, unless fewer former tokens are kept than the
        // journal may have lost.
        const bool explained = says(CauseKind::superseded)
                                   ? excuses.touched(l.node, l.member_until, l.lost_at, Excuse::copied_token) ||
                                         (scenario.limits.former_tokens_max < core::Limits{}.former_tokens_max &&
                                          excuses.touched(l.node, l.member_until, l.lost_at, Excuse::lost_journal))
                                   : !(says(CauseKind::journal_lost) || says(CauseKind::other_run)) ||
                                         excuses.touched(l.node, l.member_until, l.lost_at);
        if (!explained) return {"membership", formatted("{} was refused: {}", who, why)};
        if (says(CauseKind::vote_awaited)) {
            // Whatever happens to the master or to a path: it removes a member for its vote only if the program made no
            // call for so long. Clocks differ by a few thousandths.
            const Duration unseen = scenario.timeouts.vote / 500;
            const bool idle = l.idle_longest + unseen >= scenario.timeouts.vote && excuses.use(Excuse::late_vote);
            if (!idle && !excuses.vote_on_its_way(l.node, l.member_until, l.lost_at)) {
                return {"membership",
                        formatted("{} was removed for a vote, though it was in no call for {} ms at most: {}\n    {}",
                                  who, l.idle_longest / millisecond, why,
                                  excuses.explain(l.node, l.member_until, l.lost_at))};
            }
            continue;
        }
        // The member learned in its last synchronization that it is no member any more.
        const auto ended_it = [&](const SyncFact* sync) {
            // The program may have ended before its thread looked at the answer.
            const bool failed = sync->answered == open_end || sync->completion.result == Result::invalid_usage;
            return failed && misfit(ledger, *sync, excuses.seat_kept());
        };
        if (std::any_of(last_syncs[life].begin(), last_syncs[life].end(), ended_it) && excuses.use(Excuse::revision))
            continue;
        const auto names = [&](const std::string& name) {
            return std::any_of(l.causes.begin(), l.causes.end(), [&](const Cause& cause) {
                const Cause* edge = cause.find(CauseKind::edge_down);
                return edge != nullptr && std::any_of(edge->peers.begin(), edge->peers.end(),
                                                      [&](const Uuid& peer) { return short_name(peer) == name; });
            });
        };
        const bool stranger = std::any_of(ledger.stranger_hellos.begin(), ledger.stranger_hellos.end(),
                                          [&](const Ledger::StrangerHello& hello) {
                                              return !hello.name.empty() && hello.at < l.lost_at && names(hello.name);
                                          });
        if (stranger && says(CauseKind::edge_down) && excuses.use(Excuse::stranger)) continue;
        // Between a liar and another member, the master cannot tell which one to believe. A liar may have registered under
        // a name that no process has.
        const auto is_liar = [&](const Uuid& peer) {
            bool lied = false;
            for (const Life& other : ledger.lives) {
                if (other.peer == peer) return other.liar;
                lied |= other.liar && other.asked_at < l.lost_at;
            }
            return lied;
        };
        const bool beside_liar = std::any_of(l.causes.begin(), l.causes.end(), [&](const Cause& cause) {
            const Cause* edge = cause.find(CauseKind::edge_down);
            if (edge == nullptr) edge = cause.find(CauseKind::edge_stuck);
            return edge != nullptr && std::any_of(edge->peers.begin(), edge->peers.end(), is_liar);
        });
        if (beside_liar && excuses.use(Excuse::liar)) continue;
        const auto left = [](const Life& other) { return std::min(other.leaves_at, other.gone_at); };
        // What most members submit to a synchronization is right. One that enforces a content has to be followed by all.
        // It was removed at some time since it was known to be a member: honest ones may have left before. Those that
        // have completed a synchronization outrank the others.
        const auto synced = [&](const Life& other) {
            return std::any_of(ledger.syncs.begin(), ledger.syncs.end(), [&](const SyncFact& fact) {
                return &ledger.lives[fact.life] == &other && succeeded(fact) && fact.answered <= l.lost_at;
            });
        };
        std::ptrdiff_t honest = 0, liars = 0, synced_honest = 0, synced_liars = 0;
        for (const Life& other : ledger.lives) {
            if (other.group != l.group || left(other) < (other.liar ? l.member_until : l.lost_at)) continue;
            if (!(other.liar ? other.asked_at <= l.lost_at : other.connected_at <= l.lost_at)) continue;
            ++(other.liar ? liars : honest);
            if (synced(other)) ++(other.liar ? synced_liars : synced_honest);
        }
        const bool outvoted = (liars >= honest || (synced_liars != 0 && synced_liars >= synced_honest)) &&
                              (says(CauseKind::schema_differs) || says(CauseKind::senders_differ));
        // In the first synchronization of a group the highest revision counts, and the keys of whoever claims it.
        const bool outbid =
            says(CauseKind::schema_differs) &&
            std::any_of(ledger.false_votes.begin(), ledger.false_votes.end(), [&](const Ledger::FalseVote& vote) {
                return !vote.again && vote.revision > 0 && scenario.peers[vote.node - 1].group == l.group && vote.at >= l.connected_at && vote.at <= l.lost_at;
            }) &&
            std::any_of(ledger.syncs.begin(), ledger.syncs.end(), [&](const SyncFact& fact) {
                return &ledger.lives[fact.life] == &l && fact.revision == 0 && fact.end >= l.lost_at;
            });
        const bool overruled = liars > 0 && says(CauseKind::strategies_mixed);
        const bool denied =
            liars > 0 && says(CauseKind::links_closed) && excuses.control_closed(l.node, l.member_until, l.lost_at);
        if ((outvoted || outbid || overruled || denied) && excuses.use(Excuse::liar)) continue;
        // Of two members that do not reach each other either one may have to go. It was removed at some time since it was
        // known to be a member; later ones were perhaps admitted then.
        const auto two_at = [&](Instant at) {
            return std::count_if(ledger.lives.begin(), ledger.lives.end(), [&](const Life& other) {
                       return other.group == l.group && other.connected_at != 0 && other.connected_at <= at &&
                              left(other) > at;
                   }) <= 2;
        };
        if (says_of_itself(CauseKind::no_ring)) {
            if (const std::string younger = younger_that_stayed(scenario, ledger, excuses, l); !younger.empty())
                return {"membership", formatted("{} was removed and not {}, which is younger: {}", who, younger, why)};
        }
        const auto two_are_left = [&] {
            return two_at(l.member_until) ||
                   std::any_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& other) {
                       return left(other) > l.member_until && left(other) <= l.lost_at && two_at(left(other));
                   });
        };
        const bool closed_port = std::any_of(scenario.faults.begin(), scenario.faults.end(),
                                             [](const Fault& f) { return f.kind == FaultKind::closed_port; });
        if (closed_port && says(CauseKind::edge_down) && two_are_left() && excuses.use(Excuse::no_ring)) continue;
        if (says(CauseKind::not_resumed_after_restart) &&
            excuses.sought(l.member_until, l.lost_at, scenario.timeouts.grace()))
            continue;
        if (says(CauseKind::not_resumed) && (excuses.sought(l.member_until, l.lost_at, scenario.timeouts.peer) ||
                                             excuses.kept_away(l.node, l.member_until, l.lost_at, scenario.timeouts.peer)))
            continue;
        if (says(CauseKind::master_gone) && excuses.sought(l.member_until, l.lost_at, scenario.timeouts.master))
            continue;
        // What it says depends on whether it waited or dialled when the time was over.
        if ((says(CauseKind::master_away) || says(CauseKind::master_gone)) &&
            excuses.kept_away(l.node, l.member_until, l.lost_at, scenario.timeouts.master))
            continue;
        // The message with the reason may be lost behind a narrow window when the connection is closed.
        const bool connection_reset = std::any_of(l.causes.begin(), l.causes.end(), [](const Cause& cause) {
            const Cause* gone = cause.find(CauseKind::master_gone);
            return gone != nullptr && gone->texts[0].starts_with("connection reset");
        });
        if (connection_reset && gang_went(scenario, ledger, excuses, life) && excuses.use(Excuse::gang)) continue;
        const bool unconnected = says(CauseKind::edge_down) || connection_reset;
        // A disk that hangs holds back both the admission and the removal that follows it, so they arrive together.
        const bool held_back = l.member_until <= l.connected_at &&
                               std::any_of(scenario.faults.begin(), scenario.faults.end(), [](const Fault& f) {
                                   return f.kind == FaultKind::stuck_disk || f.kind == FaultKind::slow_disk;
                               });
        const Instant from = held_back ? l.asked_at : l.member_until;
        if (!excuses.loss(l.node, from, l.lost_at, unconnected)) {
            return {"membership", formatted("{} was lost, though no fault touched it: {}\n    {}", who, why,
                                            excuses.explain(l.node, from, l.lost_at))};
        }
    }
    return {};
}

}  // namespace pccl::harness
