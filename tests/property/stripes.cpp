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
