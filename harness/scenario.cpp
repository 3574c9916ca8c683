#include "harness/scenario.hpp"

#include "harness/flavours.hpp"
#include "harness/settle.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;
using sim::mix;

namespace {

constexpr std::uint32_t stop_per_million = 60'000;
constexpr std::uint32_t several_masters_per_million = 200'000;
// Not yet: a member that dials addresses at which nobody answers comes back later than a restarted master waits for it.
constexpr std::uint32_t silent_among_faults_per_million = 0;
constexpr std::uint32_t advertised_per_million = 200'000;
constexpr std::uint32_t edge_of_limit_per_million = 100'000;

void draw_network(Scenario& s, Draw& draw, std::uint32_t on) {
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = n.latency_high = draw.log_uniform(50 * microsecond, 2 * millisecond);
    n.rate_low = n.rate_high = 1'000'000'000;
    n.window_low = n.window_high = 65'536;
    if (on & class_latency) {
        n.latency_low = draw.log_uniform(100 * microsecond, 20 * millisecond);
        n.latency_high = draw.log_uniform(n.latency_low, 300 * millisecond);
        n.jitter_per_mille = draw.chance(500'000) ? draw.number(0, 1000) : 0;
        n.tail_per_million = draw.chance(300'000) ? draw.number(0, 3000) : 0;
        n.tail_max = draw.log_uniform(10 * millisecond, 3 * second);
        s.world.compute_max = draw.log_uniform(microsecond, 20 * millisecond);
    }
    if (on & class_bandwidth) {
        n.rate_low = draw.log_uniform(20'000, draw.chance(500'000) ? 1'000'000 : 1'250'000'000);
        n.rate_high = draw.log_uniform(n.rate_low, 1'250'000'000);
        n.window_low = draw.log_uniform(64, draw.chance(500'000) ? 1'000 : 65'536);
        n.window_high = draw.log_uniform(n.window_low, 1 << 18);
    }
    if (on & class_segmentation) {
        n.split_per_million = static_cast<std::uint32_t>(draw.log_uniform(1'000, 500'000));
        n.tiny_read_per_million = static_cast<std::uint32_t>(draw.log_uniform(1'000, 300'000));
    }
    if (on & class_connection) {
        if (draw.chance(500'000)) n.refuse_per_million = static_cast<std::uint32_t>(draw.log_uniform(1'000, 200'000));
        if (draw.chance(300'000))
            n.black_hole_per_million = static_cast<std::uint32_t>(draw.log_uniform(1'000, 100'000));
        if (draw.chance(300'000))
            n.accept_close_per_million = static_cast<std::uint32_t>(draw.log_uniform(1'000, 100'000));
    }
    if (on & class_clock) {
        s.world.drift_ppm = draw.number(0, 1000);
        s.world.timer_late_max = draw.log_uniform(10 * microsecond, 300 * millisecond);
    }
    if (on & class_master) s.world.disk_high = draw.log_uniform(100 * microsecond, 200 * millisecond);
}

void draw_limits(Scenario& s, Draw& draw, std::uint32_t on) {
    Limits& l = s.limits;
    l.slice_bytes = static_cast<std::uint32_t>(draw.log_uniform(16, 4096)) / 8 * 8;
    l.eager_bytes = std::max(l.slice_bytes, static_cast<std::uint32_t>(draw.log_uniform(64, 16'384)));
    l.chunk_bytes = static_cast<std::uint32_t>(draw.log_uniform(16, 4096)) / 8 * 8;
    l.concurrent_ops = draw.number(1, 16);
    l.scratch_bytes = 1u << 16;
    l.payload_bytes_max = 4096;
    l.control_bytes_max = 1u << 16;
    if (on & class_limits) {
        if (draw.chance(500'000)) l.concurrent_ops = 1;
        if (draw.chance(500'000)) l.eager_bytes = l.slice_bytes;
        if (draw.chance(500'000)) l.min_slots = 1 + draw.number(0, 2);
        if (draw.chance(500'000)) l.scratch_bytes = l.slice_bytes * l.min_slots;
        if (draw.chance(500'000)) l.chunks_in_flight = 1;
        if (draw.chance(500'000)) l.hashes_in_flight = 1;
        if (draw.chance(300'000))
            s.world.allocation_fails_per_million = static_cast<std::uint32_t>(draw.log_uniform(500, 50'000));
    }
    s.timeouts.peer = draw.log_uniform(second, 10 * second);
    s.timeouts.master = draw.log_uniform(5 * second, 30 * second);
    if ((on & class_limits) && draw.chance(100'000)) s.timeouts.master = 0;
}

void draw_workload(Scenario& s, Draw& draw, std::uint32_t on, bool allow_sync) {
    Workload& w = s.workload;
    w.pump = draw.chance(400'000);
    w.sync = draw.chance(700'000) && allow_sync;
    w.tags = draw.chance(150'000) ? 0 : static_cast<std::uint32_t>(draw.log_uniform(1, 9));
    w.elements_max = static_cast<std::uint32_t>(draw.log_uniform(1, draw.chance(200'000) ? 4000 : 500));
    w.exact = draw.chance(750'000);
    w.entries = draw.number(1, 4);
    if (draw.chance(300'000)) w.own_entries_per_mille = 400;
    // Now and then applications compute for so long that silence and resumption have their time.
    w.compute_max = draw.chance(150'000) ? draw.log_uniform(300 * millisecond, 3 * second)
                                         : draw.log_uniform(10 * microsecond, 100 * millisecond);
    w.in_place_per_mille = draw.chance(500'000) ? 500 : draw.chance(500'000) ? 0 : 1000;
    if (on & class_application) {
        if (draw.chance(300'000)) w.mismatch_per_mille = draw.number(1, 60);
        if (draw.chance(300'000)) w.twice_per_mille = draw.number(1, 300);
        if (draw.chance(300'000)) w.leave_in_flight_per_mille = draw.number(1, 100);
        if (draw.chance(300'000)) w.drift_per_mille = draw.number(1, 300);
    }
}

void draw_peers(Scenario& s, Draw& draw, std::uint32_t on, std::uint32_t peers_max) {
    static constexpr std::uint32_t usual[] = {2, 2, 2, 3, 3, 3, 4, 4};
    std::uint32_t count = usual[draw.below(8)];
    std::uint32_t groups = 1;
    std::uint32_t stripes = draw.chance(500'000) ? 1 : draw.number(2, 4);
    if (on & class_shape) {
        if (draw.chance(300'000)) count = draw.number(1, 9);
        if (draw.chance(400)) count = static_cast<std::uint32_t>(draw.log_uniform(12, 120));
        groups = draw.chance(400'000) ? draw.number(1, 3) : 1;
    }
    count = std::min(count, peers_max);
    const Duration spread = draw.log_uniform(millisecond, 200 * millisecond);
    const bool late = draw.chance(500'000);
    for (std::uint32_t i = 0; i < count; ++i) {
        PeerPlan plan;
        plan.start = late && i >= 2 ? draw.log_uniform(millisecond, 2 * second) : draw.between(0, spread);
        plan.group = static_cast<GroupId>(draw.below(groups));
        plan.stripes = stripes;
        plan.turns = draw.number(3, 14);
        plan.rejoins = draw.chance(800'000);
        s.peers.push_back(plan);
    }
}

template <class T>
std::uint32_t trigger_of() {
    return static_cast<std::uint32_t>(sim::effect_index<T>() + 1);
}

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

// Mostly at the node where something has just happened.
std::uint32_t connection_aim(Draw& draw) {
    static constexpr std::uint32_t aims[] = {aim_control, aim_there, aim_there | aim_control, aim_there | aim_control,
                                             aim_there | aim_accepted};
    return aims[draw.below(5)];
}

// The ways a journal can disappoint its master. Those that lose what was promised end the run for all, so they are rare.
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
            // Somebody who is new meets the master before those who know better.
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
        // A member loses its control link while somebody says that it is not to be reached.
        f.kind = FaultKind::reset;
        f.at += resets.log_uniform(10 * millisecond, 3 * second);
        f.b = aim_control;
        f.value = resets.bits() & ~(std::uint64_t{3} << 40);
        s.faults.push_back(f);
    }
}

// Whom no lasting fault may touch: some members of one group, with the master.
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

// Some faults never heal, as long as the core and the master stay whole among themselves.
void make_some_last(Scenario& s, Draw& draw) {
    for (Fault& f : s.faults) {
        if (draw.chance(400'000)) f.forever = may_last(s, f);
    }
}

// Members come and go at once, and who has just closed a connection for it loses its link to the master before the ring is
// whole again. It resumes: a control link alone is no reason to lose anybody, however many of them break.
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

// Only the master is to blame for whoever is lost: paths lose nothing, and there are no faults.
void clear_paths(Scenario& s) {
    sim::NetworkParameters& n = s.world.network;
    n.tail_per_million = n.refuse_per_million = n.black_hole_per_million = n.accept_close_per_million = 0;
    for (std::int64_t* rate : {&n.rate_low, &n.rate_high, &n.down_low, &n.down_high, &n.flow_rate}) {
        if (*rate != 0) *rate = std::max<std::int64_t>(*rate, 1'000'000);
    }
    s.faults.clear();
}

// Members of one group whose operations last longer than the limit on votes, and one of another group that waits for them.
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
    // A window holds a few slices and a round trip is long: an operation takes seconds.
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = n.latency_high = draw.between(20 * millisecond, 50 * millisecond);
    n.jitter_per_mille = 0;
    n.window_low = n.window_high = draw.number(200, 600);
    // A text as long as a frame would take longer through it than the limit on votes.
    s.world.long_texts_per_million = 0;
    s.limits.slice_bytes = draw.number(4, 8) * 8;
}

// Several operations at a time of which some fail, and a journal that loses the end of what was told: members that come
// back first have operations aborted during the grace, which takes the numbers of the lost decisions.
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

// A master that freezes, mostly for longer than any time-out that it has for others, while members wait for each other's
// votes under a short limit or, after a restart, for each other's return. Nobody else has a fault.
void draw_frozen_master(Scenario& s, Draw& draw, std::uint32_t on) {
    clear_paths(s);
    // A member calls after it got its last answer, so half of the limit leaves room for two round trips and its work.
    const sim::NetworkParameters& n = s.world.network;
    const Duration round_trip = 2 * n.latency_high * (1000 + n.jitter_per_mille) / 1000;
    s.timeouts.vote = std::max(draw.log_uniform(second, 6 * second), 4 * round_trip);
    s.workload.compute_max = draw.log_uniform(10 * millisecond, s.timeouts.vote / 2);
    if (draw.chance(300'000)) s.workload.cross_per_mille = draw.number(1, 100);
    // Freezes alone, or each of them right behind a restart: the members have not come back yet.
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
    // Nobody gives the master up: what happens to a peer is the master's doing.
    s.timeouts.master = 2 * away + 12 * (5 * second + s.timeouts.handshake);
}

// Edges between peers that lose for ever by size, by content or by amount, though each connection opens. Often nothing else
// happens: then each call has to return within a few peer time-outs.
void draw_impaired_edges(Scenario& s, Draw& draw) {
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    if (peers < 2) return;
    const bool alone = draw.chance(600'000);
    if (alone) {
        sim::NetworkParameters& n = s.world.network;
        n.tail_per_million = n.refuse_per_million = n.black_hole_per_million = n.accept_close_per_million = 0;
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
        // Some greetings get through, some slices do not.
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

// The operator ends the run and begins another one.
void draw_stops(Scenario& s, std::uint32_t on) {
    Draw draw(mix(s.seed, 183));
    if (!(on & class_master) || !draw.chance(stop_per_million)) return;
    for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
        Fault f = timed(FaultKind::stop_master, s, draw);
        f.duration = draw.log_uniform(millisecond, 5 * second);
        s.faults.push_back(f);
    }
}

// Whether it may end a connection with the master.
bool parts_from_master(FaultKind kind) {
    switch (kind) {
    case FaultKind::crash_peer:
    case FaultKind::aimed_peer:
    case FaultKind::slow_compute:
    case FaultKind::hang: return false;
    default: return !impairs_an_edge(kind);
    }
}

// Several addresses of the master, of which some are of no use; peers that are not reached where they dial from.
void draw_addresses(Scenario& s, std::uint32_t on) {
    if (!(on & class_shape)) return;
    Draw draw(mix(s.seed, 182));
    const sim::NetworkParameters& n = s.world.network;
    const bool calm =
        n.refuse_per_million + n.black_hole_per_million + n.accept_close_per_million == 0 &&
        std::none_of(s.faults.begin(), s.faults.end(), [](const Fault& f) { return parts_from_master(f.kind); });
    if (draw.chance(several_masters_per_million)) {
        for (PeerPlan& plan : s.peers) {
            if (draw.chance(400'000)) continue;
            for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
                const auto at = static_cast<std::ptrdiff_t>(draw.below(plan.masters.size() + 1));
                const bool dead = draw.chance(500'000) || (!calm && !draw.chance(silent_among_faults_per_million));
                plan.masters.insert(plan.masters.begin() + at, dead ? MasterAddress::dead : MasterAddress::silent);
            }
        }
    }
    Draw gateways(mix(s.seed, 184));
    // Who moves does not stay reachable at the address that it tells.
    const bool roams =
        std::any_of(s.faults.begin(), s.faults.end(), [](const Fault& fault) { return fault.kind == FaultKind::roam; });
    if (roams || !gateways.chance(advertised_per_million)) return;
    for (PeerPlan& plan : s.peers) plan.advertises = gateways.chance(700'000);
}

// Limits that are just reached.
void draw_edges_of_limits(Scenario& s, std::uint32_t on) {
    Draw draw(mix(s.seed, 185));
    if (!(on & class_limits)) return;
    Limits& l = s.limits;
    Timeouts& t = s.timeouts;
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    std::uint32_t stripes = 1;
    for (const PeerPlan& plan : s.peers) stripes = std::max(stripes, plan.stripes);
    const auto tight = [&] { return draw.chance(edge_of_limit_per_million); };
    if (tight()) l.peers_max = peers + draw.number(0, 2);
    if (tight()) l.stripes_max = stripes;
    if (tight()) l.tags_max = std::max(s.workload.tags, 1u);
    if (tight()) l.entries_max = std::max(s.workload.entries, 1u);
    if (tight()) l.revision_max = 1'000'000;
    if (tight()) l.key_bytes_max = std::max(s.workload.key_bytes, 16u);
    // A quantized slice may be longer than one that is not, with its parameters.
    if (tight() && s.workload.quantized_per_mille == 0) l.payload_bytes_max = std::max(l.slice_bytes, l.chunk_bytes);
    if (tight()) {
        // Longer than a path takes, there and back.
        const sim::NetworkParameters& n = s.world.network;
        const Duration round_trip = 2 * n.latency_high * (1000 + n.jitter_per_mille) / 1000;
        t.dial = std::max(draw.log_uniform(second, 6 * second), 2 * round_trip + 4 * s.world.timer_late_max);
    }
    if (tight()) {
        t.redial_min = draw.log_uniform(5 * millisecond, 200 * millisecond);
        t.redial_max = std::max(t.redial_min, draw.log_uniform(200 * millisecond, 2 * second));
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
    }
    if (on & class_connection) {
        for (auto i = draw.log_uniform(1, 20); i-- != 0;) {
            static constexpr FaultKind kinds[] = {FaultKind::reset, FaultKind::end_early, FaultKind::half_open,
                                                  FaultKind::stall, FaultKind::stall};
            Fault f = timed(kinds[draw.below(5)], s, draw);
            // Long enough that others send again what is stuck, short enough that nobody is removed for it.
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
        // Nothing but a ring that changes as peers come and go, and one link that breaks at such a moment: whoever is lost
        // then is lost without a reason.
        sim::NetworkParameters& n = s.world.network;
        n.tail_per_million = n.refuse_per_million = n.black_hole_per_million = n.accept_close_per_million = 0;
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
    Draw busy(mix(s.seed, 162));
    if ((on & class_slow) && s.peers.size() > 2 && busy.chance(40'000)) draw_busy_group(s, busy);
    Draw hidden(mix(s.seed, 163));
    if ((on & class_journal) && s.peers.size() > 1 && hidden.chance(100'000)) draw_hidden_loss(s, hidden);
    if (draw.chance(600'000)) draw_core(s, draw);
    if (on & class_forever) make_some_last(s, draw);
    Draw impaired(mix(s.seed, 164));
    if ((on & class_connection) && impaired.chance(150'000)) draw_impaired_edges(s, impaired);
    draw_stuck_disk(s, on);
    draw_stops(s, on);
    std::stable_sort(s.faults.begin(), s.faults.end(), [](const Fault& x, const Fault& y) { return x.at < y.at; });
}

}  // namespace

static Scenario generate(std::uint64_t seed, const GeneratorOptions& options, sim::Choices* choices) {
    Scenario s;
    s.seed = seed;
    Draw classes(mix(seed, 100), choices), network(mix(seed, 101), choices), limits(mix(seed, 102), choices),
        workload(mix(seed, 103), choices), peers(mix(seed, 104), choices), faults(mix(seed, 105), choices);
    const auto on = static_cast<std::uint32_t>(classes.bits()) & options.classes;
    s.chaos_end = classes.log_uniform(300 * millisecond, 12 * second);
    draw_network(s, network, on);
    draw_limits(s, limits, on);
    draw_workload(s, workload, on, (options.classes & class_sync) != 0);
    draw_peers(s, peers, on, options.peers_max);
    // Slow links and slices that take long on them: faults fall into the middle of frames.
    if ((on & class_bandwidth) && network.chance(500'000)) {
        sim::NetworkParameters& n = s.world.network;
        n.rate_low = network.log_uniform(10'000, 200'000);
        n.rate_high = 2 * n.rate_low;
        n.window_low = network.log_uniform(100, 1'000);
        n.window_high = network.log_uniform(n.window_low, 4'000);
        s.limits.slice_bytes = network.number(64, 512) * 8;
        s.limits.eager_bytes = std::max(s.limits.eager_bytes, s.limits.slice_bytes);
        s.limits.scratch_bytes =
            std::max<std::uint64_t>(s.limits.scratch_bytes, std::uint64_t{s.limits.slice_bytes} * s.limits.min_slots);
        s.workload.elements_max = network.number(100, 1'200);
        s.workload.tags = std::min(std::max(s.workload.tags, 1u), 4u);
        for (PeerPlan& plan : s.peers) plan.turns = std::min(plan.turns, 5u);
    }
    if (on & class_bandwidth) {
        Draw shared(mix(seed, 106));
        sim::NetworkParameters& n = s.world.network;
        if (shared.chance(400'000)) {
            n.down_low = n.rate_low;
            n.down_high = n.rate_high;
        }
        if (shared.chance(300'000)) n.flow_rate = shared.log_uniform(n.rate_low, n.rate_high);
    }
    raise_slices(s);
    Draw crowds(mix(seed, 170));
    if ((on & class_hostile) && crowds.chance(500'000))
        s.limits.unregistered_links_max = crowds.number(32, 64) + 4 * static_cast<std::uint32_t>(s.peers.size());
    if (crowds.chance(200'000)) s.limits.newcomer_links_max = crowds.number(1, 6);
    Draw journal(mix(seed, 108));
    if (journal.chance(700'000)) s.limits.journal_records = static_cast<std::uint32_t>(journal.log_uniform(1, 60));
    Draw flavours(mix(seed, 106));
    draw_flavours(s, flavours, on, options.peers_max);
    Draw quantized(mix(seed, 150));
    if (quantized.chance(350'000)) s.workload.quantized_per_mille = quantized.number(100, 1000);
    widen_windows(s);
    s.chaos_end = std::max(s.chaos_end, busy_time(s));
    draw_faults(s, faults, on);
    draw_edges_of_limits(s, on);
    s.limits.scratch_bytes =
        std::max<std::uint64_t>(s.limits.scratch_bytes, std::uint64_t{s.limits.slice_bytes} * s.limits.min_slots);
    s.stop_after = classes.log_uniform(millisecond, 5 * second);
    // Faults may have brought tags or a limit on votes with them.
    if (s.timeouts.vote != 0) s.workload.beside = 0;
    if (s.workload.beside != 0 && s.workload.tags != 0) s.workload.sync = false;
    draw_addresses(s, on);
    s.patience = patience_of(s);
    return s;
}

Scenario generate(std::uint64_t seed, const GeneratorOptions& options) { return generate(seed, options, nullptr); }

Scenario generate_from(std::span<const std::uint8_t> bytes, const GeneratorOptions& options) {
    sim::Choices choices(bytes);
    return generate(numeric::checksum64(bytes.data(), bytes.size()), options, &choices);
}

}  // namespace pccl::harness
