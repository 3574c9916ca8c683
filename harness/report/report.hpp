// Shows a recorded run to people: as one self-contained HTML page, and as a Chrome trace for Perfetto.
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
    std::string replay;                 // the command that repeats this run
    std::vector<Futures> futures = {};  // of a failed run, if they were requested
};

// Runs with a recorder of at most `entries_max` entries. If a failed run has more, it is run again to keep the part
// before the violation. A run that held keeps its first part.
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
    bool concerned = false;  // the violation is about it
};

struct Focus {
    Instant begin = 0, end = 0;
};

// In the order of their begins. Operations of one node and tag overlap only if they are sends. Calls of one node overlap only if its
// program has several threads.
std::vector<Bar> calls(const Subject& subject);
std::vector<Bar> operations(const Subject& subject);
// The part of the run to look at first.
Focus focus(const Subject& subject, const std::vector<Bar>& calls, const std::vector<Bar>& operations);

std::string fault_text(const Subject& subject, const FaultSpan& fault);
// Adds the node after each name of a peer in a text, for example a log line: "b907f615" becomes "b907f615(peer2)".
std::string with_nodes(const Observation& observation, const std::string& text);
// Whether each node is shown in the report. A second master and strangers are shown only if they did something.
std::vector<bool> nodes_shown(const Subject& subject);

std::string to_html(const Subject& subject);
std::string to_perfetto(const Subject& subject);

}  // namespace pccl::harness::report
