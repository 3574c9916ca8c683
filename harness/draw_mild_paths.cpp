// Mild worlds (draw_mild.cpp) with paths on which one slice or chunk takes seconds.
#include "harness/expectations.hpp"
#include "harness/mild_world.hpp"
#include "harness/settle.hpp"

#include <algorithm>

namespace pccl::harness::mild {

using namespace core;
using sim::Draw;

namespace {

// What leaves `member` is slow. If `far` is not 0, its successor `next` is so far from the master.
void set_narrow(Scenario& s, std::uint32_t member, std::uint32_t next, std::int64_t rate, Duration far) {
    sim::NetworkParameters& n = s.world.network;
    n.rate_low = n.rate_high = 12'500'000;
    n.region_latency.assign(9, n.latency_high);
    n.region_rate.assign(9, 0);
    n.region_rate[3] = n.region_rate[5] = rate;
    n.regions.assign(s.peers.size() + 1, 0);
    n.regions[member] = 1;
    if (far == 0) return;
    n.regions[next] = 2;
    n.region_latency[2] = n.region_latency[6] = far;
}

// A slice or chunk of so many bytes takes a part of the peer time-out, or a few of them, if so many share the path. It takes at
// most `most` thousandths of the time-out.
std::uint32_t unit_of(const Scenario& s, Draw& draw, std::int64_t rate, std::int64_t streams, std::int64_t most) {
    const std::int64_t together = rate * (share(s.timeouts.peer, draw, 200, most) / millisecond) / 1'000;
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(together / streams / 8 * 8, 2'048, 1 << 20));
}

// Members that begin together end with their last turn: one that stopped before would leave the other one alone in an
// operation.
void lasts_all_turns(Scenario& s, std::int64_t rate) {
    const Workload& w = s.workload;
    const std::int64_t bytes = std::int64_t{4} * w.elements_max * w.tags * s.peers.front().turns;
    lasts(s, begun + 4 * bytes * second / rate + 24 * s.timeouts.peer);
}

// The queue of a path with so many streams does not delay heartbeats for long.
void set_windows(Scenario& s, std::int64_t rate, std::int64_t streams) {
    const std::int64_t window = rate * (s.timeouts.peer / second) / 8 / streams;
    s.world.network.window_low = s.world.network.window_high = std::clamp<std::int64_t>(window, 1'000, 16'000);
}

}  // namespace

// Operations that take a minute on a narrow edge. One member dies in the middle and leaves the path full; or all
// connections of that edge break at once, once or twice; or they break early for a while, and then nothing gets through.
void draw_narrow_edge(Scenario& s, Draw& draw) {
    begin_anew(s, draw, draw.chance(700'000) ? 2 : 3);
    const std::uint32_t members = members_of(s);
    const std::int64_t rate = draw.log_uniform(10'000, 100'000);
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = n.latency_high = draw.log_uniform(millisecond, 30 * millisecond);
    const std::uint32_t narrow = draw.number(1, members), next = 1 + narrow % members;
    set_narrow(s, narrow, next, rate, draw.chance(300'000) ? draw.between(100, 400) * millisecond : 0);
    s.timeouts.peer = draw.chance(500'000) ? 10 * second : draw.between(2, 10) * second;
    s.timeouts.dial = s.timeouts.peer / 4;  // an outage ends in the middle of one
    s.world.symbolic = true;
    const std::uint32_t stripes = draw.chance(400'000) ? 1 : draw.number(2, 8);
    // The successor of the slow edge has nothing to send meanwhile, and a third member does not wait for it for ever.
    const std::uint32_t happens = members == 3 && draw.chance(600'000) ? 0 : draw.number(1, 2);
    const bool all_stay = happens != 0;  // who dies may be no member yet, or none any more
    const bool long_ones = members == 2 || !all_stay;
    set_slices(s, unit_of(s, draw, rate, stripes, long_ones ? 8'000 : 4'000));
    set_windows(s, rate, stripes);
    s.limits.payload_bytes_max = Limits{}.payload_bytes_max;
    for (PeerPlan& peer : s.peers) peer.stripes = stripes, peer.turns = 2;
    Workload& w = s.workload;
    w.sync = false;
    w.f32_sum = true;
    w.tags = draw.number(1, 3);
    w.world_min = 2;
    const Duration takes = draw.between(10, long_ones ? 120 : 60) * second;
    w.elements_max = w.elements_min = static_cast<std::uint32_t>(rate * (takes / second) / 8);
    const Instant middle = begun + draw.between(second, takes);
    switch (happens) {
    case 0:
        s.faults.push_back(fault(FaultKind::crash_peer, middle, 0, 1 + (narrow + draw.number(0, 1)) % members));
        s.faults.back().value = draw.number(0, 1);
        s.faults.back().forever = true;
        break;
    case 1:
        s.faults.push_back(fault(FaultKind::flap, middle, draw.between(50, 400) * millisecond, narrow, next));
        s.faults.back().value = static_cast<std::uint64_t>(draw.log_uniform(100, 2'000));
        s.faults.back().again = draw.number(0, 1);
        s.faults.back().every = share(s.timeouts.peer, draw, 1'000, 4'000);
        if (stripes == 1 && draw.chance(500'000)) {
            // And what is sent again gets through in pieces. The edge does not break again: it could break a copy that is
            // nearly complete, while the sender has not heard for long how far that copy came.
            s.faults.back().again = 0;
            const Duration still = share(s.timeouts.peer, draw, 400, 700);
            s.faults.push_back(fault(FaultKind::stall, middle + s.timeouts.peer, still, narrow, aim_named));
            s.faults.back().value = draw.bits();
            s.faults.back().again = draw.number(0, 2);
            s.faults.back().every = draw.between(second, s.timeouts.peer);
        }
        break;
    default:
        // Only the time without any connection counts against the edge.
        s.faults.push_back(fault(FaultKind::flap, middle, share(s.timeouts.peer, draw, 50, 700), narrow, next));
        s.faults.back().value =
            static_cast<std::uint64_t>(rate * (share(s.timeouts.peer, draw, 300, 600) / millisecond) / 1'000);
        s.faults.push_back(fault(FaultKind::cut_pair, middle + s.faults.back().duration,
                                 share(s.timeouts.peer, draw, 100, 450), narrow, next));
        break;
    }
    lasts_all_turns(s, rate);
    if (all_stay) s.expectations.push_back(removals(0));
    if (all_stay && members == 2) s.expectations.push_back(no_aborts());  // there is no other ring
    w.compute_max = 100 * millisecond;
}

// Slices that take a few time-outs begin to arrive before the receiver, far from the master, has heard of their operation.
void draw_slices_before_their_start(Scenario& s, Draw& draw) {
    begin_anew(s, draw, 2);
    const std::int64_t rate = draw.log_uniform(10'000, 100'000);
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = n.latency_high = draw.log_uniform(millisecond, 30 * millisecond);
    const std::uint32_t narrow = draw.number(1, 2);
    set_narrow(s, narrow, 3 - narrow, rate, draw.between(100, 500) * millisecond);
    s.timeouts.peer = draw.between(2, 5) * second;
    s.world.symbolic = true;
    const auto slice =
        static_cast<std::uint32_t>(rate * (share(s.timeouts.peer, draw, 2'000, 8'000) / millisecond) / 8'000 * 8);
    set_slices(s, slice);
    set_windows(s, rate, 1);
    s.limits.payload_bytes_max = Limits{}.payload_bytes_max;
    const std::uint32_t turns = draw.number(2, 6);
    for (PeerPlan& peer : s.peers) peer.stripes = 1, peer.turns = turns;
    Workload& w = s.workload;
    w.sync = false;
    w.f32_sum = true;
    w.tags = draw.number(1, 2);
    w.world_min = 2;
    w.elements_max = w.elements_min = slice / 4 * draw.number(1, 4);
    lasts_all_turns(s, rate);
    s.expectations.push_back(removals(0));
    s.expectations.push_back(no_aborts());
    w.compute_max = draw.log_uniform(millisecond, 200 * millisecond);
}

// Members that come later fetch a state over slow paths. Nobody is stuck as long as bytes of it arrive.
void draw_narrow_holders(Scenario& s, Draw& draw) {
    begin_anew(s, draw, draw.number(2, 7));
    const std::uint32_t members = members_of(s);
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = n.latency_high = draw.log_uniform(5 * millisecond, 70 * millisecond);
    s.timeouts.peer = draw.chance(500'000) ? 10 * second : draw.between(4, 10) * second;
    const std::uint32_t stripes = draw.chance(500'000) ? 1 : draw.number(2, 4);
    const std::int64_t rate = draw.log_uniform(20'000, 200'000);
    if (draw.chance(500'000)) {
        n.rate_low = n.rate_high = rate;
    } else {
        // The window of each connection is what bounds it.
        n.window_low = n.window_high = std::clamp<std::int64_t>(rate * 2 * n.latency_high / second, 1'500, 16'000);
    }
    Workload& w = s.workload;
    w.tags = draw.chance(500'000) ? 0 : 1;
    w.elements_max = 8;
    w.sync = true;
    w.world_min = 2;
    w.entries = draw.number(1, 4);
    if (draw.chance(400'000)) w.own_entries_per_mille = 1'000;
    const std::int64_t bytes = rate * draw.between(2, 10) * (s.timeouts.peer / second);
    w.state_elements_max = static_cast<std::uint32_t>(std::clamp<std::int64_t>(bytes / 8 / w.entries, 2'000, 1 << 20));
    w.state_elements_min = w.state_elements_max / 2 + 1;
    s.limits.payload_bytes_max = Limits{}.payload_bytes_max;
    const std::int64_t streams = n.rate_low == rate ? static_cast<std::int64_t>(stripes) * (members - 1) : 1;
    s.limits.chunk_bytes = unit_of(s, draw, rate, streams, 4'000);
    if (draw.chance(400'000)) s.limits.chunk_bytes = std::min<std::uint32_t>(4 * s.limits.chunk_bytes, 1 << 20);
    if (n.rate_low == rate) set_windows(s, rate, streams);
    const std::uint32_t first = draw.chance(500'000) ? members : draw.number(1, members - 1);
    for (std::uint32_t i = 0; i < members; ++i) {
        s.peers[i].stripes = stripes;
        s.peers[i].start = i < first ? 0 : draw.between(0, 5 * second);
        s.peers[i].turns = first == members ? 1 : 6;
    }
    if (draw.chance(400'000)) {
        const std::uint32_t a = draw.number(1, members);
        s.faults.push_back(fault(FaultKind::stall, begun + draw.between(0, 20 * second),
                                 share(s.timeouts.peer, draw, 100, 450), a, aim_named));
        s.faults.back().value = draw.bits();
        s.faults.back().again = draw.number(0, 3);
        s.faults.back().every = 2 * s.timeouts.peer;
    }
    lasts(s, begun + 10 * second, 0);
    s.chaos_end = std::max(s.chaos_end, busy_time(s));
}

// Each connection of a narrow edge breaks in its second slice, for good: the first one gets through each time. One that broke
// sooner would be flapping.
void draw_second_slices(Scenario& s, Draw& draw) {
    begin_anew(s, draw, 2);
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = n.latency_high = draw.log_uniform(millisecond, 10 * millisecond);
    s.timeouts.peer = draw.between(3, 8) * second;
    const std::uint32_t slice = 8 * draw.number(250, 1'000);
    set_slices(s, slice);
    s.limits.chunk_bytes = slice;
    s.limits.payload_bytes_max = 2 * slice;
    n.rate_low = n.rate_high = slice * second / share(s.timeouts.peer, draw, 350, 600);
    n.window_low = n.window_high = 512;
    Workload& w = s.workload;
    w.sync = false;
    w.world_min = 2;
    w.f32_sum = true;
    w.tags = draw.number(1, 5);
    s.limits.concurrent_ops = draw.number(1, w.tags);
    s.limits.pairwise_bytes_max = 0;
    w.elements_min = w.elements_max = draw.number(4, 14) * slice / 4;
    for (PeerPlan& peer : s.peers) peer.stripes = 1, peer.start = 0, peer.turns = 2;
    s.faults.push_back(fault(FaultKind::snap, 0, millisecond, draw.number(1, 2), 0));
    s.faults.back().b = 3 - s.faults.back().a;
    s.faults.back().value = slice + slice / 4 + 600 + draw.below(slice / 2);
    s.faults.back().forever = true;
    lasts_all_turns(s, n.rate_low);
    s.expectations.push_back(removals(0));
    w.compute_max = 10 * millisecond;
    s.expectations.push_back(no_aborts());
}

// One of two connections of an edge stalls once. From then on it carries its share again.
void draw_stripe_that_stalls(Scenario& s, Draw& draw) {
    begin_anew(s, draw, 2);
    const std::int64_t rate = draw.log_uniform(200'000, 2'000'000);
    s.world.network.flow_rate = rate;
    s.world.network.latency_low = s.world.network.latency_high = draw.log_uniform(100 * microsecond, 5 * millisecond);
    s.world.symbolic = true;
    s.timeouts.peer = draw.between(2, 4) * second;
    s.limits.pairwise_bytes_max = 0;
    Workload& w = s.workload;
    w.sync = false;
    w.world_min = 2;
    w.tags = 1;
    w.f32_sum = true;
    // The operation ends without the slice on the stripe that stalls. That one is tried again after a few peer time-outs.
    const Duration each = draw.between(300, 1'200) * millisecond;
    const auto turns = static_cast<std::uint32_t>(14 * s.timeouts.peer / each);
    const std::int64_t bytes = rate * (each / millisecond) / 1000;  // of one connection
    w.elements_min = w.elements_max = static_cast<std::uint32_t>(2 * bytes / 4);
    s.limits.slice_bytes = s.limits.eager_bytes =
        static_cast<std::uint32_t>(std::min<std::int64_t>(bytes / 128 * 8, 65'536));
    for (PeerPlan& peer : s.peers) peer.stripes = 2, peer.start = 0, peer.turns = turns;
    s.faults.push_back(
        fault(FaultKind::stall, begun, share(s.timeouts.peer, draw, 300, 750), draw.number(1, 2), aim_named));
    s.faults.back().value = draw.bits();
    // An operation takes up to 1.3 times as long, because its few slices wait for each other.
    const Duration until = turns * each * 165 / 100 + 2 * s.faults.back().duration + second;
    lasts(s, begun + until, 0);  // nobody stops before the last turn
    w.compute_max = millisecond;
    s.expectations.push_back(no_aborts());
    s.expectations.push_back(ends_until(until));
}

}  // namespace pccl::harness::mild
