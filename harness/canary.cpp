#include "harness/canary.hpp"

#include "harness/run.hpp"

#include <algorithm>
#include <iterator>

namespace pccl::harness {

using namespace core;

namespace {

struct Kind {
    const char* name;
    const char* oracle;
};
constexpr Kind kinds[] = {{"the truth", ""},
                          {"one wrong byte in everybody's result", "value"},
                          {"one wrong byte in one result", "parity"},
                          {"an operation failed for one member", "one-outcome"},
                          {"an operation with another world for one member", "membership"},
                          {"an input changed by an operation out of place", "restore"},
                          {"a buffer changed after the return", "no-phantom"},
                          {"another state for one member", "parity"},
                          {"a state that nobody had", "value"},
                          {"a synchronization failed for one member", "one-outcome"},
                          {"a revision was left out", "revision"},
                          {"the next revision was refused", "revision"},
                          {"a world that is too large", "membership"},
                          {"a world that is too small", "membership"},
                          {"another answer about pending peers for one member", "membership"},
                          {"a member lost for nothing", "membership"},
                          {"bytes received by a member that only sends", "election"},
                          {"a part of a result that was never written", "geometry"},
                          {"an application that never ends", "progress"},
                          {"members that get no further, in the same situations", "progress"},
                          {"a call that was answered twice", "contract"},
                          {"one operation more at a time than the window", "window"},
                          {"a byte held behind the end of a program", "at-rest"},
                          {"a machine at rest that keeps an entry", "at-rest"},
                          {"a journal without its last record", "replay"},
                          {"a machine that held more than its limits", "bounded"},
                          {"a connection kept although it damaged payload", "contract"},
                          {"a journal that only grows", "bounded"},
                          {"an operation failed for one member that stayed", "one-outcome"},
                          {"a state for which neither members nor dead ones voted", "election"},
                          {"a state that a liar offered only later", "election"},
                          {"other groups in the first update of a newcomer", "membership"},
                          {"a world that counts a stranger for ever", "membership"},
                          {"a peer that sends nothing, long after slow computes", "progress"},
                          {"a call given up before the limit on votes", "progress"},
                          {"an operation that failed because others were gone", "progress"},
                          {"an operation that failed over an edge that was good", "progress"},
                          {"a member removed for its vote after a short reset", "membership"},
                          {"a member told of a stop of the master that was none", "membership"},
                          {"a member with a good link that was not told of a stop", "membership"},
                          {"a call of a revoked member that was carried out", "revocation"},
                          {"a connection with a revoked member", "revocation"},
                          {"a member told of a revocation that was none", "membership"},
                          {"a newcomer that waits though members update", "admission"},
                          {"a byte more received by an operation", "numbers"},
                          {"an optimized ring twice as dear", "rings"},
                          {"a changed state of which nothing was received", "numbers"},
                          {"a status of the master that is out of date", "numbers"},
                          {"statistics that lack an update", "numbers"},
                          {"an operation of the status without a beginning", "numbers"},
                          {"a call that failed without a cause", "contract"},
                          {"an optimize of one member alone", "contract"},
                          {"more bytes committed than members launched", "numbers"},
                          {"an operation that waited for nothing", "waiting"},
                          {"an operation that waited long for a connection", "waiting"},
                          {"operations that failed for all without a reason", "steady"},
                          {"operations that failed again and again because of an edge", "detour"},
                          {"a call that the limit on votes did not end", "waiting"},
                          {"a state that a member had and that was lost", "election"},
                          {"a collective that the master gave up for nothing", "progress"},
                          {"a newcomer refused as a copy of itself", "admission"},
                          {"a newcomer turned away that had a way", "admission"},
                          {"a newcomer without a gang turned away for it", "gang"},
                          {"one revision of two schemas", "schema"},
                          {"another number of groups in the same epoch", "membership"},
                          {"peers that are pending and do not exist", "admission"},
                          {"a call beside a launched tag that succeeded", "contract"},
                          {"a warning of the same vote at each tick", "bounded"},
                          {"a warning that names who has voted", "bounded"},
                          {"one wrong byte in what all gathered", "value"},
                          {"one wrong byte in what one member gathered", "parity"},
                          {"one wrong byte in a piece of a reduction", "value"},
                          {"an all-gather failed for one member", "one-outcome"},
                          {"a piece with another count for one member", "membership"},
                          {"an index of another member", "membership"},
                          {"a younger member in front of an older one", "membership"},
                          {"a member that did not take part", "membership"},
                          {"bytes written behind a result", "no-phantom"},
                          {"a byte more received by an all-gather", "numbers"},
                          {"a root blamed that was a member", "progress"},
                          {"a refusal of what was the same at all", "progress"},
                          {"one wrong byte in what a root gathered", "value"},
                          {"one wrong byte in a piece of a scatter", "value"},
                          {"one wrong byte in what one member exchanged", "value"},
                          {"another count of a piece that was exchanged", "membership"},
                          {"one wrong byte in a gather before a member lied", "value"},
                          {"one wrong byte in the gather of one beside a liar", "parity"},
                          {"one wrong byte in what was sent", "value"},
                          {"one wrong byte in a send before a member lied", "value"},
                          {"a send that failed at one end", "one-outcome"},
                          {"a send that names another end", "membership"},
                          {"a send that received a byte more", "numbers"},
                          {"a receiver without room blamed that had it", "progress"},
                          {"an end blamed that was a member", "progress"}};

// Lies about other collectives than an all-reduce.
bool is_of_collectives(Lie lie) { return lie >= Lie::gather_of_all; }
bool is_of_sends(Lie lie) { return lie >= Lie::sent_to_one; }
static_assert(std::size(kinds) == static_cast<std::size_t>(Lie::count));

// Three members, all calls of the interface, no fault.
Scenario quiet() {
    Scenario s;
    s.seed = 1;
    for (std::uint32_t i = 0; i < 3; ++i) {
        PeerPlan plan;
        plan.turns = 6;
        s.peers.push_back(plan);
    }
    s.limits.slice_bytes = 64;
    s.limits.eager_bytes = 128;
    s.limits.chunk_bytes = 64;
    s.limits.payload_bytes_max = 4096;
    s.workload.pump = false;
    s.workload.tags = 2;
    s.workload.elements_max = 64;
    s.workload.in_place_per_mille = 0;
    s.timeouts.peer = 5 * second;
    s.timeouts.master = 10 * second;
    s.chaos_end = 5 * second;
    s.stop_after = second;
    s.patience = 60 * second;
    return s;
}

bool good(const Completion& completion, Instant end) { return end != open_end && completion.result == Result::success; }

// The last operation (or synchronization) that all three members completed.
std::vector<LaunchFact*> last_operation(Ledger& ledger) {
    for (auto last = ledger.launches.rbegin(); last != ledger.launches.rend(); ++last) {
        std::vector<LaunchFact*> members;
        for (LaunchFact& fact : ledger.launches) {
            if (good(fact.completion, fact.end) && fact.completion.world == 3 && fact.tag == last->tag &&
                fact.shape.count != 0 && fact.begin < last->end && last->begin < fact.end) {
                members.push_back(&fact);
            }
        }
        if (members.size() == 3) return members;
    }
    return {};
}

// The last collective of this kind that all three members completed, with a result at each; of a gather at its root.
std::vector<LaunchFact*> last_collective(Ledger& ledger, CollectiveKind kind) {
    for (auto last = ledger.launches.rbegin(); last != ledger.launches.rend(); ++last) {
        std::vector<LaunchFact*> members;
        for (LaunchFact& fact : ledger.launches) {
            if (good(fact.completion, fact.end) && fact.completion.members.size() == 3 && fact.tag == last->tag &&
                fact.collective.kind == kind && (kind == CollectiveKind::gather || !fact.output.empty()) &&
                fact.begin < last->end && last->begin < fact.end)
                members.push_back(&fact);
        }
        const bool any = std::any_of(members.begin(), members.end(), [](auto* fact) { return !fact->output.empty(); });
        if (members.size() == 3 && any) return members;
    }
    return {};
}

std::vector<SyncFact*> last_sync(Ledger& ledger) {
    for (auto last = ledger.syncs.rbegin(); last != ledger.syncs.rend(); ++last) {
        std::vector<SyncFact*> members;
        for (SyncFact& fact : ledger.syncs) {
            if (good(fact.completion, fact.end) && fact.revision == last->revision && !fact.after.empty())
                members.push_back(&fact);
        }
        if (members.size() == 3) return members;
    }
    return {};
}

VoteFact* last_vote(Ledger& ledger, CallKind kind) {
    for (auto fact = ledger.votes.rbegin(); fact != ledger.votes.rend(); ++fact) {
        if (fact->kind == kind && good(fact->completion, fact->end) && fact->completion.attributes.global_world == 3)
            return &*fact;
    }
    return nullptr;
}

bool synced_later(const Ledger& ledger, const SyncFact& fact) {
    return std::any_of(ledger.syncs.begin(), ledger.syncs.end(), [&](const SyncFact& other) {
        return other.life == fact.life && other.begin > fact.begin && good(other.completion, other.end);
    });
}

// The content of one member wins, although two others and a member that died meanwhile submitted another.
void overrule(Ledger& ledger, const std::vector<SyncFact*>& sync) {
    sync[0]->before[0] ^= 1;
    sync[1]->before = sync[2]->before;
    for (SyncFact* fact : sync) fact->after = sync[0]->before;
    SyncFact dead = *sync[2];
    Life life = ledger.lives[dead.life];
    life.ended = true;
    life.member_until = life.connected_at;
    dead.life = static_cast<std::uint32_t>(ledger.lives.size());
    dead.end = open_end;
    ledger.lives.push_back(life);
    const auto place =
        std::find_if(ledger.syncs.begin(), ledger.syncs.end(), [&](const SyncFact& fact) { return &fact == sync[2]; });
    ledger.syncs.insert(place, dead);
}

// All members submit the revision of before, and the content of one of them wins. This one said only after the call
// that its revision is the expected one.
void offer_too_late(Ledger& ledger, const std::vector<SyncFact*>& sync) {
    Life& liar = ledger.lives[sync[2]->life];
    liar.liar = true;
    ledger.false_votes.push_back({liar.node, sync[2]->end + second, sync[2]->revision, sync[2]->strategy});
    sync[2]->before[0] ^= 1;
    for (SyncFact* fact : sync) {
        fact->after = sync[2]->before;
        --fact->revision;
    }
}

// Finds an update that is the first call of its life, while the others call nothing but updates.
VoteFact* first_update(Ledger& ledger) {
    for (VoteFact& fact : ledger.votes) {
        if (fact.kind != CallKind::update_topology || !good(fact.completion, fact.end)) continue;
        const auto same = [&](const auto& other) { return other.life == fact.life && other.begin < fact.begin; };
        const auto other_call = [&](const auto& other) { return other.begin < fact.end && fact.begin < other.end; };
        bool first = fact.completion.attributes.global_world > 1;
        for (const VoteFact& other : ledger.votes)
            first = first && (other.kind == CallKind::connect ||
                              (!same(other) && (other.kind == fact.kind || !other_call(other))));
        for (const LaunchFact& other : ledger.launches) first = first && !same(other) && !other_call(other);
        for (const SyncFact& other : ledger.syncs) first = first && !same(other) && !other_call(other);
        if (first) return &fact;
    }
    return nullptr;
}

void change_worlds(Ledger& ledger, int by) {
    for (VoteFact& fact : ledger.votes) {
        Attributes& attributes = fact.completion.attributes;
        if (fact.kind != CallKind::update_topology || attributes.global_world != 3) continue;
        attributes.global_world += static_cast<std::uint32_t>(by);
        attributes.group_world = attributes.largest_group = attributes.global_world;
    }
}

void fail(Completion& completion, Result result) {
    completion.result = result;
    completion.cause = make_cause<CauseKind::revision_ahead>(0, 0);
}

// The last send of which both ends came to success, with a result.
void tamper_with_sends(Ledger& ledger, Lie lie) {
    for (auto last = ledger.launches.rbegin(); last != ledger.launches.rend(); ++last) {
        if (last->collective.kind != CollectiveKind::send || last->output.empty()) continue;
        const auto sends = std::find_if(ledger.launches.begin(), ledger.launches.end(), [&](const LaunchFact& fact) {
            return fact.collective.kind == CollectiveKind::send && good(fact.completion, fact.end) &&
                   fact.completion.index == 0 && fact.tag == last->tag &&
                   fact.collective.root == last->collective.root && fact.collective.target == last->collective.target &&
                   fact.begin < last->end && last->begin < fact.end;
        });
        if (sends == ledger.launches.end()) continue;
        switch (lie) {
        case Lie::sent_to_one: last->output[0] ^= 1; break;
        case Lie::sent_before_a_lie:
            for (const LaunchFact& fact : ledger.launches) {
                if (fact.life != last->life && fact.life != sends->life)
                    ledger.false_bytes.emplace_back(ledger.lives[fact.life].node, last->end + second);
            }
            last->output[0] ^= 1;
            break;
        case Lie::send_failed: fail(sends->completion, Result::rank_connection_lost); break;
        case Lie::sent_to_another: last->completion.members[1].peer = Uuid{{1}}; break;
        case Lie::sent_received: ++last->completion.received_bytes; break;
        default:
            for (LaunchFact* fact : {&*sends, &*last}) {
                const bool gone = lie == Lie::end_blamed;
                fail(fact->completion, gone ? Result::rank_connection_lost : Result::invalid_argument);
                fact->completion.cause = gone ? make_cause<CauseKind::other_end_not_member>(
                                                    fact == &*sends ? last->collective.target : last->collective.root)
                                              : make_cause<CauseKind::room_too_small>(last->collective.target, 1, 2);
            }
        }
        return;
    }
}

// The member sent false bytes at that time.
void lie_of(Ledger& ledger, const LaunchFact& fact, Instant at) {
    Life& liar = ledger.lives[fact.life];
    liar.liar = true;
    ledger.false_bytes.emplace_back(liar.node, at);
}

void tamper_with_collectives(Ledger& ledger, Lie lie) {
    const bool of_a_root = lie == Lie::root_blamed || lie == Lie::same_refused;
    const bool of_an_exchange = lie == Lie::exchanged_by_one || lie == Lie::count_exchanged;
    const CollectiveKind kind = of_a_root                      ? CollectiveKind::broadcast
                                : lie == Lie::scatter_of_one   ? CollectiveKind::reduce_scatter
                                : lie == Lie::gathered_at_root ? CollectiveKind::gather
                                : lie == Lie::scattered_to_one ? CollectiveKind::scatter
                                : of_an_exchange               ? CollectiveKind::all_to_all
                                                               : CollectiveKind::all_gather;
    const std::vector<LaunchFact*> operation = last_collective(ledger, kind);
    if (operation.empty()) return;  // nothing to falsify: the canary line will show no report
    Completion& first = operation[0]->completion;
    switch (lie) {
    case Lie::gather_of_all:
        for (LaunchFact* fact : operation) fact->output[0] ^= 1;
        break;
    case Lie::gathered_before_a_lie:
        lie_of(ledger, *operation[2], operation[2]->end + second);
        for (LaunchFact* fact : operation) fact->output[0] ^= 1;
        break;
    case Lie::gathered_apart:
        lie_of(ledger, *operation[0], operation[0]->begin);
        operation[1]->output[0] ^= 1;
        break;
    case Lie::gather_of_one: operation.back()->output[0] ^= 1; break;
    case Lie::scatter_of_one:
    case Lie::scattered_to_one:
    case Lie::exchanged_by_one: operation.back()->output[0] ^= 1; break;
    case Lie::gathered_at_root:
        for (LaunchFact* fact : operation) {
            if (!fact->output.empty()) fact->output[0] ^= 1;
        }
        break;
    case Lie::gather_failed: fail(first, Result::rank_connection_lost); break;
    case Lie::count_exchanged:
    case Lie::piece_of_one: ++first.members[(first.index + 1) % 3].count; break;
    case Lie::another_index: first.index = (first.index + 1) % 3; break;
    case Lie::younger_first:
        for (LaunchFact* fact : operation) {
            Completion& c = fact->completion;
            std::reverse(c.members.begin(), c.members.end());
            c.index = 2 - c.index;
            // Their pieces, too.
            std::vector<std::uint8_t> pieces;
            for (const Completion::Part& member : c.members) {
                for (const LaunchFact* other : operation) {
                    if (ledger.lives[other->life].peer != member.peer) continue;
                    const auto bytes = member.count * element_bytes(other->shape.type);
                    pieces.insert(pieces.end(), other->input.begin(),
                                  other->input.begin() + static_cast<std::ptrdiff_t>(bytes));
                }
            }
            fact->output = pieces;
        }
        break;
    case Lie::stranger_gathered:
        for (LaunchFact* fact : operation) {
            fact->completion.members.push_back({Uuid{{1}}, 0});
            ++fact->completion.world;
        }
        break;
    case Lie::gathered_of_one: ++first.received_bytes; break;
    case Lie::root_blamed:
    case Lie::same_refused:
        for (LaunchFact* fact : operation) {
            fail(fact->completion, Result::invalid_argument);
            fact->completion.cause = lie == Lie::root_blamed
                                         ? make_cause<CauseKind::root_not_member>(fact->collective.root)
                                         : make_cause<CauseKind::shapes_differ>("root", Uuid{}, "a", Uuid{}, "b");
        }
        break;
    default: break;
    }
}

}  // namespace

void tamper(Ledger& ledger, Lie lie) {
    if (lie == Lie::none) return;
    if (lie == Lie::not_told_of_a_stop) {
        for (Life& life : ledger.lives) {
            if (life.lost) life.causes = {make_cause<CauseKind::other_run>()};
        }
        return;
    }
    if (lie == Lie::revoked_carried_out || lie == Lie::revoked_open) {
        const Life& life = ledger.lives.back();
        const Instant at = lie == Lie::revoked_open ? life.gone_at : life.member_until - 1;
        ledger.revocations.push_back({life.peer, life.node, at, lie == Lie::revoked_open ? " peer1" : ""});
        return;
    }
    if (lie == Lie::told_of_no_revocation) {
        for (Life& life : ledger.lives) {
            if (life.lost) life.causes = {make_cause<CauseKind::removed>(make_cause<CauseKind::revoked>())};
        }
        return;
    }
    if (lie == Lie::pending_for_nobody) {
        for (VoteFact& fact : ledger.votes) fact.completion.pending |= fact.kind == CallKind::are_peers_pending;
        return;
    }
    if (lie == Lie::newcomer_superseded || lie == Lie::turned_away || lie == Lie::impatient_gang) {
        const bool away = lie != Lie::newcomer_superseded;
        for (VoteFact& fact : ledger.votes) {
            if (fact.kind != CallKind::connect) continue;
            fact.completion.result = away ? Result::rank_connection_failed : Result::master_connection_failed;
            fact.completion.cause =
                lie == Lie::impatient_gang ? make_cause<CauseKind::gang_incomplete>(std::string(), Duration{0}, 0u)
                : away ? make_cause<CauseKind::no_way_through>(std::string(), std::string(), std::string())
                       : make_cause<CauseKind::superseded>();
        }
        return;
    }
    if (lie == Lie::waits_for_an_idler) {
        Life& idle = ledger.lives.back();
        idle.idle.emplace_back(0, 1'000 * second);
        idle.gone_at = open_end;
        const auto call = std::find_if(ledger.votes.begin(), ledger.votes.end(), [&](const VoteFact& fact) {
            return fact.process != idle.process && fact.kind != CallKind::connect && fact.begin >= idle.connected_at;
        });
        if (call != ledger.votes.end()) call->end = call->answered = call->begin + 500 * second;
        return;
    }
    if (is_of_sends(lie)) return tamper_with_sends(ledger, lie);
    if (is_of_collectives(lie)) return tamper_with_collectives(ledger, lie);
    const std::vector<LaunchFact*> operation = last_operation(ledger);
    const std::vector<SyncFact*> sync = last_sync(ledger);
    if (operation.size() < 3 || sync.size() < 3) return;  // nothing to falsify: the canary line will show no report
    switch (lie) {
    case Lie::value_of_all:
        for (LaunchFact* fact : operation) fact->output[0] ^= 1;
        break;
    case Lie::parity_of_one: operation.back()->output[0] ^= 1; break;  // after results that are right
    case Lie::outcome_of_one: fail(operation[0]->completion, Result::rank_connection_lost); break;
    case Lie::world_of_one: ++operation[0]->completion.world; break;
    case Lie::newcomer_waits:
        for (VoteFact& fact : ledger.votes) {
            if (fact.kind == CallKind::connect && fact.life == ledger.lives.size() - 1) fact.end = open_end;
        }
        ledger.lives.back().gone_at = open_end;
        break;
    case Lie::waited_for_a_tick: operation[0]->end += 5 * millisecond; break;
    case Lie::waited_for_a_reset: operation[0]->end += 5 * second; break;
    case Lie::received_of_one: ++operation[0]->completion.received_bytes; break;
    case Lie::sync_received:
        for (SyncFact& fact : ledger.syncs) {
            if (good(fact.completion, fact.end)) fact.completion.received_bytes = 0;
        }
        break;
    case Lie::fails_for_nothing:
    case Lie::no_detour: {
        // Only operations that ended for all long before a member left.
        Instant until = operation[0]->begin - 2 * second;
        for (bool fits = false; !fits;) {
            fits = true;
            for (const LaunchFact& fact : ledger.launches) {
                if (fact.begin >= until || fact.end < until) continue;
                until = fact.begin;
                fits = false;
            }
        }
        for (LaunchFact& fact : ledger.launches) {
            if (fact.end >= until) continue;
            fail(fact.completion, Result::rank_connection_lost);
            fact.completion.cause = make_cause<CauseKind::member_did_not_finish>(Uuid{}, Cause{});
        }
        break;
    }
    case Lie::two_schemas: sync[0]->schema = 1; break;
    case Lie::state_of_one: sync[0]->after[0] ^= 1; break;
    case Lie::state_of_all:
        for (SyncFact* fact : sync) fact->after[0] ^= 1;
        break;
    case Lie::sync_of_one:
        // Not of a member that synchronized again: there the gap in its revisions would be reported first.
        for (SyncFact* fact : sync) {
            if (!synced_later(ledger, *fact)) fail(fact->completion, Result::internal_error);
        }
        break;
    case Lie::revision_skipped:
        for (SyncFact* fact : sync) ++fact->completion.revision;
        break;
    case Lie::revision_refused:
        for (SyncFact* fact : sync) fail(fact->completion, Result::invalid_usage);
        break;
    case Lie::world_too_large:
    case Lie::world_too_small: change_worlds(ledger, lie == Lie::world_too_large ? 1 : -1); break;
    case Lie::pending_to_one:
        if (VoteFact* fact = last_vote(ledger, CallKind::are_peers_pending)) {
            fact->completion.pending = !fact->completion.pending;
        }
        break;
    case Lie::sender_received:
        for (SyncFact* fact : sync) {
            fact->strategy = SyncStrategy::send_only;
            fact->completion.received_bytes = 1;
        }
        break;
    case Lie::told_of_no_stop:
        ledger.lives.back().lost = true;
        ledger.lives.back().causes = {make_cause<CauseKind::master_stopped>()};
        break;
    case Lie::lost_for_nothing: ledger.lives.back().lost = true; break;
    case Lie::failed_and_stayed:
        fail(operation[0]->completion, Result::rank_connection_lost);
        operation[0]->completion.attributes.global_world = 1;
        ledger.lives[operation[0]->life].member_until = operation[0]->end;  // its next call succeeded
        break;
    case Lie::unknown_voter_overruled: overrule(ledger, sync); break;
    case Lie::liar_offered_later: offer_too_late(ledger, sync); break;
    case Lie::groups_of_one:
        if (VoteFact* fact = first_update(ledger)) fact->completion.attributes.groups = 2;
        break;
    case Lie::stranger_counted:
        ledger.stranger_hellos.push_back({-100 * second, -100 * second, {}});
        change_worlds(ledger, 1);
        break;
    case Lie::nobody_went:
    case Lie::never_apart:
        for (Life& life : ledger.lives) life.gone_at = open_end;
        for (LaunchFact* fact : operation) {
            fail(fact->completion, Result::rank_connection_lost);
            fact->completion.cause = lie == Lie::nobody_went ? make_cause<CauseKind::group_left_alone>()
                                                             : make_cause<CauseKind::edge_down>(Uuid{}, Uuid{});
        }
        break;
    case Lie::starved_after_slow_computes:
    case Lie::given_up_too_soon:
        for (LaunchFact* fact : operation) {
            const bool starved = lie == Lie::starved_after_slow_computes;
            fail(fact->completion, starved ? Result::rank_connection_lost : Result::invalid_usage);
            fact->completion.cause = starved ? make_cause<CauseKind::nothing_sent_by>(Uuid{})
                                             : make_cause<CauseKind::calls_crossed>("update topology", Uuid{}, "busy");
        }
        break;
    case Lie::vote_after_a_reset: {
        Life& life = ledger.lives.back();
        life.lost = true;
        life.lost_at = life.gone_at;
        life.member_until = life.connected_at;
        life.causes = {make_cause<CauseKind::vote_awaited>(1, "update topology")};
        break;
    }
    default: break;
    }
}

std::vector<CanaryLine> run_canary() {
    std::vector<CanaryLine> lines;
    for (std::size_t i = 0; i < std::size(kinds); ++i) {
        Scenario scenario = quiet();
        RunOptions options;
        options.lie = static_cast<Lie>(i);
        scenario.workload.pump = options.lie == Lie::pending_to_one;
        scenario.world.symbolic = options.lie == Lie::part_not_written;
        if (options.lie == Lie::groups_of_one) {
            // Members that wait for a third one keep updating. A newcomer updates in its first turn.
            scenario.workload.early_update_per_mille = 1000;
            scenario.workload.world_min = 3;
            scenario.peers[1].start = second;
            scenario.peers[2].start = 4 * second;
        }
        if (options.lie == Lie::pending_for_nobody) {
            // Each update follows such a question. The oracle leaves out the time after a connect.
            scenario.workload.beside = scenario.workload.beside_asks = 1;
            for (PeerPlan& peer : scenario.peers) peer.turns = 1000;
        }
        if (options.lie == Lie::no_detour) {
            Fault swallows;
            swallows.kind = FaultKind::swallow;
            swallows.at = scenario.chaos_end = 1'000 * second;
            swallows.a = 1;
            swallows.b = 2;
            scenario.faults.push_back(swallows);
        }
        if (options.lie == Lie::newcomer_waits || options.lie == Lie::fails_for_nothing ||
            options.lie == Lie::no_detour) {
            Timeouts& t = scenario.timeouts;
            t.peer = t.dial = t.handshake = t.redial_max = 100 * millisecond;
            for (PeerPlan& peer : scenario.peers) peer.turns = 1000;
        }
        if (options.lie == Lie::goes_round) {
            scenario.timeouts.peer = 500 * millisecond;
            scenario.timeouts.master = second;
            scenario.stop_after = 90 * second;
            for (PeerPlan& peer : scenario.peers) peer.turns = 10'000;
        }
        scenario.even = options.lie == Lie::waited_for_a_tick || options.lie == Lie::waited_for_a_reset;
        if (scenario.even) scenario.world.disk_high = scenario.world.disk_low;
        if (options.lie == Lie::waited_for_a_reset) {
            Fault reset;
            reset.kind = FaultKind::reset;
            reset.at = 20 * millisecond;
            scenario.faults.push_back(reset);
            // Nobody leaves while a connection is broken.
            for (PeerPlan& peer : scenario.peers) peer.turns = 200;
        }
        if (options.lie == Lie::window_passed) scenario.workload.many_window = 1;
        if (is_of_collectives(options.lie)) {
            scenario.workload.collectives_per_mille = 1000;
            if (is_of_sends(options.lie)) scenario.workload.sends_per_mille = 1000;
            scenario.workload.in_place_per_mille = 300;
            for (PeerPlan& peer : scenario.peers) peer.turns = 20;
            // One after the other, so that the order of their admission is known.
            scenario.workload.world_min = 3;
            for (std::size_t k = 1; k < scenario.peers.size(); ++k)
                scenario.peers[k].start = static_cast<Duration>(k) * second;
        }
        if (options.lie == Lie::begin_untold) {
            scenario.workload.tags = 8;
            for (PeerPlan& peer : scenario.peers) peer.turns = 20;
        }
        if (options.lie == Lie::snapshot_lost) {
            scenario.limits.journal_records = 4;
            for (PeerPlan& peer : scenario.peers) peer.turns = 60;
        }
        if (options.lie == Lie::ring_dearer || options.lie == Lie::optimized_alone)
            scenario.workload.optimize_per_mille = 1000;
        if (options.lie == Lie::stranger_counted) {
            scenario.timeouts.peer = 100 * millisecond;
            scenario.timeouts.master = 200 * millisecond;
        }
        if (options.lie == Lie::given_up_too_soon) scenario.timeouts.vote = 5 * second;
        if (options.lie == Lie::waits_for_an_idler) {
            scenario.timeouts.vote = 5 * second;
            scenario.peers.resize(2);
        }
        if (options.lie == Lie::starved_after_slow_computes) {
            scenario.timeouts.peer = 100 * millisecond;
            scenario.timeouts.redial_max = 100 * millisecond;
            scenario.timeouts.handshake = 100 * millisecond;
            for (PeerPlan& peer : scenario.peers) peer.turns = 100;
            Fault slow;
            slow.kind = FaultKind::slow_compute;
            slow.at = millisecond;
            slow.duration = millisecond;
            slow.a = 1;
            scenario.faults.push_back(slow);
        }
        if (options.lie == Lie::not_told_of_a_stop || options.lie == Lie::told_of_no_revocation) {
            Fault stop;
            stop.kind = FaultKind::stop_master;
            stop.at = 20 * millisecond;
            stop.duration = 20 * millisecond;
            scenario.faults.push_back(stop);
        }
        if (options.lie == Lie::vote_after_a_reset) {
            scenario.timeouts.vote = 5 * second;
            Fault reset;
            reset.kind = FaultKind::reset;
            reset.at = 20 * millisecond;
            scenario.faults.push_back(reset);
        }
        const Verdict verdict = run(scenario, options);
        lines.push_back(CanaryLine{kinds[i].name, kinds[i].oracle, verdict.violation.oracle});
    }
    return lines;
}

}  // namespace pccl::harness
