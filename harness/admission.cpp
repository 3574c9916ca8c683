// The oracle `admission`: while members make progress, a newcomer that they can reach does not wait without end.
//
// It judges only times without disturbance: after the faults, or the whole run if nothing can go wrong. Then a newcomer
// is ready a bounded time after its connect call. The next update of the topology must admit it, and until then it must
// be pending. It is not turned away because of translators through which it has a way to each member.
#include "core/base/format.hpp"
#include "harness/gangs.hpp"
#include "harness/oracles.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

namespace {

struct Terms {
    Instant quiet = 0;   // nothing disturbs the run from then on
    Duration ready = 0;  // from the connect call, or from `quiet` if that is later, until it can be admitted
    Duration hears = 0;  // from the decision until the newcomer receives it
    Duration anew = 0;   // from a change of the members until the others that wait are connected anew
};

bool is_undisturbed(const Scenario& s) {
    const sim::NetworkParameters& n = s.world.network;
    return s.faults.empty() && !n.fails_dials() && n.queue_max == 0 && s.world.allocation_fails_per_million == 0 &&
           n.tail_per_million == 0;
}

bool nothing_can_happen(const Scenario& s) {
    return is_undisturbed(s) && std::none_of(s.peers.begin(), s.peers.end(), [](const PeerPlan& plan) {
               return plan.translator != sim::Translator::none;
           });
}

// If no time-out passes: messages travel, machines look at their clocks, and records are written.
Duration quick_step(const Scenario& s, const Excuses& excuses) {
    return 6 * excuses.slow() + 2 * s.timeouts.tick() + 2 * s.world.disk_high + 2 * s.world.timer_late_max;
}

Terms terms_of(const Scenario& s, const Excuses& excuses) {
    const Timeouts& t = s.timeouts;
    std::size_t addresses = 1;
    for (const PeerPlan& plan : s.peers) addresses = std::max(addresses, plan.masters.size());
    Terms terms;
    if (nothing_can_happen(s)) {
        const Duration step = quick_step(s, excuses);
        terms.hears = terms.anew = 2 * step;
        terms.ready = 4 * step;
        // While bandwidths are measured nothing else is decided.
        if (s.workload.optimize_per_mille != 0) terms.ready += t.survey;
        // Addresses at which there is no master are tried first.
        if (addresses > 1) terms.ready += static_cast<Duration>(addresses) * (t.dial + t.handshake + t.redial_max);
        return terms;
    }
    const Duration attempt = t.dial + t.handshake + t.redial_max + 8 * excuses.slow();
    terms.hears = attempt + 2 * t.tick() + 100 * millisecond;
    terms.ready = static_cast<Duration>(addresses + 2) * attempt + 2 * t.peer + 2 * t.tick();
    terms.anew = terms.hears + 2 * t.peer;
    terms.quiet = s.chaos_end;
    // After faults, the master keeps the seats of dead members for a while. A connection that nobody closed must time
    // out first. A newcomer that could not be reached waits for its turn behind the others.
    terms.ready += t.grace() + t.master + static_cast<Duration>(4 * s.peers.size() + 4) * t.peer;
    return terms;
}

struct Waits {
    Instant asked = never;  // never: it need not be admitted
    Instant until = 0;
};

// Whether another process may have the place of the newcomer in its gang then, or the gang cannot be.
bool shares_its_place(const Ledger& ledger, const Excuses& excuses, const Life& life, Instant from, Instant until) {
    if (life.gang.place >= life.gang.size || life.gang.size > 64) return true;
    return std::any_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& other) {
        return &other != &life && other.gang.name == life.gang.name &&
               (other.gang.place == life.gang.place || other.gang.size != life.gang.size) && other.asked_at <= until &&
               excuses.counted_until(other.gone_at) >= from;
    });
}

// Since when the newcomer, and all of its gang, ask to be members. It is not judged if another process may have a place
// of the gang then, or if nobody has it.
Waits waits_of(const Ledger& ledger, const Excuses& excuses, const VoteFact& connect) {
    const Life& life = ledger.lives[connect.life];
    Waits waits{life.asked_at, std::min(connect.end, life.gone_at)};
    if (life.gang.none()) return waits;
    const Instant from = waits.asked, until = waits.until;
    if (shares_its_place(ledger, excuses, life, from, until)) return {};
    for (const std::vector<std::uint32_t>& place : lives_at_places(ledger, excuses, connect.life, from, until)) {
        if (place.size() != 1) return {};
        const Life& mate = ledger.lives[place.front()];
        waits.asked = std::max(waits.asked, mate.asked_at);
        waits.until = std::min({waits.until, mate.connected_at, std::min(mate.gone_at, mate.leaves_at)});
    }
    return waits;
}

