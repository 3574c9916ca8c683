// Optimized rings in the simulator. Measurements must match the network, the chosen ring must be the best one by these
// measurements, and collectives must get faster.
#include "harness/topology.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

using namespace pccl;
using namespace pccl::harness;

namespace {

using Names = std::vector<std::string>;

// Rates below this one count as this one.
constexpr std::uint64_t slowest = 8'000;

std::uint64_t picoseconds(std::uint64_t rate) {
    return std::max<std::uint64_t>(1'000'000'000'000 / std::max(rate, slowest), 1);
}

// Picoseconds per byte, summed over the ring. An edge without a measurement costs four times the worst measured one.
std::uint64_t cost(const RingChange& change, const Names& ring) {
    std::uint64_t worst = 1;
    for (const std::string& from : ring) {
        for (const std::string& to : ring) {
            const auto known = change.bandwidths.find({from, to});
            if (known != change.bandwidths.end()) worst = std::max(worst, picoseconds(known->second));
        }
    }
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < ring.size(); ++i) {
        const auto known = change.bandwidths.find({ring[i], ring[(i + 1) % ring.size()]});
        sum += known == change.bandwidths.end() ? 4 * worst : picoseconds(known->second);
    }
    return sum;
}

}  // namespace

TEST_CASE("a ring over the fast paths of a network is found, and collectives get faster") {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        std::vector<std::uint32_t> good;
        const std::uint32_t peers = 6 + static_cast<std::uint32_t>(seed);
        PathNetwork network = network_with_good_ring(peers, seed, 12'500'000, 50'000'000, 125'000'000, good);
        network.latency = 2 * core::millisecond;
        network.window = 64 << 10;
        const TopologyFacts facts = watch_topology(path_scenario(network, true), 100'000'000);
        INFO("seed " << seed << ": " << facts.verdict.violation.oracle << " " << facts.verdict.violation.reason);
        REQUIRE(facts.verdict.held());
        REQUIRE(facts.bandwidths.size() == std::size_t{peers} * (peers - 1));
        for (const auto& [ends, rate] : facts.bandwidths) {
            const std::uint32_t from = facts.nodes.at(ends.first) - 1, to = facts.nodes.at(ends.second) - 1;
            const auto width = static_cast<double>(network.paths[from * peers + to]);
            INFO("from " << from << " to " << to << ": " << rate << " of " << width);
            CHECK(static_cast<double>(rate) > 0.9 * width);
            CHECK(static_cast<double>(rate) < 1.1 * width);
        }
        REQUIRE(facts.changes.size() == 1);
        std::vector<std::uint32_t> ring;
        for (const std::string& name : facts.changes.front().after) ring.push_back(facts.nodes.at(name) - 1);
        std::rotate(ring.begin(), std::find(ring.begin(), ring.end(), good.front()), ring.end());
        CHECK(ring == good);
        CHECK(facts.longest_vote <= 10 * core::second);
        const Verdict as_joined = run(path_scenario(network, false));
        REQUIRE(as_joined.held());
        CHECK(10 * as_joined.reduce_time > 13 * facts.verdict.reduce_time);
    }
}

TEST_CASE("under faults, no ring is changed for a worse one by what was measured") {
    std::size_t changes = 0, optimized = 0;
    for (std::uint64_t seed = 1; seed <= 2500; ++seed) {
        const Scenario scenario = generate(seed);
        if (scenario.workload.optimize_per_mille == 0) continue;
        const TopologyFacts facts = watch_topology(scenario);
        INFO("seed " << seed << ": " << facts.verdict.violation.oracle << " " << facts.verdict.violation.reason);
        REQUIRE(facts.verdict.held());
        optimized += facts.verdict.counters.optimized;
        // A ring that avoids failed edges may be longer.
        if (facts.edges_failed) continue;
        for (const RingChange& change : facts.changes) {
            ++changes;
            REQUIRE(std::is_permutation(change.before.begin(), change.before.end(), change.after.begin(),
                                        change.after.end()));
            CHECK(cost(change, change.after) < cost(change, change.before));
        }
    }
    CHECK(changes > 10);
    CHECK(optimized > 100);
}

TEST_CASE("a member that dies and a master that restarts in the middle of the tests: the rest come to a success") {
    std::vector<std::uint32_t> good;
    const PathNetwork network = network_with_good_ring(6, 9, 1'000'000, 4'000'000, 12'500'000, good);
    for (const FaultKind kind : {FaultKind::crash_peer, FaultKind::crash_master}) {
        for (const std::uint32_t frames : {1u, 200u, 2'000u}) {
            Scenario scenario = path_scenario(network, true);
            scenario.chaos_end = 60 * core::second;
            Fault fault;
            fault.kind = kind;
            fault.a = 3;
            fault.duration = 500 * core::millisecond;
            fault.trigger = static_cast<std::uint32_t>(sim::effect_index<core::SendPayload>() + 1);
            fault.trigger_count = frames;
            scenario.faults.push_back(fault);
            const TopologyFacts facts = watch_topology(scenario, 100'000'000);
            INFO(to_text(kind) << " at frame " << frames << ": " << facts.verdict.violation.oracle << " "
                               << facts.verdict.violation.reason);
            REQUIRE(facts.verdict.held());
            const std::uint64_t left = kind == FaultKind::crash_peer ? 5 : 6;
            CHECK(facts.verdict.faults[static_cast<std::size_t>(kind)] == 1);
            CHECK(facts.verdict.counters.optimized == left);
            CHECK(facts.verdict.counters.committed == left);
        }
    }
}

TEST_CASE("a slow uplink carries the vector once, and not almost twice") {
    PathNetwork network;
    network.peers = 6;
    network.host_rate = 125'000'000;
    network.window = 512 << 10;
    network.elements = 16 << 20;
    network.paths.assign(36, 0);
    for (std::size_t to = 0; to < 6; ++to) network.paths[2 * 6 + to] = network.host_rate / 8;
    const Verdict equal = run(path_scenario(network, false));
    const Verdict unequal = run(path_scenario(network, true));
    INFO(equal.violation.reason << unequal.violation.reason);
    REQUIRE(equal.held());
    REQUIRE(unequal.held());
    // 2 * 5 / 6 of the vector with equal parts, and at least once the vector.
    CHECK(static_cast<double>(unequal.reduce_time) < 0.65 * static_cast<double>(equal.reduce_time));
    CHECK(static_cast<double>(unequal.reduce_time) > 0.55 * static_cast<double>(equal.reduce_time));
}
