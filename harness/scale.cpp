#include "harness/scale.hpp"

#include "net-sim/draw.hpp"

namespace pccl::harness {

using namespace core;

namespace {

constexpr std::uint32_t regions = 20;

// Regions lie on a circle. One way takes 12 ms between neighbours, 120 ms between opposite regions, 1 ms within a
// region.
Duration latency(std::uint32_t from, std::uint32_t to) {
    const std::uint32_t apart = from < to ? to - from : from - to;
    const std::uint32_t steps = apart < regions - apart ? apart : regions - apart;
    return steps == 0 ? millisecond : steps * 12 * millisecond;
}

}  // namespace

Scenario scale_scenario(std::uint32_t peers, std::uint32_t replaced) {
    Scenario s;
    s.seed = 1;
    sim::NetworkParameters& n = s.world.network;
    for (std::uint32_t from = 0; from < regions; ++from) {
        for (std::uint32_t to = 0; to < regions; ++to) n.region_latency.push_back(latency(from, to));
    }
    n.regions.push_back(0);
    for (std::uint32_t i = 0; i < peers + replaced; ++i) {
        const bool late = i >= peers;
        PeerPlan plan;
        // Peers start region by region, as operators start machines. So most neighbours in the ring are close to each
        // other.
        plan.start = late ? 60 * second + (i - peers) * 100 * millisecond : i * 20 * millisecond;
        n.regions.push_back(late ? (i - peers) % regions : i * regions / peers);
        plan.turns = late ? 1 : 3;
        plan.rejoins = false;
        s.peers.push_back(plan);
    }
    Workload& w = s.workload;
    w.sync = false;
    w.tags = 1;
    w.elements_min = w.elements_max = 1024;
    w.f32_sum = true;
    w.world_min = peers;
    sim::Draw draw(sim::mix(s.seed, 1));
    for (std::uint32_t i = 0; i < replaced; ++i) {
        Fault crash;
        crash.kind = FaultKind::crash_peer;
        // In the middle of the second reduction: a reduction has as many slices as peers, and each slice is sent 2(w-1)
        // times.
        crash.trigger = static_cast<std::uint32_t>(sim::effect_index<SendPayload>() + 1);
        crash.trigger_count = 3 * (peers - 1) * peers;
        crash.at = i * 50 * millisecond;
        crash.a = 1 + i * (peers / replaced) + draw.number(0, peers / replaced - 1);
        crash.value = i % 2;  // with and without a reset
        s.faults.push_back(crash);
    }
    s.chaos_end = 120 * second;
    s.stop_after = 3600 * second;
    s.patience = 60 * second;
    return s;
}

}  // namespace pccl::harness