// Some way leads through the translators in front of the two.
bool can_connect(const PeerPlan& a, const PeerPlan& b) {
    using sim::Translator;
    const auto reachable = [](const PeerPlan& plan) {
        return plan.translator == Translator::none || plan.translator == Translator::open || plan.advertises;
    };
    const bool in_one_network =
        a.translator != Translator::none && b.translator != Translator::none && a.site == b.site && a.lan == b.lan;
    if (in_one_network || reachable(a) || reachable(b)) return true;
    return a.translator == Translator::cone && b.translator == Translator::cone;
}

bool can_all_connect(const Scenario& s) {
    return std::ranges::all_of(s.peers, [&](const PeerPlan& a) {
        return std::ranges::all_of(s.peers, [&](const PeerPlan& b) { return &a == &b || can_connect(a, b); });
    });
}

sim::Violation check_turned_away(const Scenario& s, const Ledger& ledger) {
    const Instant quiet = is_undisturbed(s) ? 0 : s.chaos_end;
    const Duration time = s.timeouts.peer;  // in which the end of a member may explain that a newcomer did not reach it
    for (const VoteFact& connect : ledger.votes) {
        if (connect.kind != CallKind::connect || !connect.completion.cause.has(CauseKind::no_way_through)) continue;
        const bool disturbed = std::any_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& life) {
            const Instant end = std::min(life.leaves_at, life.gone_at);
            return &life != &ledger.lives[connect.life] && end >= connect.begin - time && end <= connect.end;
        });
        if (disturbed || connect.begin < quiet || !can_all_connect(s)) continue;
        return {"admission", formatted("{} was turned away at {} ms, and it could connect with each of the others",
                                       ledger.name(connect.life), connect.end / millisecond)};
    }
    return {};
}

// When the machine was told whether it is a member. A program that hangs sees it later.
Instant answered_at(const Ledger& ledger, const Life& life) {
    for (const VoteFact& fact : ledger.votes) {
        if (fact.kind == CallKind::connect && &ledger.lives[fact.life] == &life) return fact.answered;
    }
    return never;
}

// When the operator revoked its certificate.
Instant revoked_at(const Ledger& ledger, const Life& life) {
    Instant first = never;
    for (const Ledger::Revocation& one : ledger.revocations) {
        if (one.node == life.node && one.at >= life.asked_at) first = std::min(first, one.at);
    }
    return first;
}

// A newcomer is turned away for missing places of its gang only after its patience, and that begins anew when all places
// were taken.
sim::Violation check_patience(const Scenario& s, const Ledger& ledger, const Excuses& excuses) {
    Duration jumps = 0;
    for (const Fault& fault : s.faults) jumps += fault.kind == FaultKind::clock_jump ? fault.duration : 0;
    const Timeouts& t = s.timeouts;
    for (const VoteFact& connect : ledger.votes) {
        if (connect.kind != CallKind::connect || !connect.completion.cause.has(CauseKind::gang_incomplete)) continue;
        const Life& life = ledger.lives[connect.life];
        const PeerPlan& plan = s.peers[life.node - 1];
        const Duration least =
            plan.gang_patience - jumps - 2 * plan.gang_patience * s.world.drift_ppm / 1'000'000 - millisecond;
        const auto turned_away = [&](Instant since) -> sim::Violation {
            return {"gang", formatted("{} was turned away at {} ms, and its gang missed a place since {} ms at most",
                                      ledger.name(connect.life), connect.end / millisecond, since / millisecond)};
        };
        if (plan.gang_patience == 0 || connect.end - connect.begin < least) return turned_away(connect.begin);
        Instant asked = life.asked_at, complete_until = std::min(connect.end, life.gone_at);
        if (shares_its_place(ledger, excuses, life, asked, complete_until)) continue;
        std::size_t addresses = 1;
        bool complete = true;
        for (const auto& place : lives_at_places(ledger, excuses, connect.life, asked, complete_until)) {
            complete = !place.empty();
            if (!complete) break;
            // The first one there has the place, whoever comes after it.
            const Life& mate = ledger.lives[*std::min_element(place.begin(), place.end(), [&](auto a, auto b) {
                return ledger.lives[a].asked_at < ledger.lives[b].asked_at;
            })];
            asked = std::max(asked, mate.asked_at);
            complete_until =
                std::min({complete_until, mate.connected_at, mate.gone_at, mate.leaves_at, answered_at(ledger, mate),
                          excuses.first_disturbed(mate.node, mate.asked_at), revoked_at(ledger, mate)});
            addresses = std::max(addresses, s.peers[mate.node - 1].masters.size());
        }
        // The last of them has registered by then.
        const bool at_once = addresses == 1 && !s.world.network.fails_dials();
        const Instant registered = asked + 2 * excuses.latest_of_all(0) +
                                   (at_once ? quick_step(s, excuses)
                                            : static_cast<Duration>(addresses + 1) *
                                                  (t.dial + t.handshake + t.redial_max + 8 * excuses.slow()));
        if (complete && registered < complete_until && connect.end - complete_until < least)
            return turned_away(complete_until);
    }
    return {};
}

