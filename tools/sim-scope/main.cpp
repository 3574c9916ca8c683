// Explores small worlds completely: every order of deliveries, and faults at every point (docs/simulator-bridge.md).
#include "core/base/format.hpp"
#include "harness/scope/explore.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <ctime>
#include <string>

namespace {

using namespace pccl::scope;

// True if no violation was found.
bool run(const Scope& scope, const Bounds& bounds, const std::string& options) {
    const std::clock_t began = std::clock();
    const Report report = explore(scope, bounds);
    const double took = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::string verdict = report.complete ? "complete" : pccl::core::formatted("cut at {} states", report.states);
    if (!report.findings.empty()) verdict = "VIOLATED";
    std::printf(
        "%-18s %9llu states %10llu transitions %7llu ends %4llu outcomes, depth %4llu, waits %4.2f s, %6llu states "
        "of machines, %5.1f s of CPU: %s\n",
        scope.name.c_str(), number(report.states), number(report.transitions), number(report.ends),
        number(report.outcomes), number(report.depth), static_cast<double>(report.waited) / 1e9,
        number(report.machine_states), took, verdict.c_str());
    for (const Finding& finding : report.findings) {
        std::printf("  VIOLATION: %s\n  replay: build/bin/sim-scope --scope %s%s --replay '%s'\n", finding.what.c_str(),
                    scope.name.c_str(), options.c_str(), finding.sequence.c_str());
    }
    std::fflush(stdout);
    return report.findings.empty();
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Explores small worlds completely.");
    std::string name, sequence, identity = "memory", lie;
    Bounds bounds;
    int faults = -1, peers = 0;
    bool list = false, nightly = false, all = false, in_place = false, heartbeats = false;
    app.add_flag("--list", list, "list the scopes by name");
    app.add_option("--scope", name, "explore this scope");
    app.add_flag("--nightly", nightly, "explore the scopes marked nightly completely");
    app.add_option("--states", bounds.states, "stop after this number of states");
    app.add_flag("--all", all, "continue after a violation, and print each kind of violation once");
    bool stop = true;
    app.add_flag("--stop-at-first", stop, "stop at the first violation (the default without --all)");
    app.add_option("--replay", sequence, "play the choices that were printed with a violation, and print each message");
    app.add_option("--faults", faults, "the largest number of faults; the scope names their kinds");
    app.add_option("--peers", peers, "number of members, 2 or 3")->check(CLI::Range(2, 3));
    app.add_flag("--in-place", in_place, "reduce in place");
    app.add_flag("--heartbeats", heartbeats, "delay heartbeats, too");
    app.add_option("--identity", identity, "memory: equal states are merged; history: equal histories only")
        ->check(CLI::IsMember({"memory", "history"}));
    app.add_option("--lie", lie,
                   "test the oracles: falsify an observation in some orders, which the exploration must report")
        ->check(CLI::IsMember({"value", "outcome", "input", "memory"}));
    CLI11_PARSE(app, argc, argv);
    if (list) {
        for (const Scope& scope : all_scopes())
            std::printf("%-18s %s%s\n", scope.name.c_str(), scope.about.c_str(), scope.nightly ? " (nightly)" : "");
        return 0;
    }
    bounds.stop_at_first = !all;
    bounds.identity = identity == "memory" ? Identity::memory : Identity::history;
    if (nightly) {
        bool held = true;
        for (const Scope& scope : all_scopes()) {
            if (scope.nightly) held = run(scope, bounds, "") && held;
        }
        return held ? 0 : 1;
    }
    const Scope* const found = find_scope(name);
    if (found == nullptr) {
        std::fprintf(stderr, "sim-scope: no scope of that name; --list prints them\n");
        return 2;
    }
    Scope scope = *found;
    if (faults >= 0) scope.faults = static_cast<std::uint32_t>(faults);
    if (peers != 0) scope.peers = static_cast<std::uint32_t>(peers);
    scope.in_place = scope.in_place || in_place;
    scope.heartbeats = heartbeats;
    if (lie == "value") scope.lie = Lie::value;
    if (lie == "outcome") scope.lie = Lie::outcome;
    if (lie == "input") scope.lie = Lie::input;
    if (lie == "memory") scope.lie = Lie::memory;
    if (app.count("--replay") == 0) {
        std::string options;
        if (faults >= 0) options += pccl::core::formatted(" --faults {}", faults);
        if (peers != 0) options += pccl::core::formatted(" --peers {}", peers);
        if (in_place) options += " --in-place";
        if (heartbeats) options += " --heartbeats";
        if (!lie.empty()) options += " --lie " + lie;
        return run(scope, bounds, options) ? 0 : 1;
    }
    const std::string what = replay(scope, sequence, true);
    std::printf("%s\n", what.empty() ? "held" : ("VIOLATION: " + what).c_str());
    return what.empty() ? 0 : 1;
}
