#include "harness/draw_faults.hpp"

#include "harness/flavours.hpp"
#include "harness/settle.hpp"
#include "harness/triggers.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;
using sim::mix;

namespace {

constexpr std::uint32_t interface_per_million = 150'000;
constexpr std::uint32_t stop_per_million = 60'000;
constexpr std::uint32_t bad_pairs_per_million = 15'000;

Fault timed(FaultKind kind, const Scenario& s, Draw& draw) {
    Fault f;
    f.kind = kind;
    f.at = draw.chance(250'000) ? draw.log_uniform(millisecond, s.chaos_end)
                                : draw.between(0, std::min(s.chaos_end, busy_time(s)));
    f.duration = draw.log_uniform(millisecond, 20 * second);
    f.value = draw.bits();
    if (draw.chance(500'000)) {
        static const std::uint32_t triggers[] = {trigger_of<SendPayload>(),    trigger_of<SendPayload>(),
                                                 trigger_of<ReceivePayload>(), trigger_of<Compute>(),
                                                 trigger_of<SendControl>(),    trigger_of<Persist>()};
        f.trigger = triggers[draw.below(6)];
        f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, 400));
        f.at = draw.log_uniform(microsecond, 30 * millisecond);
    }
    return f;
}

// Mostly a connection of the node where the trigger happened.
std::uint32_t connection_aim(Draw& draw) {
    static constexpr std::uint32_t aims[] = {aim_control,
                                             aim_there,
                                             aim_there | aim_control,
                                             aim_there | aim_control,
                                             aim_there | aim_accepted,
                                             aim_there | aim_dialled};
    return aims[draw.below(6)];
}

// Faults of the master's journal. Those that lose promised records end the run for all members, so they are rare.
void draw_journal_faults(Scenario& s, Draw& draw) {
    static constexpr FaultKind kinds[] = {FaultKind::torn_write,  FaultKind::torn_write,    FaultKind::two_masters,
                                          FaultKind::two_masters, FaultKind::full_disk,     FaultKind::slow_disk,
                                          FaultKind::slow_disk,   FaultKind::older_journal, FaultKind::empty_journal};
    for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
        Fault f = timed(kinds[draw.below(9)], s, draw);
        f.b = static_cast<std::uint32_t>(draw.log_uniform(1, 20));
        f.duration = draw.log_uniform(millisecond, 3 * second);
        if (f.kind == FaultKind::slow_disk) f.value = static_cast<std::uint64_t>(draw.log_uniform(1, 2'000));
        s.faults.push_back(f);
        if (f.kind == FaultKind::older_journal && draw.chance(700'000)) {
            // A peer that restarts as a new process reaches the master before the members that know the lost records.
            f.kind = FaultKind::crash_peer;
            f.a = draw.number(1, static_cast<std::uint32_t>(s.peers.size()));
            f.value |= 2;
            f.at += draw.log_uniform(microsecond, 50 * millisecond);
            f.duration = draw.log_uniform(millisecond, 200 * millisecond);
            s.faults.push_back(f);
        }
    }
}

void draw_strangers(Scenario& s, Draw& draw, std::uint32_t nodes) {
    Draw resets(mix(s.seed, 171));
    for (std::uint32_t i = draw.number(1, 3); i-- != 0;) {
        Fault f = timed(draw.chance(850'000) ? FaultKind::hostile : FaultKind::replayed_hello, s, draw);
        f.a = draw.chance(500'000) ? 0 : draw.number(0, nodes - 1);
        f.b = static_cast<std::uint32_t>(draw.log_uniform(1, 30));
        s.faults.push_back(f);
        if (!resets.chance(500'000)) continue;
        // A member loses its control link while a stranger reports that it cannot be reached.
        f.kind = FaultKind::reset;
        f.at += resets.log_uniform(10 * millisecond, 3 * second);
        f.b = aim_control;
        f.value = resets.bits() & ~(std::uint64_t{3} << 40);
        s.faults.push_back(f);
    }
}

// Chooses the core: some members of one group that no lasting fault may touch, just like the master.
void draw_core(Scenario& s, Draw& draw) {
    if (s.workload.tags == 0) return;
    const GroupId group = s.peers[draw.below(s.peers.size())].group;
    for (std::uint32_t i = 0; i < s.peers.size(); ++i) {
        if (s.peers[i].group == group) s.core.push_back(i + 1);
    }
    while (s.core.size() > 2 && draw.chance(400'000))
        s.core.erase(s.core.begin() + static_cast<std::ptrdiff_t>(draw.below(s.core.size())));
    if (s.core.size() < 2) {
        s.core.clear();
        return;
    }
    s.claim = Claim::core;
}

// Makes some faults last for ever, but only if the core and the master still reach each other.
void make_some_last(Scenario& s, Draw& draw) {
    for (Fault& f : s.faults) {
        if (draw.chance(400'000)) f.forever = may_last(s, f);
    }
}

// The control link of a peer outside the core breaks again and again for ever, each time after so few bytes that the
// peer may never complete a resume.
void draw_lasting_flap(Scenario& s) {
    Draw draw(mix(s.seed, 186));
    if (s.claim != Claim::core || !draw.chance(100'000)) return;
    Fault f = timed(FaultKind::flap, s, draw);
    f.a = 0;
    f.b = draw.number(1, static_cast<std::uint32_t>(s.peers.size()));
    f.value = static_cast<std::uint64_t>(draw.log_uniform(20, 4'000));
    f.forever = true;
    if (may_last(s, f)) s.faults.push_back(f);
}

// Peers join and leave again at once. A member that has just closed a connection because of that loses its control link
// before the ring is complete again. It resumes: the loss of control links alone, however many, must not cost a member.
void draw_ring_changes(Scenario& s, Draw& draw) {
    s.workload.visit_per_mille = draw.number(100, 700);
    for (PeerPlan& plan : s.peers) {
        plan.group = 0;
        plan.rejoins = true;
    }
    sim::NetworkParameters& n = s.world.network;
    for (std::int64_t* rate : {&n.rate_low, &n.rate_high, &n.down_low, &n.down_high, &n.flow_rate}) {
        if (*rate != 0) *rate = std::max<std::int64_t>(*rate, 1'000'000);
    }
    s.faults.clear();
    for (auto i = draw.log_uniform(1, 10); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::reset;
        f.b = aim_control | aim_there;
        f.value = draw.bits();
        f.trigger = trigger_of<CloseLink>();
        f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, 60));
        f.at = draw.between(0, 4 * n.latency_high);
        s.faults.push_back(f);
    }
}

// Removes the faults and the losses of the network, so that only the master can cause the loss of a member.
void clear_paths(Scenario& s) {
    sim::NetworkParameters& n = s.world.network;
    n.stop_faults();
    for (std::int64_t* rate : {&n.rate_low, &n.rate_high, &n.down_low, &n.down_high, &n.flow_rate}) {
        if (*rate != 0) *rate = std::max<std::int64_t>(*rate, 1'000'000);
    }
    s.faults.clear();
}

// Members of one group run operations that last longer than the limit on votes. A member of another group waits for
// them.
void draw_busy_group(Scenario& s, Draw& draw) {
    clear_paths(s);
    s.timeouts.vote = draw.log_uniform(second, 3 * second);
    s.chaos_end = std::max(s.chaos_end, draw.between(10 * second, 30 * second));
    s.peers.resize(3);
    for (PeerPlan& plan : s.peers) {
        plan.group = 0;
        plan.turns = 8;
        plan.stripes = 1;
    }
    s.peers.back().group = 7;
    s.peers.back().turns = 30;
    Workload& w = s.workload;
    w.tags = draw.number(1, 3);
    w.elements_max = draw.number(300, 1'200);
    w.elements_min = w.elements_max / 2;
    w.compute_max = draw.between(300 * millisecond, s.timeouts.vote * 3 / 4);
    w.optimize_per_mille = w.cross_per_mille = 0;
    w.compute_max = std::min(w.compute_max, 600 * millisecond);
    // A window holds a few slices and a round trip is long, so an operation takes seconds.
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = n.latency_high = draw.between(20 * millisecond, 50 * millisecond);
    n.jitter_per_mille = 0;
    n.window_low = n.window_high = draw.number(200, 600);
    // Through such a window, a text as long as a frame would take longer than the limit on votes.
    s.world.long_texts_per_million = 0;
    set_slices(s, draw.number(4, 8) * 8);
}

// Several operations run at a time and some of them fail, while the journal loses its last records. The members that
// resume first have operations aborted during the grace. These decisions take the numbers of the lost ones.
void draw_hidden_loss(Scenario& s, Draw& draw) {
    clear_paths(s);
    for (PeerPlan& plan : s.peers) plan.group = 0;
    s.workload.tags = draw.number(4, 9);
    s.workload.many_window = 0;
    s.limits.concurrent_ops = 16;
    s.world.allocation_fails_per_million = draw.number(50'000, 300'000);
    for (std::uint32_t i = draw.number(1, 3); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::older_journal;
        f.b = draw.number(1, 3);
        f.value = draw.bits() | 1;
        f.duration = draw.log_uniform(millisecond, 300 * millisecond);
        f.trigger = trigger_of<Persist>();
        f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(10, 300));
        f.at = draw.between(0, 4 * s.world.network.latency_high);
        s.faults.push_back(f);
    }
}

// The master freezes, mostly for longer than any time-out that it applies to others. Meanwhile members wait for each
// other's votes under a short limit or, after a restart, for each other to resume. No other node has a fault.
void draw_frozen_master(Scenario& s, Draw& draw, std::uint32_t on) {
    clear_paths(s);
    // A member makes its next call after it got its last answer. Half of the limit leaves room for two round trips, the
    // other half for its work.
    const sim::NetworkParameters& n = s.world.network;
    const Duration round_trip = 2 * n.latency_high * (1000 + n.jitter_per_mille) / 1000;
    s.timeouts.vote = std::max(draw.log_uniform(second, 6 * second), 4 * round_trip);
    s.workload.compute_max = draw.log_uniform(10 * millisecond, s.timeouts.vote / 2);
    if (draw.chance(300'000)) s.workload.cross_per_mille = draw.number(1, 100);
    // Either freezes alone, or each freeze right after a restart, when the members have not resumed yet.
    const bool restarts = (on & class_master) != 0 && draw.chance(600'000);
    Instant at = draw.between(0, s.workload.compute_max * 4);
    Duration away = 0;
    for (std::uint32_t i = draw.number(1, 3); i-- != 0;) {
        Fault f;
        if (restarts) {
            f.kind = FaultKind::crash_master;
            f.at = at;
            f.duration = draw.log_uniform(millisecond, second);
            f.value = draw.bits() | 1;  // its links are reset
            s.faults.push_back(f);
            at += f.duration + draw.log_uniform(microsecond, 4 * s.world.network.latency_high);
            away += f.duration;
        }
        f = Fault{};
        f.kind = FaultKind::pause;
        f.at = at;
        const Duration longest = restarts ? 2 * s.timeouts.grace() : 2 * std::max(s.timeouts.vote, s.timeouts.peer);
        f.duration = draw.log_uniform(s.timeouts.peer / 4, longest);
        if (!restarts && draw.chance(500'000)) f.b = 1;
        s.faults.push_back(f);
        at += f.duration + draw.log_uniform(millisecond, 4 * s.timeouts.vote);
        away += f.duration;
    }
    s.chaos_end = std::max(s.chaos_end, at);
    // No peer gives up the master, so only the master can be the cause of what happens to a peer.
    s.timeouts.master = 2 * away + 12 * (5 * second + s.timeouts.handshake);
}

// A program makes no call for almost the limit on votes, or for much longer. What its peer sends then arrives late, or the
// control link of a member that waits for it breaks again and again.
void draw_vote_limits(Scenario& s, Draw& draw) {
    clear_paths(s);
    const sim::NetworkParameters& n = s.world.network;
    const Duration round_trip = 2 * n.latency_high * (1000 + n.jitter_per_mille) / 1000;
    s.timeouts.vote = std::max(draw.log_uniform(second, 3 * second), 4 * round_trip);
    s.timeouts.peer = std::max(draw.between(2 * second, 5 * second), 8 * round_trip);
    s.timeouts.master = 20 * s.timeouts.peer;
    s.workload.compute_max = std::min(s.workload.compute_max, s.timeouts.vote / 10);
    s.workload.cross_per_mille = 0;
    if (draw.chance(600'000)) s.peers.resize(2);
    for (PeerPlan& plan : s.peers) plan.turns = std::max(plan.turns, 10u);
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    for (std::uint32_t i = draw.number(1, 3); i-- != 0;) {
        Fault idle;
        idle.kind = FaultKind::hang;
        idle.a = draw.number(1, peers);
        idle.trigger = trigger_of<Complete>();
        idle.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(3, 60));
        const bool in_time = draw.chance(500'000);
        const Duration limit = s.timeouts.vote;
        idle.duration =
            in_time ? draw.between(limit * 3 / 4, limit) : draw.between(2 * limit, 4 * limit + 8 * s.timeouts.peer);
        s.faults.push_back(idle);
        Fault late = idle;
        if (in_time) {
            late.kind = FaultKind::clog;
            late.at = draw.between(idle.duration / 2, idle.duration);
            late.duration = draw.between(s.timeouts.peer / 4, s.timeouts.peer * 3 / 4);
        } else {
            late.kind = FaultKind::reset;
            if (draw.chance(500'000)) late.a = 1 + idle.a % peers;
            late.b = aim_control | aim_named;
            late.value = draw.bits();
            late.at = draw.between(0, limit);
            late.duration = 0;
            late.every = draw.between(limit / 4, limit * 7 / 8);
            late.again = static_cast<std::uint32_t>(idle.duration / late.every);
        }
        s.faults.push_back(late);
        s.chaos_end = std::max(s.chaos_end, 2 * idle.duration + 5 * second);
    }
}

// Programs of several members never call again, from the same moment on. The limit on votes must remove all of them: the
// others go on.
void draw_lasting_idlers(Scenario& s, Draw& draw) {
    s.faults.clear();
    while (s.peers.size() < 4) s.peers.push_back(PeerPlan(s.peers.back()));
    for (PeerPlan& plan : s.peers) {
        plan.group = 0;
        plan.rejoins = true;
        plan.turns = std::max(plan.turns, 10u);
    }
    s.core = {1, 2};
    s.claim = Claim::core;
    // Newcomers wait for ever if all members are idle, because no vote is open then. So the core comes first.
    for (std::size_t i = 0; i < s.peers.size(); ++i)
        s.peers[i].start = i < 2 ? 0 : draw.between(500 * millisecond, second);
    Fault idle;
    idle.kind = FaultKind::hang;
    idle.trigger = trigger_of<Complete>();
    idle.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(20, 200));
    idle.duration = 2 * s.timeouts.vote;
    idle.forever = true;
    for (idle.a = 3; idle.a <= s.peers.size(); ++idle.a) s.faults.push_back(idle);
    s.chaos_end = std::max(s.chaos_end, 10 * second);
}

// The port of one member closes: nobody can dial it, but it dials everybody. The others go on without it.
void draw_closed_port(Scenario& s, Draw& draw, std::uint32_t on) {
    clear_paths(s);
    while (s.peers.size() < 3) s.peers.push_back(PeerPlan(s.peers.back()));
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    for (PeerPlan& plan : s.peers) {
        plan.group = 0;
        plan.start = std::min<Duration>(plan.start, 300 * millisecond);
        plan.turns = std::max(plan.turns, 20u);
        plan.rejoins = true;
    }
    s.workload.leave_in_flight_per_mille = s.workload.visit_per_mille = 0;
    s.workload.compute_max = std::max<Duration>(s.workload.compute_max, 20 * millisecond);
    Fault f;
    f.kind = FaultKind::closed_port;
    f.a = draw.number(1, peers);
    f.b = draw.number(0, 1);
    f.at = draw.between(second, 3 * second);
    f.duration = draw.between(2 * s.timeouts.peer, 20 * s.timeouts.peer);
    s.core.clear();
    for (std::uint32_t node = 1; node <= peers; ++node)
        if (node != f.a) s.core.push_back(node);
    s.claim = Claim::core;
    f.forever = (on & class_forever) != 0 && draw.chance(500'000);
    s.faults.push_back(f);
    s.chaos_end = std::max(s.chaos_end, f.at + f.duration + second);
}

// Edges between peers on which each connection opens, but then keeps losing data: by size, by content or by amount.
// Often there is no other fault. Then each call must return within a few peer time-outs.
void draw_impaired_edges(Scenario& s, Draw& draw) {
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    if (peers < 2) return;
    const bool alone = draw.chance(600'000);
    if (alone) {
        sim::NetworkParameters& n = s.world.network;
        n.stop_faults();
        s.faults.clear();
        s.core.clear();
        s.claim = Claim::all_end;
    }
    for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
        static constexpr FaultKind kinds[] = {FaultKind::swallow, FaultKind::garble, FaultKind::snap, FaultKind::snap};
        Fault f;
        const std::uint64_t kind = draw.below(4);
        f.kind = kinds[kind];
        f.a = draw.number(1, peers);
        f.b = 1 + (f.a + draw.number(0, peers - 2)) % peers;
        f.at = draw.chance(300'000) ? 0 : draw.between(0, s.chaos_end);
        f.duration = draw.log_uniform(millisecond, 60 * second);
        // By pattern: some greetings get through, some slices do not.
        f.value = draw.bits() | 1ull << 32;
        if (kind == 0) f.value = static_cast<std::uint64_t>(draw.log_uniform(32, 2 * s.limits.slice_bytes));
        if (kind == 2) f.value = static_cast<std::uint64_t>(draw.log_uniform(100, 8 * s.limits.slice_bytes));
        f.forever = (alone || draw.chance(500'000)) && may_last(s, f);
        s.faults.push_back(f);
        if (draw.chance(200'000)) {
            std::swap(f.a, f.b);
            s.faults.push_back(f);
        }
    }
}

// The operator stops the master, which ends the run, and starts a new run.
void draw_stops(Scenario& s, std::uint32_t on) {
    Draw draw(mix(s.seed, 183));
    if (!(on & class_master) || !draw.chance(stop_per_million)) return;
    for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
        Fault f = timed(FaultKind::stop_master, s, draw);
        f.duration = draw.log_uniform(millisecond, 5 * second);
        s.faults.push_back(f);
    }
}

}  // namespace

bool parts_from_master(FaultKind kind) {
    switch (kind) {
    case FaultKind::crash_peer:
    case FaultKind::aimed_peer:
    case FaultKind::slow_compute:
    case FaultKind::hang: return false;
    default: return !impairs_an_edge(kind);
    }
}

void draw_faults(Scenario& s, Draw& draw, std::uint32_t on) {
    const auto nodes = static_cast<std::uint32_t>(s.peers.size() + 1);
    Draw aims(mix(s.seed, 113));
    if (on & class_partition) {
        for (std::uint32_t i = draw.number(1, 4); i-- != 0;) {
            static constexpr FaultKind kinds[] = {FaultKind::partition, FaultKind::one_way, FaultKind::cut_pair,
                                                  FaultKind::clog, FaultKind::clog};
            Fault f = timed(kinds[draw.below(5)], s, draw);
            f.a = draw.number(0, nodes - 1);
            f.b = draw.number(0, nodes - 1);
            if (f.kind == FaultKind::partition) f.a = draw.number(1, (1u << std::min(nodes, 31u)) - 2);
            if (f.kind == FaultKind::cut_pair && nodes > 2) {
                f.a = draw.number(1, nodes - 1);
                f.b = draw.number(1, nodes - 1);
            }
            s.faults.push_back(f);
        }
        Draw interfaces(mix(s.seed, 244));
        if (interfaces.chance(interface_per_million)) {
            Fault f = timed(FaultKind::interface, s, interfaces);
            f.a = interfaces.number(1, nodes - 1);
            f.b = interfaces.chance(300'000) ? 1 : 0;
            s.faults.push_back(f);
        }
    }
    if (on & class_connection) {
        for (auto i = draw.log_uniform(1, 20); i-- != 0;) {
            static constexpr FaultKind kinds[] = {FaultKind::reset, FaultKind::end_early, FaultKind::half_open,
                                                  FaultKind::stall, FaultKind::stall};
            Fault f = timed(kinds[draw.below(5)], s, draw);
            // Long enough that others resend what is stalled, short enough that no member is removed for it.
            if (f.kind == FaultKind::stall && draw.chance(600'000))
                f.duration = draw.between(s.timeouts.peer / 5, s.timeouts.peer);
            if (f.trigger != 0 && aims.chance(300'000)) f.b = connection_aim(aims);
            s.faults.push_back(f);
        }
    }
    if (on & class_crash) {
        for (std::uint32_t i = draw.number(1, 3); i-- != 0;) {
            Fault f = timed(draw.chance(500'000) ? FaultKind::crash_peer : FaultKind::aimed_peer, s, draw);
            f.a = draw.number(1, nodes - 1);
            f.b = static_cast<std::uint32_t>(draw.log_uniform(1, 60));
            f.duration = draw.log_uniform(millisecond, 5 * second);
            s.faults.push_back(f);
        }
    }
    if (on & class_master) {
        for (std::uint32_t i = draw.number(1, 3); i-- != 0;) {
            Fault f = timed(draw.chance(500'000) ? FaultKind::crash_master : FaultKind::aimed_master, s, draw);
            f.b = static_cast<std::uint32_t>(draw.log_uniform(1, 100));
            f.duration = draw.log_uniform(millisecond, draw.chance(150'000) ? 40 * second : 3 * second);
            s.faults.push_back(f);
        }
    }
    if (on & class_pause) {
        for (std::uint32_t i = draw.number(1, 3); i-- != 0;) {
            Fault f = timed(FaultKind::pause, s, draw);
            f.a = draw.number(0, nodes - 1);
            f.duration = draw.log_uniform(millisecond, 60 * second);
            s.faults.push_back(f);
        }
    }
    if (on & class_corrupt) {
        for (auto i = draw.log_uniform(1, 12); i-- != 0;) s.faults.push_back(timed(FaultKind::corrupt, s, draw));
    }
    if ((on & class_hostile) && draw.chance(600'000)) draw_strangers(s, draw, nodes);
    if ((on & class_journal) && draw.chance(600'000)) draw_journal_faults(s, draw);
    if (on & class_slow) {
        for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
            Fault f = timed(draw.chance(500'000) ? FaultKind::slow_compute : FaultKind::hang, s, draw);
            f.a = draw.number(1, nodes - 1);
            f.value = static_cast<std::uint64_t>(draw.log_uniform(2, 1'000)) - 1;
            f.duration = draw.log_uniform(millisecond, 40 * second);
            s.faults.push_back(f);
        }
    }
    if ((on & class_connection) && draw.chance(250'000)) {
        Fault f = timed(FaultKind::roam, s, draw);
        f.a = draw.number(1, nodes - 1);
        s.faults.push_back(f);
    }
    if ((on & class_partition) && draw.chance(200'000)) {
        Fault f = timed(FaultKind::swizzle, s, draw);
        f.duration = draw.log_uniform(10 * millisecond, 10 * second);
        s.faults.push_back(f);
    }
    if ((on & class_connection) && draw.chance(100'000)) {
        // No other disturbance: the ring changes as peers join and leave, and one link breaks at such a moment. A
        // member that is lost then is lost without a reason.
        sim::NetworkParameters& n = s.world.network;
        n.stop_faults();
        s.faults.clear();
        Fault f = timed(FaultKind::reset, s, draw);
        f.value &= ~(std::uint64_t{3} << 40);  // any connection, busy or not
        f.trigger = trigger_of<CloseLink>();
        f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, 20));
        f.at = draw.log_uniform(10 * microsecond, 2 * n.latency_high + 20 * microsecond);
        s.faults.push_back(f);
        if (aims.chance(700'000)) draw_ring_changes(s, aims);
        s.workload.leave_in_flight_per_mille = std::max(s.workload.leave_in_flight_per_mille, 100u);
    }
    Draw frozen(mix(s.seed, 161));
    if ((on & class_pause) && frozen.chance(80'000)) draw_frozen_master(s, frozen, on);
    Draw limits(mix(s.seed, 165));
    if ((on & class_slow) && s.peers.size() > 1 && limits.chance(40'000)) {
        draw_vote_limits(s, limits);
        Draw idlers(mix(s.seed, 450));
        if (s.workload.tags != 0 && !(on & class_gangs) && idlers.chance(300'000)) draw_lasting_idlers(s, idlers);
    }
    Draw busy(mix(s.seed, 162));
    if ((on & class_slow) && s.peers.size() > 2 && busy.chance(40'000)) draw_busy_group(s, busy);
    Draw hidden(mix(s.seed, 163));
    if ((on & class_journal) && s.peers.size() > 1 && hidden.chance(100'000)) draw_hidden_loss(s, hidden);
    // A gang that loses a member for ever is no core.
    if (draw.chance(600'000) && !(on & class_gangs) && s.core.empty()) draw_core(s, draw);
    if (on & class_forever) make_some_last(s, draw);
    if ((on & class_forever) && (on & class_connection)) draw_lasting_flap(s);
    Draw port(mix(s.seed, 166));
    if ((on & class_partition) && s.peers.size() > 1 && s.workload.tags != 0 && port.chance(40'000))
        draw_closed_port(s, port, on);
    Draw impaired(mix(s.seed, 164));
    if ((on & class_connection) && impaired.chance(150'000)) draw_impaired_edges(s, impaired);
    draw_stuck_disk(s, on);
    draw_stops(s, on);
    std::stable_sort(s.faults.begin(), s.faults.end(), [](const Fault& x, const Fault& y) { return x.at < y.at; });
}

void draw_bad_pairs(Scenario& s, const GeneratorOptions& options, std::uint32_t on) {
    Draw draw(mix(s.seed, 187));
    if (!(on & class_forever) || !(on & class_partition) || options.peers_max < 5 || s.workload.tags == 0 ||
        !draw.chance(bad_pairs_per_million))
        return;
    const std::uint32_t most = options.peers_max < GeneratorOptions{}.peers_max ? options.peers_max : 16;
    const std::uint32_t peers = draw.number(5, most);
    while (s.peers.size() < peers) s.peers.push_back(PeerPlan(s.peers.back()));
    s.world.network.stop_faults();
    s.faults.clear();
    s.core.clear();
    s.claim = Claim::core;
    for (std::uint32_t node = 1; node <= s.peers.size(); ++node) {
        PeerPlan& plan = s.peers[node - 1];
        plan.group = 0;
        plan.rejoins = true;
        plan.turns = std::min(plan.turns, 5u);
        if (draw.chance(300'000)) plan.start = draw.between(0, 2 * second);
        s.core.push_back(node);
    }
    // Only as many as still leave a ring: may_last() rejects the others.
    const std::uint32_t pairs = draw.chance(300'000) ? 6 * peers : 2 * peers;
    for (std::uint32_t i = draw.number(1, pairs); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::cut_pair;
        f.a = draw.number(1, peers);
        f.b = 1 + (f.a + draw.number(0, peers - 2)) % peers;
        f.at = draw.chance(700'000) ? 0 : draw.between(0, s.chaos_end);
        f.duration = second;
        f.forever = true;
        if (may_last(s, f)) s.faults.push_back(f);
    }
    widen_windows(s);
    s.chaos_end = std::max(s.chaos_end, busy_time(s));
}

}  // namespace pccl::harness
