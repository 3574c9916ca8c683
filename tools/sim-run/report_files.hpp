// The files that show one run: an HTML page and a Chrome trace, written after the run from its recording.
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

// True if the name ends in .json: the trace is then written for Perfetto, otherwise as text.
bool is_perfetto(const std::string& trace_file);

using FuturesOf = std::function<std::vector<harness::Futures>(const harness::Scenario&, const harness::Verdict&)>;

// Runs the scenario with a recorder and writes the files. `replay` is the command that repeats the run. If a file
// cannot be written, prints that on standard error and sets `written` to false.
harness::Verdict run_and_report(const harness::Scenario& scenario, const harness::RunOptions& options,
                                const ReportFiles& files, const std::string& replay, const FuturesOf& futures,
                                bool& written);

}  // namespace pccl::tools
