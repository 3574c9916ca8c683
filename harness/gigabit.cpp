#include "harness/gigabit.hpp"

namespace pccl::harness {

using namespace core;

Scenario gigabit_scenario(std::uint32_t peers, std::uint32_t elements, bool quantized) {
    Scenario s;
    s.seed = 1;
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = n.latency_high = 5 * millisecond;
    n.rate_low = n.rate_high = n.down_low = n.down_high = 125'000'000;
    n.window_low = n.window_high = 4 << 20;
    s.world.symbolic = true;
    for (std::uint32_t i = 0; i < peers; ++i) {
        PeerPlan plan;
        plan.start = i * 500 * millisecond;
        plan.stripes = 4;
        plan.turns = 1;
        plan.rejoins = false;
        s.peers.push_back(plan);
    }
    Workload& w = s.workload;
    w.sync = false;
    w.tags = 1;
    w.elements_min = w.elements_max = elements;
    w.f32_sum = true;
    w.quantized_per_mille = quantized ? 1000 : 0;
    w.world_min = peers;
    s.stop_after = 3600 * second;
    s.patience = 60 * second;
    return s;
}

}  // namespace pccl::harness
