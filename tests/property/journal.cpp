// A journal that is compacted again and again. The master dies at each of its records, at each of its effects, and with
// a torn record at the end of the journal. It must take up the run from what is left.
#include "harness/run.hpp"
#include "harness/scenario_text.hpp"

#include <catch2/catch.hpp>

using namespace pccl;
using namespace pccl::harness;

namespace {

// Three peers that join, synchronize and reduce. A snapshot follows each decision as soon as it pays off.
Scenario calm(std::uint64_t seed) {
    Scenario s;
    s.seed = seed;
    for (std::uint32_t i = 0; i < 3; ++i) {
        PeerPlan plan;
        plan.start = i * 2 * core::millisecond;
        plan.turns = 5;
        s.peers.push_back(plan);
    }
    s.limits.journal_records = 1;
    s.limits.slice_bytes = 256;
    s.limits.eager_bytes = 1024;
    s.limits.chunk_bytes = 256;
    s.limits.payload_bytes_max = 4096;
    s.timeouts.peer = 2 * core::second;
    s.timeouts.master = 8 * core::second;
    s.workload.pump = true;
    s.workload.tags = 2;
    s.workload.entries = 2;
    s.chaos_end = 2 * core::second;
    s.stop_after = 200 * core::millisecond;
    s.patience = 60 * core::second;
    return s;
}

struct Seen {
    std::uint64_t snapshots_written = 0, snapshots_read = 0, torn = 0, restarts = 0;
};

void hold(const Scenario& scenario, Seen& seen) {
    const Verdict verdict = run(scenario);
    INFO(verdict.violation.oracle << ": " << verdict.violation.reason << "\n" << to_text(scenario));
    REQUIRE(verdict.held());
    const auto hits = [&](core::Probe probe) { return verdict.probes[static_cast<std::size_t>(probe)]; };
    seen.snapshots_written += hits(core::Probe::journal_compacted);
    seen.snapshots_read += hits(core::Probe::snapshot_read);
    seen.torn += hits(core::Probe::journal_torn);
    seen.restarts += hits(core::Probe::master_restarted);
}

Fault death(FaultKind kind, std::uint32_t count) {
    Fault fault;
    fault.kind = kind;
    fault.duration = 20 * core::millisecond;
    fault.b = count;
    return fault;
}

}  // namespace

TEST_CASE("the master dies at each record it issues, snapshots among them") {
    Seen seen;
    for (std::uint32_t count = 1; count <= 120; ++count) {
        Scenario scenario = calm(count);
        Fault fault = death(FaultKind::aimed_master, count);
        fault.value = 256 | (count & 1);  // at an append; with and without a reset of its connections
        scenario.faults.push_back(fault);
        hold(scenario, seen);
    }
    CHECK(seen.restarts >= 100);
    CHECK(seen.snapshots_read >= 100);
}

TEST_CASE("a torn record is at the end, snapshots among them, whenever the master dies") {
    Seen seen;
    for (std::uint32_t count = 1; count <= 120; ++count) {
        for (const core::Duration later : {core::Duration{0}, 20 * core::microsecond, 2 * core::millisecond}) {
            Scenario scenario = calm(1000 + count);
            scenario.world.disk_low = scenario.world.disk_high = core::millisecond;
            Fault fault = death(FaultKind::torn_write, 0);
            fault.trigger = static_cast<std::uint32_t>(sim::effect_index<core::Persist>() + 1);
            fault.trigger_count = count;
            fault.at = later;
            scenario.faults.push_back(fault);
            hold(scenario, seen);
        }
    }
    CHECK(seen.torn >= 50);
    CHECK(seen.snapshots_read >= 200);
}

TEST_CASE("a long run on one journal: many snapshots, and a master that dies now and then") {
    Scenario scenario = calm(7);
    for (PeerPlan& plan : scenario.peers) plan.turns = 180;
    scenario.chaos_end = 20 * core::second;
    for (std::uint32_t i = 1; i <= 12; ++i) {
        Fault fault = death(FaultKind::crash_master, 0);
        fault.at = i * 400 * core::millisecond;
        fault.value = i & 1;
        scenario.faults.push_back(fault);
    }
    Seen seen;
    hold(scenario, seen);
    CHECK(seen.restarts >= 8);
    CHECK(seen.snapshots_read >= 8);
    CHECK(seen.snapshots_written >= 60);
}
