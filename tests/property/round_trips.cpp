// How long a reduction takes on a long path, in simulated time: two members 40 ms apart, the master beside the first.
#include "harness/run.hpp"

#include <catch2/catch.hpp>

using namespace pccl::core;
using namespace pccl::harness;

namespace {

constexpr Duration round_trip = 40 * millisecond;

// The last of some reductions. Each connection carries 1 Gbit/s, and the path more than all of them.
double round_trips(std::uint64_t bytes) {
    Scenario s;
    s.seed = 1;
    s.limits = Limits{};
    auto& network = s.world.network;
    network.regions = {0, 0, 1};  // the master, and two peers
    network.region_latency = {20 * microsecond, round_trip / 2, round_trip / 2, 20 * microsecond};
    network.rate_low = network.rate_high = network.down_low = network.down_high = 10'000'000'000;
    network.flow_rate = 125'000'000;
    network.window_low = network.window_high = 16 << 20;
    s.world.symbolic = bytes > (1 << 20);
    for (std::uint32_t i = 0; i < 2; ++i) {
        PeerPlan plan;
        plan.start = i * millisecond;
        plan.stripes = 8;
        plan.turns = 30;  // alone at first
        plan.rejoins = false;
        s.peers.push_back(plan);
    }
    Workload& w = s.workload;
    w.sync = false;
    w.tags = 1;
    w.elements_min = w.elements_max = static_cast<std::uint32_t>(bytes / 4);
    w.f32_sum = true;
    w.in_place_per_mille = 0;
    s.stop_after = 3600 * second;
    s.patience = 60 * second;
    const Verdict v = run(s);
    INFO(v.violation.oracle << " " << v.violation.reason);
    REQUIRE(v.held());
    REQUIRE(v.reduce_time > 0);
    return static_cast<double>(v.reduce_time) / static_cast<double>(round_trip);
}

}  // namespace

TEST_CASE("what fits into a vote takes one round trip, its outcome included") {
    CHECK(round_trips(4) <= 1.15);
    CHECK(round_trips(16 << 10) <= 1.15);
}

TEST_CASE("input travels beside the vote for the start, so a reduction takes two round trips") {
    CHECK(round_trips(64 << 10) <= 2.2);
    CHECK(round_trips(256 << 10) <= 2.2);
    CHECK(round_trips(1 << 20) <= 2.2);
}

TEST_CASE("a long path stays full") {
    // A ring without votes over these eight connections: half of the bytes leave each member in each of two steps, one
    // after the other, and each step takes half a round trip besides.
    const auto bare = [](double bytes) { return 1 + bytes / 8 / 125e6 * 1e9 / static_cast<double>(round_trip); };
    CHECK(round_trips(64 << 20) <= bare(64 << 20) + 1.1);
    CHECK(round_trips(256 << 20) <= 1.2 * bare(256 << 20));
}
