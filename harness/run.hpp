// Runs one scenario to its end and says whether every promise held.
//
// Safety is watched from the first to the last event; when faults have stopped, everybody must come to an end within the
// scenario's patience. Broken assertions of the core become verdicts too (the world of such a run is abandoned as it is).
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
    bool keep_hashes = false;    // one hash per event, and the state of the machine in each
    std::uint64_t items_max = 5'000'000;
    Observation* observation = nullptr;  // filled for a report
    Ledger* ledger = nullptr;            // what programs saw
    sim::StatusWatch* status = nullptr;  // holds what the master tells spectators against what it promised
    Coverage* coverage = nullptr;        // what the run reaches; of the last run, when it is used again
    Reach* reach = nullptr;              // hears what programs ask of the core
    Instant redraw_at = -1;              // from then on everything is drawn from redraw_seed
    std::uint64_t redraw_seed = 0;
    Instant explain_at = -1;         // says then what everybody waits for; core::never: at the end
    Excuse refused = Excuse::count;  // no oracle may use it; count: all may be used
    Lie lie = Lie::none;             // of the application, to see that an oracle is alive
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
    ExcuseCounts excuses{};                                  // how often an oracle forgave something
    std::array<std::uint64_t, sim::effect_kinds> effects{};  // by index of core::Effect
    std::array<std::uint64_t, core::probe_count> probes{};
    std::uint64_t machine_bytes_most = 0;
    std::uint32_t stillness = 0;  // the longest time without progress behind the faults, in per cent of what is allowed
    std::string explanation;
    std::vector<std::uint64_t> hashes;
    bool held() const { return violation.oracle.empty(); }
};

Verdict run(const Scenario& scenario, const RunOptions& options = {});

// Runs twice and compares event by event; a difference is a violation named `determinism`.
Verdict run_twice(const Scenario& scenario, Coverage* coverage = nullptr);

// Takes away faults, peers, turns, workload and everything unusual in the world as long as the same promise is broken and
// `go_on` says so. Left to its end, nothing that is left can be taken away alone.
Scenario shrink(const Scenario& scenario, const sim::Violation& violation, const std::function<bool()>& go_on);

// Collectives and synchronizations that the longest running peer is to do.
std::size_t operations_of(const Scenario& scenario);

}  // namespace pccl::harness
