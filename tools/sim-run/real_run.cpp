#include "tools/sim-run/real_run.hpp"

#include "harness/real/bridge.hpp"
#include "harness/real/child_process.hpp"
#include "harness/scenario_text.hpp"

#include <cinttypes>
#include <cstdio>
#include <unistd.h>

namespace pccl {

using namespace harness;

namespace {

constexpr int exit_held = 0, exit_broken = 1, exit_cannot_be_played = 2, exit_signal = 128;

void print_sums(const BridgeVerdict& v) {
    std::printf("real: %.3f s, %" PRIu32 " peer processes, %" PRIu64 " bytes forwarded; committed %" PRIu64
                ", aborted %" PRIu64 ", syncs %" PRIu64 " (%" PRIu64 " failed), connects %" PRIu64 ", lost %" PRIu64
                "\n",
                static_cast<double>(v.took) / 1e9, v.processes, v.bytes_forwarded, v.counters.committed,
                v.counters.aborted, v.counters.syncs, v.counters.syncs_failed, v.counters.connects, v.counters.lost);
    std::printf("faults played:");
    bool any = false;
    for (std::size_t i = 0; i < fault_kinds; ++i) {
        if (v.faults[i] == 0) continue;
        any = true;
        std::printf(" %s %" PRIu64, to_text(static_cast<FaultKind>(i)), v.faults[i]);
    }
    std::printf("%s\n", any ? "" : " none");
}

}  // namespace

int run_for_real(const Scenario& scenario, bool skip_unplayable) {
    const std::vector<std::string> lines = unplayable(scenario);
    for (const std::string& line : lines)
        std::fprintf(stderr, "sim-run: %s: %s\n", skip_unplayable ? "left out" : "cannot be played for real",
                     line.c_str());
    if (!lines.empty() && !skip_unplayable) {
        std::fprintf(stderr, "sim-run: --skip-unplayable plays the rest\n");
        return exit_cannot_be_played;
    }
    std::fflush(stdout);
    BridgeOptions options;
    options.programs = program_directory();
    options.progress = isatty(STDERR_FILENO) != 0;
    const BridgeVerdict v = run_real(playable_part(scenario), options);
    if (v.interrupted_by != 0) return exit_signal + v.interrupted_by;
    if (!v.machine_error.empty()) {
        std::fprintf(stderr, "sim-run: %s%s%s\n", v.machine_error.c_str(), v.logs.empty() ? "" : "; logs are in ",
                     v.logs.c_str());
        return exit_cannot_be_played;
    }
    print_sums(v);
    if (v.held()) {
        std::printf("verdict held\n");
        return exit_held;
    }
    std::printf("FAILED for real  oracle %s\n  %s\n  what each process wrote is in %s\n", v.violation.oracle.c_str(),
                v.violation.reason.c_str(), v.logs.c_str());
    return exit_broken;
}

}  // namespace pccl
