// Synchronizations with small tables of holders.
#include "core/base/probe.hpp"
#include "harness/run.hpp"
#include "net-sim/describe.hpp"

#include <catch2/catch.hpp>

using namespace pccl;
using namespace pccl::core;
using namespace pccl::harness;

namespace {

// The table of a newcomer has room for one holder, which dies in the middle of its transfer.
Scenario one_holder_known() {
    Scenario s;
    s.seed = 1;
    s.world.network.latency_low = s.world.network.latency_high = 2 * millisecond;
    s.world.network.rate_low = s.world.network.rate_high = 100'000;
    for (std::uint32_t i = 0; i < 3; ++i) {
        PeerPlan plan;
        plan.start = i == 2 ? second : 0;
        plan.turns = 30;
        plan.rejoins = false;
        s.peers.push_back(plan);
    }
    s.workload.tags = 0;
    s.workload.entries = 1;
    s.workload.state_elements_min = s.workload.state_elements_max = 50'000;
    s.workload.compute_max = 400 * millisecond;
    s.limits.chunk_bytes = 1024;
    s.limits.sources_max = s.limits.sources_active_max = 1;
    s.limits.holders_told_max = s.limits.holders_told_again_max = 1;
    s.timeouts.peer = second;
    Fault crash;
    crash.kind = FaultKind::crash_peer;
    crash.trigger = static_cast<std::uint32_t>(sim::effect_index<ReceivePayload>() + 1);
    crash.trigger_count = 400;  // chunks, so the newcomer has some of them
    crash.a = 1;
    s.faults.push_back(crash);
    s.chaos_end = 30 * second;
    s.stop_after = 60 * second;
    s.patience = 200 * second;
    return s;
}

}  // namespace

TEST_CASE("a dead holder keeps no place in a full table from a living one") {
    const Verdict verdict = run(one_holder_known());
    const auto hits = [&](Probe probe) { return verdict.probes[static_cast<std::size_t>(probe)]; };
    INFO(verdict.violation.oracle << " " << verdict.violation.reason);
    REQUIRE(verdict.held());
    CHECK(hits(Probe::sync_source_forgotten) > 0);
    CHECK(hits(Probe::sync_no_holder) == 0);
}
