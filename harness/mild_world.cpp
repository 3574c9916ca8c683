#include "harness/mild_world.hpp"

#include "harness/expectations.hpp"

#include <algorithm>

namespace pccl::harness::mild {

using namespace core;
using sim::Draw;

namespace {

constexpr std::uint32_t turns_without_end = 10'000;
// How many turns a program has in such a run. More of them take time and show nothing new.
constexpr Duration turns_in_run = 30;

}  // namespace

Duration share(Duration time, Draw& draw, std::int64_t least_per_mille, std::int64_t most_per_mille) {
    return time / 1000 * draw.between(least_per_mille, most_per_mille);
}

Fault fault(FaultKind kind, Instant at, Duration duration, std::uint32_t a, std::uint32_t b) {
    Fault f;
    f.kind = kind;
    f.at = at;
    f.duration = duration;
    f.a = a;
    f.b = b;
    return f;
}

void begin_anew(Scenario& s, Draw& draw, std::uint32_t members) {
    s.faults.clear();
    s.core.clear();
    s.expectations.clear();
    s.claim = Claim::all_end;
    s.world = {};
    s.limits = small_limits();
    if (draw.chance(300'000)) s.limits.vote_input_bytes_max = Limits{}.vote_input_bytes_max;
    if (draw.chance(300'000)) s.limits.pairwise_bytes_max = Limits{}.pairwise_bytes_max;
    s.timeouts = {};
    s.uneven_limits = s.even = false;
    sim::NetworkParameters& n = s.world.network;
    n.latency_high = draw.log_uniform(100 * microsecond, 40 * millisecond);
    n.latency_low = draw.log_uniform(100 * microsecond, n.latency_high);
    s.timeouts.peer = draw.between(1000, 6000) * millisecond;
    PeerPlan plan;
    plan.stripes = draw.chance(700'000) ? 1 : draw.number(2, 4);
    plan.turns = turns_without_end;
    s.peers.assign(members, plan);
    for (PeerPlan& peer : s.peers) peer.start = draw.between(0, 300 * millisecond);
    Workload& w = s.workload;
    w = {};
    w.sync = draw.chance(400'000);
    w.pump = draw.chance(400'000);
    w.tags = draw.number(1, 2);
    w.elements_max = static_cast<std::uint32_t>(draw.log_uniform(1, 400));
    s.stop_after = second;
}

void lasts(Scenario& s, Duration time) {
    s.chaos_end = time;
    s.workload.compute_max = std::clamp<Duration>(time / turns_in_run, millisecond, 1500 * millisecond);
}

void lasts(Scenario& s, Duration time, std::uint64_t removed) {
    lasts(s, time);
    s.expectations.push_back(removals(removed));
}

}  // namespace pccl::harness::mild