// A newcomer is turned away because another process has its place only if that one lives when the newcomer asks, or if
// something that it sent arrives later.
sim::Violation check_places(const Ledger& ledger, const Excuses& excuses) {
    for (const VoteFact& connect : ledger.votes) {
        if (connect.kind != CallKind::connect || !connect.completion.cause.has(CauseKind::gang_place_taken)) continue;
        const Life& life = ledger.lives[connect.life];
        const bool taken = std::any_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& other) {
            return &other != &life && other.gang.name == life.gang.name && other.gang.place == life.gang.place &&
                   other.asked_at <= connect.end && excuses.heard_until(other.node, other.gone_at) >= life.asked_at;
        });
        if (taken) continue;
        return {"gang",
                formatted("{} was turned away at {} ms because of its place, and nobody has had that since {} ms",
                          ledger.name(connect.life), connect.end / millisecond, life.asked_at / millisecond)};
    }
    return {};
}

}  // namespace

sim::Violation check_admissions(const Scenario& scenario, const Ledger& ledger, const Excuses& excuses) {
    if (ledger.stranger_hellos.empty() && !ledger.lied(0, never)) {
        sim::Violation impatient = check_patience(scenario, ledger, excuses);
        if (!impatient.oracle.empty()) return impatient;
        sim::Violation displaced = check_places(ledger, excuses);
        if (!displaced.oracle.empty()) return displaced;
    }
    if (std::any_of(scenario.faults.begin(), scenario.faults.end(), [](const Fault& fault) { return fault.forever; }))
        return {};
    Terms terms = terms_of(scenario, excuses);
    // A newcomer takes two connections of a member that is alone. With too few of them, newcomers take turns.
    const bool take_turns = scenario.limits.newcomer_links_max < 2 * scenario.peers.size();
    if (take_turns) terms.ready *= static_cast<Duration>(scenario.peers.size() + 1);
    if (excuses.latest_of_all(terms.quiet) <= scenario.timeouts.peer / 8) {
        sim::Violation turned_away = check_turned_away(scenario, ledger);
        if (!turned_away.oracle.empty()) return turned_away;
    }
    std::vector<const VoteFact*> answers;  // answers that show whether a newcomer waits
    std::vector<bool> called(ledger.lives.size(), false);
    for (const VoteFact& vote : ledger.votes) {
        if (vote.kind != CallKind::update_topology && vote.kind != CallKind::are_peers_pending) continue;
        // The master may answer the first call of a newcomer alone.
        const bool first = !called[vote.life];
        called[vote.life] = true;
        if (!first && vote.begin >= terms.quiet + terms.ready && vote.end != open_end &&
            vote.completion.result == Result::success)
            answers.push_back(&vote);
    }
    // If messages are late by much of the peer time-out, the master may count a newcomer as unreachable.
    if (answers.empty() || excuses.latest_of_all(terms.quiet) > scenario.timeouts.peer / 8) return {};
    // A peer that joins or leaves changes between which members the other newcomers wait. They have to connect anew.
    std::erase_if(answers, [&](const VoteFact* answer) {
        return std::any_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& life) {
            const auto within = [&](Instant at, Duration time) {
                return at >= answer->begin - time && at <= answer->end;
            };
            // If they take turns, the update may have admitted those before this one.
            const bool by_it =
                take_turns && life.connected_at >= answer->begin && life.connected_at <= answer->end + terms.hears;
            return by_it || within(life.connected_at, terms.anew) ||
                   within(std::min(life.leaves_at, life.gone_at), terms.ready);
        });
    });
    for (const VoteFact& connect : ledger.votes) {
        if (connect.kind != CallKind::connect) continue;
        const Life& life = ledger.lives[connect.life];
        const Waits waits = waits_of(ledger, excuses, connect);
        const Instant ready = waits.asked == never ? never : std::max(waits.asked, terms.quiet) + terms.ready;
        const Instant waits_until = waits.until;
        for (const VoteFact* answer : answers) {
            if (answer->begin < ready || answer->end >= waits_until) continue;
            const bool update = answer->kind == CallKind::update_topology;
            if (update ? waits_until != open_end && answer->end + terms.hears >= waits_until
                       : answer->completion.pending)
                continue;
            return {"admission",
                    formatted("{} has asked to be a member since {} ms, and {}{} from {} ms to {} ms",
                              ledger.name(connect.life), life.asked_at / millisecond, ledger.name(answer->life),
                              update ? " updated the topology without it" : " was told that nobody waits",
                              answer->begin / millisecond, answer->end / millisecond)};
        }
    }
    return {};
}

}  // namespace pccl::harness
