// Scenarios for races that independent draws seldom meet: several settings and one or two faults that belong together. Each
// replaces most of what was drawn before.
#include "harness/draw_faults.hpp"
#include "harness/settle.hpp"
#include "harness/triggers.hpp"
#include "net-sim/driver.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;
using sim::mix;

namespace {

constexpr std::uint32_t dying_holders_per_million = 60'000;
constexpr std::uint32_t slow_snaps_per_million = 30'000;
constexpr std::uint32_t stalled_early_per_million = 30'000;
constexpr std::uint32_t no_memory_per_million = 20'000;
constexpr std::uint32_t needed_again_per_million = 20'000;
constexpr std::uint32_t crowds_per_million = 10'000;

// One group of so many peers, on paths without faults and limits of rate.
void begin(Scenario& s, std::uint32_t peers) {
    while (s.peers.size() < peers) s.peers.push_back(PeerPlan(s.peers.back()));
    s.peers.resize(peers);
    for (PeerPlan& plan : s.peers) {
        plan.group = 0;
        plan.rejoins = true;
        plan.start = std::min<Duration>(plan.start, 100 * millisecond);
    }
    sim::NetworkParameters& n = s.world.network;
    n.stop_faults();
    n.rate_low = n.rate_high = 1'000'000'000;
    n.down_low = n.down_high = n.flow_rate = 0;
    n.queue_max = 0;
    s.faults.clear();
    s.core.clear();
    s.claim = Claim::all_end;
    s.world.wrong_chunks_per_million = 0;
    s.world.allocation_fails_per_million = s.world.long_texts_per_million = 0;
    s.timeouts.master = std::max(s.timeouts.master, 20 * second);
    s.workload.beside = 0;
    s.workload.optimize_per_mille = s.workload.cross_per_mille = s.workload.early_update_per_mille = 0;
    s.timeouts.vote = 0;
}

// Holders of a state die when one receiver has all of it and another one has not: the second one must go on with the
// first. Paths differ much in speed.
void draw_dying_holders(Scenario& s, std::uint32_t on, std::uint32_t peers_max) {
    Draw draw(mix(s.seed, 251));
    if (!(on & class_crash) || !s.workload.sync || peers_max < 3 || !draw.chance(dying_holders_per_million)) return;
    begin(s, draw.number(3, 4));
    Workload& w = s.workload;
    w.tags = std::min(w.tags, 1u);
    w.entries = draw.number(1, 5);
    w.state_elements_min = 1;
    w.state_elements_max = draw.number(50, 1'000);
    if (draw.chance(500'000)) w.own_entries_per_mille = draw.number(100, 900);
    if (draw.chance(500'000)) w.drift_per_mille = draw.number(50, 500);
    s.limits.chunk_bytes = draw.number(4, 60) * 8;
    s.limits.chunks_in_flight = draw.number(1, 8);
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = draw.log_uniform(100 * microsecond, 5 * millisecond);
    n.latency_high = draw.log_uniform(n.latency_low, 30 * millisecond);
    n.window_low = static_cast<std::int64_t>(draw.log_uniform(200, 2'000));
    n.window_high = 40 * n.window_low;
    s.timeouts.peer = draw.between(second, 3 * second);
    for (PeerPlan& plan : s.peers) {
        plan.turns = draw.number(3, 6);
        plan.start = draw.chance(500'000) ? 0 : draw.log_uniform(10 * millisecond, 500 * millisecond);
    }
    for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::crash_peer;
        f.a = draw.number(1, static_cast<std::uint32_t>(s.peers.size()));
        f.value = draw.bits() | 3;  // with a reset, started again
        f.duration = draw.log_uniform(100 * millisecond, 2 * second);
        if (draw.chance(500'000)) {
            f.trigger = trigger_of(Phase::sync_end_vote);
            f.trigger_count = draw.number(1, 6);
        } else {
            f.trigger = trigger_of(Phase::chunk);
            f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, 300));
            f.place = FaultPlace::there;
        }
        f.at = draw.log_uniform(microsecond, 30 * millisecond);
        s.faults.push_back(f);
    }
    // Or the master loses a holder that goes on to serve the state.
    if (Draw cut(mix(s.seed, 451)); (on & class_partition) && cut.chance(300'000)) {
        Fault f;
        f.kind = FaultKind::cut_pair;
        f.a = 0;
        f.b = cut.number(1, static_cast<std::uint32_t>(s.peers.size()));
        f.trigger = trigger_of(Phase::chunk_request);
        f.trigger_count = static_cast<std::uint32_t>(cut.log_uniform(1, 60));
        f.at = cut.log_uniform(microsecond, 30 * millisecond);
        f.duration = cut.between(2 * s.timeouts.peer, 4 * s.timeouts.peer);
        s.faults.assign(1, f);
        s.chaos_end = std::max(s.chaos_end, busy_time(s) + 6 * s.timeouts.peer);
    }
    widen_windows(s);
}

// An edge on which a slice takes a good part of the peer time-out, and whose connections all break in its middle: the
// receiver reports bytes each time, and the slice never gets through. The others must go on around that edge.
void draw_slow_snaps(Scenario& s, std::uint32_t on, std::uint32_t peers_max) {
    Draw draw(mix(s.seed, 252));
    if (!(on & class_connection) || !(on & class_forever) || s.workload.tags == 0 || peers_max < 4 ||
        !draw.chance(slow_snaps_per_million))
        return;
    begin(s, 4);
    Workload& w = s.workload;
    w.sync = draw.chance(300'000) && w.sync;
    w.tags = 1;
    w.many_window = 0;
    w.elements_min = w.elements_max = draw.number(800, 2'000);
    set_slices(s, draw.number(250, 500) * 8);  // words and heartbeats take little of the rate then
    s.limits.payload_bytes_max = std::max(s.limits.payload_bytes_max, s.limits.slice_bytes);
    s.timeouts.peer = draw.between(second, 3 * second);
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = n.latency_high = draw.log_uniform(100 * microsecond, 10 * millisecond);
    n.window_low = n.window_high = s.limits.slice_bytes / 8;  // what is written at once arrives at once
    n.jitter_per_mille = n.tail_per_million = 0;              // each copy gets exactly as far as the one before
    n.flow_rate = s.limits.slice_bytes * second / (s.timeouts.peer * draw.between(150, 700) / 1000);
    for (PeerPlan& plan : s.peers) {
        plan.turns = draw.number(2, 4);
        plan.stripes = draw.number(1, 2);
    }
    Fault f;
    f.kind = FaultKind::snap;
    f.a = draw.number(1, 4);
    f.b = 1 + (f.a + draw.number(0, 2)) % 4;
    // Behind the greeting, in the middle of the first slice.
    f.value = 250 + draw.below(s.limits.slice_bytes * 3 / 4);
    f.at = draw.chance(500'000) ? 0 : draw.between(0, second);
    f.duration = second;
    f.forever = true;
    for (std::uint32_t node = 1; node <= 4; ++node)
        if (node != f.a && node != f.b) s.core.push_back(node);
    s.claim = Claim::core;
    s.faults.push_back(f);
    std::swap(f.a, f.b);
    s.faults.push_back(f);
    s.chaos_end = std::max(s.chaos_end, 30 * s.timeouts.peer);
}

// A slice that was sent before its start arrived stalls on its way, is sent again on another connection, and arrives while
// the operation still runs.
void draw_stalled_early(Scenario& s, std::uint32_t on) {
    Draw draw(mix(s.seed, 253));
    if (!(on & class_connection) || s.workload.tags == 0 || s.peers.size() < 2 ||
        !draw.chance(stalled_early_per_million))
        return;
    begin(s, draw.number(2, 3));
    Workload& w = s.workload;
    w.sync = false;
    w.tags = draw.number(1, 3);
    w.many_window = 0;
    set_slices(s, draw.number(100, 200) * 8);
    s.limits.eager_bytes = s.limits.slice_bytes * draw.number(2, 8);
    s.limits.payload_bytes_max = std::max(s.limits.payload_bytes_max, s.limits.slice_bytes);
    w.elements_min = s.limits.slice_bytes / 8 * draw.number(10, 30);
    w.elements_max = w.elements_min + 8;
    s.timeouts.peer = draw.between(second, 2 * second);
    s.world.compute_max = draw.log_uniform(20 * millisecond, 200 * millisecond);
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = draw.log_uniform(100 * microsecond, 5 * millisecond);
    n.latency_high = draw.between(20 * millisecond, 80 * millisecond);  // starts arrive at different times
    n.jitter_per_mille = n.tail_per_million = 0;
    n.window_low = n.window_high = s.limits.slice_bytes / 2;  // a frame arrives in pieces
    for (PeerPlan& plan : s.peers) {
        plan.turns = draw.number(4, 8);
        plan.stripes = draw.number(2, 4);
    }
    for (std::uint32_t i = draw.number(3, 8); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::stall;
        f.b = aim_there | aim_accepted;
        f.value = draw.bits() | (std::uint64_t{3} << 40);  // one with bytes in flight
        f.value &= ~(std::uint64_t{1} << 32);              // what its dialler sends
        f.trigger = trigger_of<ReceivePayload>();
        f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, 300));
        f.at = draw.log_uniform(microsecond, n.latency_high);
        // The slice is sent again after a quarter of the time-out.
        f.duration = s.timeouts.peer * draw.between(260, 330) / 1000 + draw.between(0, 8) * n.latency_high;
        s.faults.push_back(f);
    }
    s.chaos_end = std::max(s.chaos_end, 10 * second);
}

// There is no memory for any operation: a call for many tags gives them up.
void draw_no_memory(Scenario& s, std::uint32_t on) {
    Draw draw(mix(s.seed, 254));
    if (!(on & class_limits) || s.workload.many_window == 0 || s.workload.tags == 0 ||
        !draw.chance(no_memory_per_million))
        return;
    s.core.clear();
    s.claim = Claim::all_end;
    s.world.allocation_fails_per_million = 1'000'000;
    s.world.staging_max = 0;
    s.workload.tags = std::min(s.workload.tags, 6u);
    for (PeerPlan& plan : s.peers) plan.turns = std::min(plan.turns, 3u);
    s.timeouts.peer = std::min<Duration>(s.timeouts.peer, 2 * second);
}

// Two of four peers are apart until the ring leads around them, and reach each other again. Long after, another one dies:
// the ring of the three that are left needs what was broken.
void draw_needed_again(Scenario& s, std::uint32_t on, std::uint32_t peers_max) {
    Draw draw(mix(s.seed, 255));
    if (!(on & class_crash) || !(on & class_partition) || s.workload.tags == 0 || peers_max < 4 ||
        !draw.chance(needed_again_per_million))
        return;
    begin(s, 4);
    Workload& w = s.workload;
    w.sync = draw.chance(300'000) && w.sync;
    w.tags = 1;
    w.many_window = 0;
    w.interrupt_per_mille = w.leave_in_flight_per_mille = 0;
    w.compute_max = draw.between(300 * millisecond, second);
    s.timeouts.peer = draw.between(300 * millisecond, 800 * millisecond);
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = draw.log_uniform(100 * microsecond, 5 * millisecond);
    n.latency_high = draw.log_uniform(n.latency_low, 20 * millisecond);
    n.jitter_per_mille = n.tail_per_million = 0;
    n.window_low = n.window_high = 1'000'000;
    for (PeerPlan& plan : s.peers) {
        plan.start = draw.between(0, 20 * millisecond);
        plan.turns = draw.number(25, 40);
        plan.stripes = draw.number(1, 2);
    }
    Fault f;
    f.kind = draw.chance(700'000) ? FaultKind::cut_pair : FaultKind::one_way;
    f.a = draw.number(1, 4);
    f.b = 1 + (f.a + draw.number(0, 2)) % 4;
    f.at = draw.between(500 * millisecond, 3 * second);
    f.duration = s.timeouts.peer * draw.between(800, 4'000) / 1'000;
    s.faults.push_back(f);
    Fault crash;
    crash.kind = FaultKind::crash_peer;
    do crash.a = draw.number(1, 4);
    while (crash.a == f.a || crash.a == f.b);
    crash.value = draw.below(2) | (draw.chance(500'000) ? 2 : 0);
    crash.at = f.at + f.duration + s.timeouts.peer * draw.between(2, 16);
    crash.duration = draw.log_uniform(second, 10 * second);
    s.faults.push_back(crash);
    s.chaos_end = std::max(s.chaos_end, crash.at + crash.duration + second);
}

// A crowd dials the master at the same time over a long path, at the start and again after its restart, and the master has
// few places for connections that have sent no hello.
void draw_crowds(Scenario& s, std::uint32_t on, std::uint32_t peers_max) {
    Draw draw(mix(s.seed, 256));
    if (!(on & class_master) || !(on & class_latency) || peers_max < 6 || !draw.chance(crowds_per_million)) return;
    begin(s, std::min(peers_max, 9u));
    Workload& w = s.workload;
    w.sync = draw.chance(300'000) && w.sync;
    w.tags = std::min(w.tags, 1u);
    w.many_window = 0;
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = draw.between(500 * millisecond, 1500 * millisecond);
    n.latency_high = n.latency_low + draw.log_uniform(microsecond, n.latency_low / 10);
    n.jitter_per_mille = n.tail_per_million = 0;
    n.window_low = n.window_high = 1'000'000;
    for (PeerPlan& plan : s.peers) {
        plan.stripes = 1;
        plan.turns = draw.number(2, 4);
    }
    s.limits.unregistered_links_max = draw.number(4, 12);
    s.timeouts.handshake = n.latency_high * draw.between(85, 100) / 10;  // a place is kept for longer than a round trip
    // A quarter of it, for a dial at another address of the master, exceeds a round trip.
    s.timeouts.peer = n.latency_high * draw.between(100, 120) / 10;
    s.timeouts.dial = std::max(s.timeouts.dial, 4 * n.latency_high);
    s.timeouts.master = std::max(s.timeouts.master, 4 * s.timeouts.grace());
    Fault f;
    f.kind = FaultKind::crash_master;
    f.at = draw.between(10 * n.latency_high, 60 * n.latency_high);
    f.duration = draw.log_uniform(millisecond, second);
    f.value = draw.bits() | 1;  // its links are reset
    s.faults.push_back(f);
    s.chaos_end = std::max(s.chaos_end, f.at + f.duration + second);
}

}  // namespace

void draw_races(Scenario& s, std::uint32_t on, std::uint32_t peers_max) {
    draw_dying_holders(s, on, peers_max);
    draw_slow_snaps(s, on, peers_max);
    draw_stalled_early(s, on);
    draw_no_memory(s, on);
    draw_needed_again(s, on, peers_max);
    draw_crowds(s, on, peers_max);
}

}  // namespace pccl::harness
