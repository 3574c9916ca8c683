// A recorded run for people: one HTML page that needs nothing else, and a Chrome trace for Perfetto.
//
// Both are written from the same model: bars (calls and operations with their outcome), faults, processes and messages.
#pragma once

#include "harness/futures.hpp"
#include "harness/observation.hpp"
#include "harness/run.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::harness::report {

struct Subject {
    const Scenario& scenario;
    const Verdict& verdict;
    const Observation& observation;
    std::string replay;                 // the command that runs this again
    std::vector<Futures> futures = {};  // of a run that failed, if somebody asked for them
};

// Runs with a recorder of at most `entries_max` entries. A run that has more is run again, so that what is kept is the
// part before the violation; a run that held keeps its first part.
Verdict run_recorded(const Scenario& scenario, const RunOptions& options, Observation& observation,
                     std::uint64_t entries_max = 100'000);

enum class Outcome : std::uint8_t { success, failed, unanswered };

struct Bar {  // a call, or an operation from its launch to the return of its await
    std::uint32_t node = 0;
    Instant begin = 0;
    Instant end = 0;  // when unanswered: the end of the process, of its membership, or of the run
    Outcome outcome = Outcome::success;
    core::Tag tag = 0;  // operations
    std::string label;
    std::string detail;
    bool concerned = false;  // the violation speaks of it
};

struct Focus {
    Instant begin = 0, end = 0;
};

// In the order of their begins. Bars of one node do not overlap, operations of one node and tag do not overlap.
std::vector<Bar> calls(const Subject& subject);
std::vector<Bar> operations(const Subject& subject);
// What to look at first.
Focus focus(const Subject& subject, const std::vector<Bar>& calls, const std::vector<Bar>& operations);

std::string fault_text(const Subject& subject, const FaultSpan& fault);
// Names of peers in texts, as in logs, with the node behind them: "b907f615" becomes "b907f615(peer2)".
std::string with_nodes(const Observation& observation, const std::string& text);
// Whether a node has a place in the report: a second master and strangers only if they did something.
std::vector<bool> nodes_shown(const Subject& subject);

std::string to_html(const Subject& subject);
std::string to_perfetto(const Subject& subject);

}  // namespace pccl::harness::report
