// Runs one scenario to its end and returns whether every promise held.
//
// Safety is checked from the first to the last event. When the faults have stopped, every program must come to its end
// within the scenario's patience. A broken assertion of the core becomes a verdict too; the world of such a run is
// leaked.
#pragma once

#include "core/base/probe.hpp"
#include "harness/canary.hpp"
#include "harness/coverage.hpp"
#include "harness/excuses.hpp"
#include "harness/observation.hpp"
#include "harness/process.hpp"
#include "harness/reach.hpp"
#include "harness/scenario.hpp"
#include "harness/triggers.hpp"
#include "net-sim/world.hpp"

#include <array>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace pccl::harness {

struct RunOptions {
    std::FILE* trace = nullptr;  // readable event log
    bool keep_hashes = false;    // one hash per event; it covers the state of the machine
    std::uint64_t items_max = 5'000'000;
    Observation* observation = nullptr;  // filled for a report
    Ledger* ledger = nullptr;            // what programs saw
    sim::StatusWatch* status = nullptr;  // compares the master's status with what it promised
    Coverage* coverage = nullptr;        // what the run reaches; only the last run if it is used again
    Reach* reach = nullptr;              // observes commands and configurations
    Instant redraw_at = -1;              // from then on everything is drawn from redraw_seed; -1: never
    std::uint64_t redraw_seed = 0;
    Instant explain_at = -1;         // when to explain what programs wait for; core::never: at the end
    Excuse refused = Excuse::count;  // no oracle may use it; count: all may be used
    Lie lie = Lie::none;             // a lie of the application, which an oracle must report
};

struct Verdict {
    sim::Violation violation;  // empty oracle: all held
    std::uint64_t trace_hash = 0;
    std::uint64_t events = 0;
    Instant simulated = 0;
    Counters counters;
    Duration reduce_time = 0;  // from the last launch to the last return of collectives that succeeded
    std::array<std::uint64_t, fault_kinds> faults{};
    SecondFaults second_faults;
    ExcuseCounts excuses{};                                  // how often oracles used each
    std::array<std::uint64_t, sim::effect_kinds> effects{};  // by index of core::Effect
    std::array<std::uint64_t, core::probe_count> probes{};
    std::uint64_t machine_bytes_most = 0;
    std::vector<Instant>
        removals;                 // of members that the master removed, without those that left; for expectations alone
    std::uint32_t stillness = 0;  // longest time without progress after the faults, in per cent of the bound
    std::string explanation;
    std::vector<std::uint64_t> hashes;
    bool held() const { return violation.oracle.empty(); }
};

Verdict run(const Scenario& scenario, const RunOptions& options = {});

// Runs twice and compares event by event; a difference is a violation named `determinism`.
Verdict run_twice(const Scenario& scenario, Coverage* coverage = nullptr);

// Removes faults, peers, turns, workload and unusual settings of the world, as long as the same promise is broken and
// `go_on` returns true. If it is not stopped early, no single remaining part can be removed.
Scenario shrink(const Scenario& scenario, const sim::Violation& violation, const std::function<bool()>& go_on);

// The number of collectives and synchronizations of the peer with the most turns.
std::size_t operations_of(const Scenario& scenario);

}  // namespace pccl::harness
