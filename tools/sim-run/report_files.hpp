// The files that show one run to people: an HTML page and a Chrome trace, written after the run from its recording.
#pragma once

#include "harness/futures.hpp"
#include "harness/run.hpp"

#include <functional>
#include <string>
#include <vector>

namespace pccl::tools {

struct ReportFiles {
    std::string html;      // empty: none
    std::string perfetto;  // empty: none
    bool wanted() const { return !html.empty() || !perfetto.empty(); }
    // The same files for the shrunk scenario: "run.html" becomes "run.shrunk.html".
    ReportFiles shrunk() const;
};

// A trace is written for Perfetto when its name says JSON, else as text.
bool is_perfetto(const std::string& trace_file);

using FuturesOf = std::function<std::vector<harness::Futures>(const harness::Scenario&, const harness::Verdict&)>;

// Runs with a recorder and writes the files. `replay` is the command that runs this again. What cannot be written is told
// on standard error and in `written`.
harness::Verdict run_and_report(const harness::Scenario& scenario, const harness::RunOptions& options,
                                const ReportFiles& files, const std::string& replay, const FuturesOf& futures,
                                bool& written);

}  // namespace pccl::tools
