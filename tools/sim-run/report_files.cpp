#include "tools/sim-run/report_files.hpp"

#include "core/base/format.hpp"
#include "harness/report/report.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace pccl::tools {
namespace {

std::string shrunk_name(const std::string& file) {
    if (file.empty()) return file;
    const std::size_t slash = file.rfind('/');
    const std::size_t dot = file.rfind('.');
    if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) return file + ".shrunk";
    return core::formatted("{}.shrunk{}", file.substr(0, dot), file.substr(dot));
}

bool write_file(const std::string& file, const std::string& content) {
    std::FILE* out = file == "-" ? stdout : std::fopen(file.c_str(), "w");
    bool good = out != nullptr && std::fwrite(content.data(), 1, content.size(), out) == content.size();
    if (out != nullptr && out != stdout) good = std::fclose(out) == 0 && good;
    if (!good) std::fprintf(stderr, "sim-run: cannot write %s: %s\n", file.c_str(), std::strerror(errno));
    return good;
}

}  // namespace

ReportFiles ReportFiles::shrunk() const { return ReportFiles{shrunk_name(html), shrunk_name(perfetto)}; }

bool is_perfetto(const std::string& trace_file) { return trace_file.ends_with(".json"); }

harness::Verdict run_and_report(const harness::Scenario& scenario, const harness::RunOptions& options,
                                const ReportFiles& files, const std::string& replay, const FuturesOf& futures,
                                bool& written) {
    harness::Observation observation;
    harness::Verdict verdict = harness::report::run_recorded(scenario, options, observation);
    const harness::report::Subject subject{scenario, verdict, observation, replay, futures(scenario, verdict)};
    written = true;
    if (!files.html.empty()) written &= write_file(files.html, harness::report::to_html(subject));
    if (!files.perfetto.empty()) written &= write_file(files.perfetto, harness::report::to_perfetto(subject));
    return verdict;
}

}  // namespace pccl::tools
