// Several connections between two neighbours. A dead one costs no more than the patience with a stripe, whichever it
// is, because what the neighbour must receive does not depend on it.
#include "harness/run.hpp"
#include "net-sim/world.hpp"

#include <catch2/catch.hpp>

using namespace pccl;
using namespace pccl::harness;

TEST_CASE(
    "one of four connections that is dead, or stalls one way, holds a collective up for the patience with it alone") {
    for (const FaultKind kind : {FaultKind::half_open, FaultKind::stall}) {
        for (const std::uint64_t side : {0u, 1u}) {
            // First, the two peers dial the master. Then each opens four connections to the other.
            for (std::uint64_t connection = 2; connection < 10; ++connection) {
                Scenario s;
                s.seed = 7;
                s.world.network.latency_low = s.world.network.latency_high = core::millisecond;
                s.limits.slice_bytes = 1024;
                s.limits.eager_bytes = 1024;
                s.limits.scratch_bytes = 16 * 1024;
                s.workload.sync = false;
                s.workload.elements_min = s.workload.elements_max = 100'000;
                s.workload.f32_sum = true;
                s.peers.resize(2);
                for (PeerPlan& plan : s.peers) {
                    plan.turns = 4;  // in the first ones a peer is alone
                    plan.stripes = 4;
                }
                Fault fault;
                fault.kind = kind;
                fault.trigger = static_cast<std::uint32_t>(sim::effect_index<core::SendPayload>() + 1);
                fault.trigger_count = 40;
                fault.at = core::microsecond;
                fault.duration = core::second * 60;
                // The fault hits connection `value % 10`. Bit 32 selects the side.
                fault.value = (side << 32) + connection + (side != 0 ? 10 - (1ull << 32) % 10 : 0);
                s.faults.push_back(fault);
                s.chaos_end = 60 * core::second;
                s.patience = 60 * core::second;
                const Verdict verdict = run(s);
                INFO(to_text(kind) << " of connection " << connection << ", side " << side << ": "
                                   << verdict.violation.reason);
                REQUIRE(verdict.held());
                REQUIRE(verdict.faults[static_cast<std::size_t>(kind)] == 1);
                CHECK(verdict.counters.committed == 4);
                CHECK(verdict.simulated < s.timeouts.peer / 2);
            }
        }
    }
}

TEST_CASE("on a long path, a connection that stalls costs much less than the patience with it") {
    const auto time_with = [](std::uint32_t payload, FaultKind kind, std::uint64_t connection) {
        Scenario s;
        s.seed = 3;
        auto& network = s.world.network;
        network.latency_low = network.latency_high = 20 * core::millisecond;
        network.flow_rate = 125'000'000;
        network.window_low = network.window_high = 8 << 20;
        s.world.symbolic = true;
        s.limits.eager_bytes = 64 << 20;
        s.workload.sync = false;
        s.workload.elements_min = s.workload.elements_max = 64 << 20;
        s.workload.f32_sum = true;
        s.peers.resize(2);
        for (PeerPlan& plan : s.peers) {
            plan.turns = 3;  // in the first ones a peer is alone
            plan.stripes = 8;
        }
        if (payload != 0) {
            Fault fault;
            fault.kind = kind;
            fault.trigger = static_cast<std::uint32_t>(sim::effect_index<core::SendPayload>() + 1);
            fault.trigger_count = payload;
            fault.at = core::microsecond;
            fault.duration = 2 * core::second;
            fault.value = connection;
            s.faults.push_back(fault);
        }
        s.chaos_end = 4 * core::second;
        s.patience = 60 * core::second;
        const Verdict verdict = run(s);
        INFO(to_text(kind) << " of connection " << connection << ": " << verdict.violation.reason);
        REQUIRE(verdict.held());
        CHECK(verdict.counters.aborted == 0);
        const bool hedged = verdict.probes[static_cast<std::size_t>(core::Probe::slice_hedged)] != 0;
        CHECK(hedged == (payload != 0));
        return verdict.simulated;
    };
    const core::Duration undisturbed = time_with(0, FaultKind::stall, 0);
    for (const FaultKind kind : {FaultKind::stall, FaultKind::half_open}) {
        for (const std::uint32_t payload : {1'200u, 1'900u, 2'030u}) {
            for (const std::uint64_t connection : {3u, 11u, 16u})
                CHECK(time_with(payload, kind, connection) < undisturbed + undisturbed / 5);
        }
    }
}
