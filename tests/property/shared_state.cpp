// Shared state in sizes and shapes that seeds do not draw.
#include "harness/run.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>

using namespace pccl;
using namespace pccl::core;
using namespace pccl::harness;

namespace {

// A veteran with a large state, and a peer that joins late. Payload is symbolic (lengths without content), so only
// entries that may differ are transferred.
Scenario large(std::uint64_t seed) {
    Scenario s;
    s.seed = seed;
    s.world.symbolic = true;
    s.world.network.latency_low = s.world.network.latency_high = 100 * microsecond;
    s.world.network.rate_low = s.world.network.rate_high = 10'000'000'000;
    s.world.network.window_low = s.world.network.window_high = 64 << 20;
    for (std::uint32_t i = 0; i < 2; ++i) {
        PeerPlan plan;
        plan.start = i * 300 * millisecond;
        plan.turns = 20;
        plan.rejoins = false;
        s.peers.push_back(plan);
    }
    s.peers[1].turns = 2;
    s.workload.tags = 0;
    s.workload.entries = 1;
    s.limits.chunk_bytes = 4u << 20;
    s.workload.own_entries_per_mille = 1000;
    s.workload.state_elements_min = (1u << 30) + 1;
    s.workload.state_elements_max = 5u << 28;
    s.workload.compute_max = 300 * millisecond;
    s.chaos_end = second;
    s.stop_after = 1000 * second;
    s.patience = 600 * second;
    return s;
}

}  // namespace

TEST_CASE("entries of more than 4 GiB reach a newcomer whole") {
    std::uint64_t most = 0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        const Verdict verdict = run(large(seed));
        INFO("seed " << seed << ": " << verdict.violation.oracle << " " << verdict.violation.reason);
        REQUIRE(verdict.held());
        most = std::max(most, verdict.machine_bytes_most);
    }
    CHECK(most > std::uint64_t{4} << 30);
}

// PCCL_TEST_ENTRIES changes the number (./dev nightly entries: as many as the limit).
TEST_CASE("many entries that all differ reach the other member") {
    const char* text = std::getenv("PCCL_TEST_ENTRIES");
    for (const std::uint32_t key_bytes : {8u, 200u}) {
        Scenario s = large(3);
        s.world.symbolic = false;
        s.peers[1].start = 0;
        for (PeerPlan& plan : s.peers) plan.turns = 3;
        s.workload.entries = text == nullptr ? 20'000 : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
        s.workload.key_bytes = key_bytes;
        s.workload.own_entries_per_mille = 0;
        s.workload.drift_per_mille = 1000;
        s.workload.state_elements_min = 1;
        s.workload.state_elements_max = 2;
        s.workload.compute_max = millisecond;
        s.limits.chunk_bytes = 1u << 20;
        RunOptions options;
        options.items_max = 5'000'000 + 100ull * s.workload.entries;
        const Verdict verdict = run(s, options);
        INFO(verdict.violation.oracle << " " << verdict.violation.reason);
        REQUIRE(verdict.held());
        CHECK(verdict.counters.syncs >= 2);
    }
}
