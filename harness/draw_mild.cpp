// Worlds in which a run loses nobody but who died or makes no call for good.
//
// Several faults at once, each of them one that the protocol promises to survive: silence shorter than the peer time-out,
// programs that are late but within the limit on votes, a disk that hangs, a master that runs in short pieces, pairs that
// never connect while a ring of all exists. In other runs an oracle has to forgive a loss that a fault may explain. Here
// it need not: the scenario says how many are removed, and by when.
#include "harness/draw_faults.hpp"
#include "harness/expectations.hpp"
#include "harness/fault_refs.hpp"
#include "harness/mild_world.hpp"
#include "harness/settle.hpp"
#include "harness/triggers.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace pccl::harness {

using namespace core;
using namespace mild;
using sim::Draw;

namespace {

constexpr std::uint32_t mild_per_million = 80'000;
// Connections of a member that close together are those of a dead process. So only those of one kind break in a run.
constexpr std::uint32_t control_of_named = aim_control | aim_named;

// Breaks the connection between a member and the master, again and again.
void break_control(Scenario& s, Draw& draw, std::uint32_t member, Instant at, Duration every_least, Duration every_most,
                   std::uint32_t times) {
    Fault f = fault(FaultKind::reset, at, 0, member, control_of_named);
    f.value = draw.bits();
    f.again = times;
    f.every = draw.log_uniform(every_least, every_most);
    s.faults.push_back(f);
}

// The master runs for a while and stands still for a while, in turns. Returns how many times as long it then takes for
// whatever it waits for.
Duration stutter(Scenario& s, Draw& draw, Instant at, Duration time) {
    const Duration still = share(s.timeouts.peer, draw, 20, 300);
    const Duration runs = share(still, draw, 300, 2'000);
    Fault f = fault(FaultKind::pause, at, still);
    f.every = runs;
    f.again = static_cast<std::uint32_t>(time / (still + runs));
    s.faults.push_back(f);
    return (still + runs) / runs + 1;
}

// What disturbs the master, or those who must not be harmed. Returns by how much all takes longer, as a factor.
Duration disturb(Scenario& s, Draw& draw, std::uint32_t innocent, Instant at, Duration time) {
    const std::uint64_t kind = draw.below(4);
    if (kind == 0) return stutter(s, draw, at, 8 * time);
    if (kind == 1) {
        const Duration least = std::max<Duration>(s.timeouts.peer / 8, 200 * millisecond);
        break_control(s, draw, innocent, at, least, time / 2, draw.number(3, 30));
        return 2;
    }
    if (kind == 2) {
        s.faults.push_back(fault(FaultKind::stuck_disk, at + share(s.timeouts.peer, draw, 0, 500),
                                 share(s.timeouts.peer, draw, 100, 1'500)));
        return 3;
    }
    return 1;
}

void set_vote_limit(Scenario& s, Draw& draw) { s.timeouts.vote = draw.between(2, 8) * second; }

// Programs that are late, but within the limit on votes. What they say and hear is late, too, for which they are not to
// blame.
void draw_late_programs(Scenario& s, Draw& draw) {
    begin_anew(s, draw, draw.number(2, 5));
    set_vote_limit(s, draw);
    const Duration limit = s.timeouts.vote;
    s.timeouts.peer = share(limit, draw, 1'500, 4'000);
    Instant at = begun + limit;
    std::uint32_t member = 0;
    for (std::uint32_t i = draw.number(1, 4); i-- != 0; at += share(limit, draw, 500, 4'000)) {
        const std::uint32_t before = std::exchange(member, draw.number(1, members_of(s)));
        if (member == before) at += limit;  // its calls in between are seen
        s.faults.push_back(fault(FaultKind::hang, at, share(limit, draw, 200, 850), member));
        if (draw.chance(500'000)) continue;
        // The answer to its last call, or its next vote.
        const Duration late = share(s.timeouts.peer, draw, 100, 450);
        const bool answer = draw.chance(700'000);
        const Instant from = answer ? at - late + share(limit, draw, 0, 500) : at + share(limit, draw, 0, 800);
        s.faults.push_back(fault(FaultKind::stall, std::max(from, begun), late, member, control_of_named));
        s.faults.back().value = draw.bits();
    }
    if (draw.chance(300'000))
        break_control(s, draw, draw.number(1, members_of(s)), begun, limit / 8, limit, draw.number(1, 20));
    lasts(s, at + 2 * limit, 0);
    s.workload.compute_max = std::min(s.workload.compute_max, limit / 16);
    if (!draw.chance(300'000)) return;
    // Copies that take longer than the limit together, also those of a newcomer.
    s.world.compute_max = share(limit, draw, 100, 450);
    s.workload.tags = draw.number(1, 6);
    s.workload.sync = true;
    s.limits.copy_bytes = 1'024;
    s.limits.copies_in_flight = 1;
    s.workload.entries = draw.number(1, 2);
    s.workload.state_elements_max = 128 * draw.number(4, 24);
    s.workload.state_elements_min = s.workload.state_elements_max / 2;
    if (draw.chance(700'000)) s.peers.back().start = begun + share(limit, draw, 0, 1'000);
}

// A program makes no call any more. It is removed, whatever happens beside it.
void draw_overdue_program(Scenario& s, Draw& draw) {
    begin_anew(s, draw, draw.number(3, 5));
    set_vote_limit(s, draw);
    const Duration limit = s.timeouts.vote;
    const std::uint32_t victim = draw.number(1, members_of(s));
    const Duration usual = limit + 4 * s.timeouts.peer;
    const Duration longest = usual * disturb(s, draw, 1 + victim % members_of(s), begun, usual);
    Fault hang = fault(FaultKind::hang, begun + draw.between(0, second), longest + 10 * second, victim);
    s.faults.push_back(hang);
    lasts(s, hang.at + longest, 1);
    s.workload.compute_max = std::min(s.workload.compute_max, limit / 16);
}

// A process dies, for good.
void draw_death(Scenario& s, Draw& draw) {
    begin_anew(s, draw, draw.number(3, 6));
    const std::uint32_t victim = draw.number(1, members_of(s));
    const Duration usual = 3 * s.timeouts.peer + second;
    Fault dies = fault(FaultKind::crash_peer, begun + draw.between(0, 2 * second), 0, victim);
    dies.value = draw.number(0, 1);
    dies.forever = true;
    const Duration longest = usual * disturb(s, draw, 1 + victim % members_of(s), begun, usual);
    s.faults.push_back(dies);
    lasts(s, dies.at + longest, 1);
    s.claim = Claim::core;
    for (std::uint32_t node = 1; node <= members_of(s); ++node) {
        if (node != victim) s.core.push_back(node);
    }
}

// All first members die at once, perhaps in the middle of something, while the master is away or before it is back. Others
// come at that time.
void draw_deaths_of_all(Scenario& s, Draw& draw) {
    begin_anew(s, draw, draw.number(3, 6));
    const std::uint32_t dying = draw.number(1, members_of(s) - 1);
    const Instant at = begun + draw.between(0, second);
    s.workload.sync = draw.chance(700'000);
    static constexpr Phase phases[] = {Phase::sync_vote, Phase::sync_plan, Phase::start_vote, Phase::update_vote,
                                       Phase::start_told};
    const bool amid = draw.chance(500'000);
    if (!amid && s.workload.sync) {
        // A synchronization is under way most of the time.
        s.world.network.rate_low = s.world.network.rate_high = draw.log_uniform(20'000, 200'000);
        s.limits.chunk_bytes = 8 * draw.number(25, 200);
        s.workload.own_entries_per_mille = 500;
        s.workload.drift_per_mille = 500;
        s.workload.state_elements_max = draw.number(300, 2'000);
    }
    for (std::uint32_t node = 1; node <= members_of(s); ++node) {
        if (node > dying) {
            s.peers[node - 1].start = at - draw.log_uniform(millisecond, second);
            continue;
        }
        Fault dies = fault(FaultKind::crash_peer, at + draw.log_uniform(microsecond, 100 * millisecond), 0, node);
        dies.value = draw.number(0, 3);
        dies.duration = draw.log_uniform(millisecond, 3 * second);
        if (amid) dies.at = draw.log_uniform(microsecond, 20 * millisecond);
        if (amid && node != 1) dies.follows = 1;
        if (amid && node == 1) {
            dies.trigger = trigger_of(phases[draw.below(std::size(phases))]);
            dies.trigger_count = draw.number(2, 30);
        }
        s.faults.push_back(dies);
    }
    if (draw.chance(600'000)) {
        s.faults.push_back(fault(FaultKind::crash_master, at + draw.log_uniform(millisecond, 100 * millisecond),
                                 draw.log_uniform(millisecond, 2 * second)));
        if (amid) s.faults.back().at = draw.log_uniform(microsecond, 50 * millisecond), s.faults.back().follows = 1;
    }
    lasts(s, at + 6 * s.timeouts.peer + s.timeouts.grace());
}

// The disk of the master hangs: nothing is decided until it answers, and nobody is to blame.
void draw_hanging_disk(Scenario& s, Draw& draw) {
    begin_anew(s, draw, draw.number(2, 5));
    const Instant at = draw.chance(200'000) ? 0 : begun;
    Duration hangs = share(s.timeouts.peer, draw, 200, 3'000);
    // Who founds the run must not give up before it is welcome.
    if (at == 0) hangs = std::min(hangs, s.timeouts.handshake / 5 * 4);
    s.timeouts.master = std::max(s.timeouts.master, 2 * hangs + 8 * s.timeouts.peer);
    s.faults.push_back(fault(FaultKind::stuck_disk, at, hangs));
    if (draw.chance(500'000) && at != 0)
        break_control(s, draw, draw.number(1, members_of(s)), at + share(hangs, draw, 0, 500), 30 * millisecond,
                      std::max(hangs / 4, 40 * millisecond), draw.number(0, 8));
    const bool crowd = draw.chance(150'000);
    PeerPlan newcomer = s.peers.front();
    for (std::uint32_t i = crowd ? draw.number(10, 40) : draw.number(0, 4); i-- != 0;) {
        newcomer.start = at + share(hangs, draw, 0, 1'000);
        if (crowd) newcomer.turns = 1;
        s.peers.push_back(newcomer);
    }
    if (draw.chance(300'000)) s.world.network.window_low = s.world.network.window_high = draw.number(512, 4'096);
    lasts(s, at + hangs + 4 * s.timeouts.peer + (crowd ? 10 * second : 0), 0);
}

// Some pairs never connect, or do not any more. A ring of all members exists: each reaches at least half of the others, or
// there is a ring without the edges of the one that reaches fewer.
void draw_sparse_edges(Scenario& s, Draw& draw) {
    begin_anew(s, draw, draw.chance(600'000) ? draw.number(5, 12) : draw.number(13, 18));
    const std::uint32_t members = members_of(s);
    const Instant at = draw.chance(300'000) ? 0 : begun;
    for (PeerPlan& peer : s.peers) peer.stripes = 1;
    const bool one_way = draw.chance(300'000);
    bool few = false;  // so that the search may take long
    const auto cut = [&](std::uint32_t a, std::uint32_t b) {
        Fault f = fault(one_way ? FaultKind::one_way : FaultKind::cut_pair, at, millisecond, a, b);
        f.forever = true;
        s.faults.push_back(f);
    };
    if (draw.chance(400'000)) {
        // One member that reaches only some of the others, who all reach each other.
        const std::uint32_t lonely = draw.chance(500'000) ? 1 : draw.number(1, members);
        std::uint32_t left = draw.number(1, members - 3);
        for (std::uint32_t i = 1; i < members && left != 0; ++i, --left) cut(1 + (lonely - 1 + i) % members, lonely);
    } else if (draw.chance(400'000) && members <= 12) {
        // A ring of all, and few other pairs.
        std::vector<std::uint32_t> ring(members);
        for (std::uint32_t i = 0; i < members; ++i) ring[i] = i + 1;
        for (std::uint32_t i = members; i > 1; --i) std::swap(ring[i - 1], ring[draw.below(i)]);
        for (std::uint32_t i = 0; i < members; ++i) {
            for (std::uint32_t j = i + 2; j < members; ++j) {
                if ((i != 0 || j != members - 1) && draw.chance(650'000)) cut(ring[i], ring[j]);
            }
        }
        few = true;
        for (Fault& f : s.faults) f.at = begun;  // not each part of them has a ring
    } else {
        // Dirac: each reaches half of all.
        std::vector<std::uint32_t> missing(members + 1);
        const std::uint32_t most = members - 1 - (members + 1) / 2;
        for (std::uint32_t tries = members * members; tries-- != 0;) {
            const std::uint32_t a = draw.number(1, members), b = draw.number(1, members);
            const bool known = std::any_of(s.faults.begin(), s.faults.end(), [&](const Fault& f) {
                return (f.a == a && f.b == b) || (f.a == b && f.b == a);
            });
            if (a == b || known || missing[a] == most || missing[b] == most) continue;
            ++missing[a], ++missing[b];
            cut(a, b);
        }
    }
    for (std::uint32_t node = 1; node <= members; ++node) s.core.push_back(node);
    s.claim = Claim::core;
    lasts(s, begun + 12 * s.timeouts.peer);
    if (!few) s.expectations.push_back(removals(0));
}

// Edges are down for less than a peer time-out, and perhaps one pair never connects.
void draw_short_outages(Scenario& s, Draw& draw) {
    const bool one_is_missing = draw.chance(500'000);
    begin_anew(s, draw, one_is_missing ? draw.number(4, 5) : draw.number(3, 6));
    const std::uint32_t members = members_of(s);
    s.timeouts.dial = s.timeouts.peer / 4;  // an outage ends in the middle of one
    std::uint32_t a = draw.number(1, members);
    if (one_is_missing) {
        Fault f = fault(FaultKind::cut_pair, draw.chance(500'000) ? 0 : begun, millisecond, a,
                        1 + (a - 1 + draw.number(1, members - 1)) % members);
        f.forever = true;
        s.faults.push_back(f);
    }
    Instant at = begun;
    for (std::uint32_t i = draw.number(1, 4); i-- != 0; at += share(s.timeouts.peer, draw, 0, 3'000)) {
        const std::uint32_t b = 1 + (a - 1 + draw.number(1, members - 1)) % members;
        const Duration time = share(s.timeouts.peer, draw, 50, 700);
        static constexpr FaultKind kinds[] = {FaultKind::cut_pair, FaultKind::one_way, FaultKind::closed_port};
        s.faults.push_back(fault(kinds[draw.below(std::size(kinds))], at, time, a, b));
        if (draw.chance(500'000)) a = draw.number(1, members);
    }
    lasts(s, at + 6 * s.timeouts.peer, 0);
}

// Nodes that stand still for a moment, again and again.
void draw_stutter(Scenario& s, Draw& draw) {
    begin_anew(s, draw, draw.number(2, 6));
    const Duration time = 8 * s.timeouts.peer;
    stutter(s, draw, begun, time);
    if (draw.chance(500'000)) s.faults.back().a = draw.number(0, members_of(s));
    if (draw.chance(300'000)) {
        // Never both of the same node, which might then never run.
        stutter(s, draw, begun, time);
        s.faults.back().a = (s.faults.front().a + draw.number(1, members_of(s))) % (members_of(s) + 1);
    }
    lasts(s, begun + time, 0);
}

// The master restarts quickly at the address at which its members know it. The others that they have never answer.
void draw_silent_addresses(Scenario& s, Draw& draw) {
    begin_anew(s, draw, draw.number(2, 5));
    s.timeouts.dial = draw.log_uniform(second, 30 * second);
    const std::size_t others = draw.number(1, 3);
    const bool first = draw.chance(700'000);
    for (PeerPlan& peer : s.peers) {
        peer.masters.assign(others + 1, MasterAddress::silent);
        peer.masters[first ? 0 : draw.below(others + 1)] = MasterAddress::right;
    }
    const Instant connected = begun + (first ? 0 : static_cast<Duration>(others) * (s.timeouts.dial + 2 * second));
    Fault f = fault(FaultKind::crash_master, connected, draw.log_uniform(millisecond, 300 * millisecond));
    f.value = 1;
    f.again = draw.number(0, 2);
    f.every = share(s.timeouts.grace(), draw, 1'500, 4'000);
    s.faults.push_back(f);
    lasts(s, connected + (f.again + 1) * (f.every + f.duration) + s.timeouts.grace(), 0);
}

// The connection of a member to the master breaks after so many bytes, each time and for good. The others go on.
void draw_flapping_control(Scenario& s, Draw& draw) {
    begin_anew(s, draw, draw.number(3, 5));
    const std::uint32_t victim = draw.number(1, members_of(s));
    Fault f = fault(FaultKind::flap, begun, millisecond, 0, victim);
    f.value = static_cast<std::uint64_t>(draw.log_uniform(60, 2'000));
    f.forever = true;
    s.faults.push_back(f);
    for (std::uint32_t node = 1; node <= members_of(s); ++node) {
        if (node != victim) s.core.push_back(node);
    }
    s.claim = Claim::core;
    lasts(s, begun + 6 * s.timeouts.peer);
}

}  // namespace

void draw_mild(Scenario& s, const GeneratorOptions& options, std::uint32_t on) {
    Draw draw(sim::mix(s.seed, 286));
    const bool alone = options.classes == class_mild;
    if (!(on & class_mild) || options.peers_max < GeneratorOptions{}.peers_max) return;
    if (!(draw.chance(mild_per_million) || alone)) return;
    using Theme = void (*)(Scenario&, Draw&);
    // Runs with narrow paths have few events.
    static constexpr Theme themes[] = {draw_late_programs,
                                       draw_overdue_program,
                                       draw_death,
                                       draw_deaths_of_all,
                                       draw_hanging_disk,
                                       draw_sparse_edges,
                                       draw_short_outages,
                                       draw_stutter,
                                       draw_short_outages,
                                       draw_silent_addresses,
                                       draw_flapping_control,
                                       draw_narrow_holders,
                                       draw_narrow_edge,
                                       draw_narrow_edge,
                                       draw_narrow_edge,
                                       draw_second_slices,
                                       draw_stripe_that_stalls,
                                       draw_slices_before_their_start};
    themes[draw.below(std::size(themes))](s, draw);
    sort_by_time(s.faults);
}

}  // namespace pccl::harness
