// sim-run: runs seeds in the simulator: one seed with its scenario and trace, or a range with statistics.
//
// Exit codes: 0 all held, 1 a promise was broken, 2 usage, 3 a run was not deterministic. With --real, 2 also means
// that the scenario cannot be played here, and 128 + n that signal n ended the run.
#include "core/base/format.hpp"
#include "harness/run.hpp"
#include "harness/scenario_text.hpp"
#include "tools/sim-run/audit.hpp"
#include "tools/sim-run/bench.hpp"
#include "tools/sim-run/classes.hpp"
#include "tools/sim-run/distil.hpp"
#include "tools/sim-run/jobs.hpp"
#include "tools/sim-run/real_run.hpp"
#include "tools/sim-run/report_files.hpp"
#include "tools/sim-run/search.hpp"

#include <CLI/CLI.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using namespace pccl;
using namespace pccl::harness;

struct Choice {
    std::uint64_t first = 0, last = 0;
    std::vector<std::uint64_t> list;  // seeds to run instead of first..last
    std::uint64_t seeds() const { return list.empty() ? last - first + 1 : list.size(); }
    std::uint64_t seed_at(std::uint64_t i) const { return list.empty() ? first + i : list[i]; }
    bool print_scenario = false;
    bool twice = false;
    bool stop_at_first = false;
    bool shrink = false;
    std::uint32_t shrink_seconds = 60;
    bool real = false;
    bool skip_unplayable = false;
    bool probes = false;             // print the table
    std::uint64_t probes_least = 0;  // a probe with fewer hits fails the range
    std::uint32_t jobs = 1;
    std::uint32_t classes = 0xffffffffu;
    std::string trace;  // readable text
    tools::ReportFiles report;
    core::Instant explain_at = -1;
    bool stats = false;
    bool futures = false;     // redraw the futures of a failing run
    std::string save;         // folder for failing scenarios
    std::string file;         // a scenario instead of a generated one
    Scenario scenario;        // of that file
    bool other_seed = false;  // what the file leaves open is drawn from --seed or --seeds, not from its own seed
    std::string replay;       // options for the replay of a failing seed
};

// The results of one job: plain data, sent to its parent through a pipe.
struct Sums {
    std::uint64_t seeds = 0, failed = 0, not_deterministic = 0, first_failed = ~0ull;
    std::uint64_t events = 0, bytes_most = 0, stillness = 0, stillest = 0;
    std::uint64_t traces = 0;  // a sum over all seeds, so their order does not matter
    std::int64_t simulated = 0;
    Counters counters;
    std::array<std::uint64_t, fault_kinds> faults{};
    SecondFaults second_faults;
    ExcuseCounts excuses{};
    std::array<std::uint64_t, sim::effect_kinds> effects{};
    std::array<std::uint64_t, core::probe_count> probes{};

    void add(const Verdict& v, std::uint64_t seed) {
        if (v.stillness > stillness) {
            stillness = v.stillness;
            stillest = seed;
        }
        ++seeds;
        events += v.events;
        traces += sim::mix(v.trace_hash, 1);
        simulated += v.simulated;
        counters += v.counters;
        for (std::size_t i = 0; i < fault_kinds; ++i) faults[i] += v.faults[i];
        second_faults += v.second_faults;
        for (std::size_t i = 0; i < excuse_kinds; ++i) excuses[i] += v.excuses[i];
        for (std::size_t i = 0; i < sim::effect_kinds; ++i) effects[i] += v.effects[i];
        for (std::size_t i = 0; i < core::probe_count; ++i) probes[i] += v.probes[i];
        if (v.machine_bytes_most > bytes_most) bytes_most = v.machine_bytes_most;
    }
    void add(const Sums& s) {
        seeds += s.seeds;
        failed += s.failed;
        not_deterministic += s.not_deterministic;
        if (s.first_failed < first_failed) first_failed = s.first_failed;
        if (s.stillness > stillness) {
            stillness = s.stillness;
            stillest = s.stillest;
        }
        events += s.events;
        traces += s.traces;
        simulated += s.simulated;
        counters += s.counters;
        for (std::size_t i = 0; i < fault_kinds; ++i) faults[i] += s.faults[i];
        second_faults += s.second_faults;
        for (std::size_t i = 0; i < excuse_kinds; ++i) excuses[i] += s.excuses[i];
        for (std::size_t i = 0; i < sim::effect_kinds; ++i) effects[i] += s.effects[i];
        for (std::size_t i = 0; i < core::probe_count; ++i) probes[i] += s.probes[i];
        if (s.bytes_most > bytes_most) bytes_most = s.bytes_most;
    }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Scenario scenario_of(const Choice& choice, std::uint64_t seed) {
    if (!choice.file.empty()) {
        Scenario scenario = choice.scenario;
        if (choice.other_seed) {
            scenario.seed = seed;
            scenario.expectations.clear();  // they are those of its own seed
        }
        return scenario;
    }
    GeneratorOptions options;
    options.classes = choice.classes;
    return generate(seed, options);
}

std::string replay_of(const Choice& choice, std::uint64_t seed) {
    const std::string file = choice.file.empty() ? "" : "--scenario " + choice.file;
    if (!file.empty() && !choice.other_seed) return "sim-run " + file;
    return core::formatted("sim-run {}--seed {}{}", file.empty() ? "" : file + " ", seed, choice.replay);
}

void print_failure(const Choice& choice, std::uint64_t seed, const Verdict& v) {
    const bool by_seed = choice.file.empty() || choice.other_seed;
    std::printf("%s %s FAILED  oracle %s\n  %s\n  replay: %s\n", by_seed ? "seed" : "scenario",
                by_seed ? std::to_string(seed).c_str() : choice.file.c_str(), v.violation.oracle.c_str(),
                v.violation.reason.c_str(), replay_of(choice, seed).c_str());
    std::fflush(stdout);
}

void print_summary(const Sums& s, double wall);

// Writes a failing scenario to a file, which stays valid when the generator changes. `suffix`: for a second scenario of
// the run.
void save_scenario(const Choice& choice, std::uint64_t seed, const char* suffix, const Scenario& scenario,
                   const Verdict& v) {
    // Not the name of the file that was read, because it may be in the same folder.
    std::string what = core::formatted("seed-{}", seed);
    if (!choice.file.empty())
        what = core::formatted("{}{}-failed", std::filesystem::path(choice.file).stem().string(),
                               choice.other_seed ? "-" + what : "");
    const std::string name = core::formatted("{}/{}{}.scenario", choice.save, what, suffix);
    if (!tools::write_scenario(name, scenario, v.violation)) return;
    std::printf("  written to %s\n", name.c_str());
}

int run_one(const Choice& choice) {
    const Scenario scenario = scenario_of(choice, choice.first);
    std::fputs(to_text(scenario).c_str(), stdout);
    if (choice.print_scenario) return 0;
    if (choice.real) return run_for_real(scenario, choice.skip_unplayable);
    RunOptions options;
    options.explain_at = choice.explain_at;
    const auto start = std::chrono::steady_clock::now();
    std::FILE* file = nullptr;
    if (!choice.trace.empty()) {
        file = choice.trace == "-" ? stdout : std::fopen(choice.trace.c_str(), "w");
        if (file == nullptr) {
            std::fprintf(stderr, "sim-run: cannot write %s\n", choice.trace.c_str());
            return 2;
        }
        options.trace = file;
    }
    const std::string replay = replay_of(choice, choice.first);
    bool written = true;
    std::string futures_text;
    const tools::FuturesOf futures = [&](const Scenario& failed, const Verdict& verdict) {
        std::vector<Futures> points;
        if (!choice.futures || verdict.held()) return points;
        const auto begin = std::chrono::steady_clock::now();
        points = draw_futures(failed, verdict,
                              [&] { return seconds_since(begin) < static_cast<double>(choice.shrink_seconds); });
        futures_text = to_text(points);
        return points;
    };
    const Verdict v = choice.twice ? run_twice(scenario)
                      : choice.report.wanted()
                          ? run_and_report(scenario, options, choice.report, replay, futures, written)
                          : run(scenario, options);
    if (!choice.report.wanted()) (void)futures(scenario, v);
    if (file != nullptr && file != stdout) std::fclose(file);
    std::printf("events %" PRIu64 ", simulated %.3f s, committed %" PRIu64 ", aborted %" PRIu64 ", syncs %" PRIu64
                " (%" PRIu64 " failed), connects %" PRIu64 ", lost %" PRIu64 "\n",
                v.events, static_cast<double>(v.simulated) / 1e9, v.counters.committed, v.counters.aborted,
                v.counters.syncs, v.counters.syncs_failed, v.counters.connects, v.counters.lost);
    if (choice.stats) {
        Sums sums;
        const std::uint64_t number = choice.file.empty() ? choice.first : scenario.seed;
        sums.add(v, number);
        sums.failed = v.held() ? 0 : 1;
        sums.first_failed = number;
        print_summary(sums, seconds_since(start));
    }
    if (!v.explanation.empty()) std::printf("%s", v.explanation.c_str());
    if (v.held()) {
        std::printf("verdict held\n");
        if (choice.shrink) std::printf("nothing to shrink: only a run that fails is taken apart\n");
        if (choice.futures) std::printf("no futures: only those of a run that fails are redrawn\n");
    } else {
        print_failure(choice, choice.first, v);
        std::printf("%s", futures_text.c_str());
        if (!choice.save.empty()) save_scenario(choice, choice.first, "", scenario, v);
        if (choice.shrink) {
            const auto begin = std::chrono::steady_clock::now();
            const Scenario small = shrink(scenario, v.violation, [&] {
                return seconds_since(begin) < static_cast<double>(choice.shrink_seconds);
            });
            std::printf("shrunk in %.1f s to %zu faults and %zu operations of %zu peers\n", seconds_since(begin),
                        small.faults.size(), operations_of(small), small.peers.size());
            const Verdict again = choice.report.wanted() ? run_and_report(small, {}, choice.report.shrunk(),
                                                                          replay + " --shrink", futures, written)
                                                         : run(small);
            std::printf("shrunk to:\n%s  %s: %s\n", to_text(small).c_str(), again.violation.oracle.c_str(),
                        again.violation.reason.c_str());
            if (!choice.save.empty()) save_scenario(choice, choice.first, "-shrunk", small, again);
            if (!choice.trace.empty() && choice.trace != "-") {
                if (std::FILE* out = std::fopen((choice.trace + ".shrunk").c_str(), "w")) {
                    RunOptions traced;
                    traced.trace = out;
                    (void)run(small, traced);
                    std::fclose(out);
                }
            }
        }
    }
    std::printf("trace %016" PRIx64 "\n", v.trace_hash);
    if (!written) return 2;
    return v.held() ? 0 : v.violation.oracle == "determinism" ? 3 : 1;
}

// If a run crashes the process (a map without its key, memory out of bounds), its seed is still printed.
volatile std::sig_atomic_t in_a_seed = 0;
std::uint64_t seed_that_runs = 0;

extern "C" void on_crash(int signal) {
    char text[96];
    const int length = std::snprintf(text, sizeof text, "seed %" PRIu64 " FAILED  oracle crash\n  signal %d\n",
                                     seed_that_runs, signal);
    if (in_a_seed != 0 && length > 0) (void)!write(1, text, static_cast<std::size_t>(length));
    _exit(1);
}

void watch_crashes() {
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, &on_crash);
}

// Runs every jobs-th seed.
Sums run_share(const Choice& choice, std::uint32_t job, bool progress, Census& states) {
    Sums sums;
    Coverage coverage(Coverage::Detail::states);
    RunOptions options;
    options.coverage = &coverage;
    const auto start = std::chrono::steady_clock::now();
    double told = 0;
    for (std::uint64_t i = job; i < choice.seeds(); i += choice.jobs) {
        const std::uint64_t seed = choice.seed_at(i);
        const Scenario scenario = scenario_of(choice, seed);
        const bool twice = choice.twice || seed % 20 == 3;
        seed_that_runs = seed;
        in_a_seed = 1;
        const Verdict v = twice ? run_twice(scenario, &coverage) : run(scenario, options);
        in_a_seed = 0;
        sums.add(v, seed);
        states.add(static_cast<std::uint32_t>(i), coverage.states());
        if (!v.held()) {
            ++sums.failed;
            if (v.violation.oracle == "determinism") ++sums.not_deterministic;
            if (seed < sums.first_failed) sums.first_failed = seed;
            print_failure(choice, seed, v);
            if (!choice.save.empty()) save_scenario(choice, seed, "", scenario, v);
            if (choice.stop_at_first) break;
        }
        const double now = seconds_since(start);
        if (progress && now - told >= (isatty(2) != 0 ? 1.0 : 10.0)) {
            told = now;
            std::fprintf(stderr, "%s%" PRIu64 " of %" PRIu64 " seeds, %.0f seeds/s, %" PRIu64 " failed%s",
                         isatty(2) != 0 ? "\r" : "", sums.seeds * choice.jobs, choice.seeds(),
                         static_cast<double>(sums.seeds) * choice.jobs / now, sums.failed,
                         isatty(2) != 0 ? "  " : "\n");
        }
    }
    if (progress && isatty(2) != 0) std::fputs("\n", stderr);
    return sums;
}

void print_summary(const Sums& s, double wall) {
    std::printf("\nseeds %" PRIu64 " in %.1f s: %.0f seeds/s; failed %" PRIu64 "\n", s.seeds, wall,
                static_cast<double>(s.seeds) / wall, s.failed);
    std::printf("operations: committed %" PRIu64 ", aborted %" PRIu64 ", not launched %" PRIu64
                " (counted once per peer)\n",
                s.counters.committed, s.counters.aborted, s.counters.refused);
    std::printf("syncs: committed %" PRIu64 ", failed %" PRIu64 "; connects %" PRIu64 ", lost memberships %" PRIu64
                ", topology updates %" PRIu64 ", optimized %" PRIu64 "\n",
                s.counters.syncs, s.counters.syncs_failed, s.counters.connects, s.counters.lost, s.counters.updates,
                s.counters.optimized);
    std::printf("threads: %" PRIu64 " updates with collectives beside them, %" PRIu64 " calls queued, %" PRIu64
                " memberships aborted, %" PRIu64 " destroyed in a call\n",
                s.counters.beside, s.counters.queued, s.counters.aborted_lives, s.counters.destroyed_lives);
    std::printf("faults injected:");
    for (std::size_t i = 0; i < fault_kinds; ++i) {
        std::printf(" %s %" PRIu64 "%s", to_text(static_cast<FaultKind>(i)), s.faults[i],
                    i + 1 < fault_kinds ? "," : "\n");
    }
    std::printf("of them behind another fault %" PRIu64 ", at a phase or probe %" PRIu64 ", once more %" PRIu64 "\n",
                s.second_faults.behind_faults, s.second_faults.at_phases, s.second_faults.repeated);
    std::printf("excuses used:");
    for (std::size_t i = 0; i < excuse_kinds; ++i) {
        std::printf(" %s %" PRIu64 "%s", to_text(static_cast<Excuse>(i)), s.excuses[i],
                    i + 1 < excuse_kinds ? "," : "\n");
    }
    std::printf("effects:");
    for (std::size_t i = 0; i < sim::effect_kinds; ++i) {
        std::printf(" %s %" PRIu64 "%s", sim::effect_name(i), s.effects[i], i + 1 < sim::effect_kinds ? "," : "\n");
    }
    std::printf("simulated time %.0f s, events %" PRIu64 ", most machine memory %" PRIu64 " bytes\n",
                static_cast<double>(s.simulated) / 1e9, s.events, s.bytes_most);
    std::printf("longest wait without progress behind the faults: %" PRIu64 " %% of the bound (seed %" PRIu64 ")\n",
                s.stillness, s.stillest);
    std::printf("traces %016" PRIx64 "\n", s.traces);
    if (s.failed != 0) std::printf("first failing seed %" PRIu64 "\n", s.first_failed);
}

void print_probes(const Sums& s) {
    std::printf("probes:\n");
    for (std::size_t i = 0; i < core::probe_count; ++i) {
        const core::ProbeText& text = core::probe_texts[i];
        std::printf("%12" PRIu64 "  %-10s  %-32s %s\n", s.probes[i], text.machine, text.name, text.what);
    }
}

// Prints the probes that the range hit too seldom. Each one is a state of the protocol that the scenarios leave out.
std::size_t report_missed_probes(const Sums& s, std::uint64_t least) {
    std::size_t missed = 0;
    for (std::size_t i = 0; i < core::probe_count; ++i) {
        if (s.probes[i] >= least) continue;
        ++missed;
        const core::ProbeText& text = core::probe_texts[i];
        std::printf("probe %s (%s: %s) was hit %" PRIu64 " times, fewer than %" PRIu64 "\n", text.name, text.machine,
                    text.what, s.probes[i], least);
    }
    return missed;
}

// Checks the oracles themselves. Returns 0 if each lie was caught and the run without a lie held.
int run_lies() {
    bool alive = true;
    for (const CanaryLine& line : run_canary()) {
        alive = alive && line.caught();
        std::printf("%-8s %-52s %s\n", line.caught() ? "caught" : "NOT SEEN", line.lie.c_str(),
                    line.reported.empty() ? "held" : line.reported.c_str());
        if (!line.caught()) {
            std::printf("         expected %s\n", line.expected.empty() ? "that it holds" : line.expected.c_str());
        }
    }
    return alive ? 0 : 1;
}

int run_range(const Choice& choice) {
    const auto start = std::chrono::steady_clock::now();
    if (!tools::sanitized) watch_crashes();
    Sums sums;
    Census states;
    if (choice.jobs == 1) {
        sums = run_share(choice, 0, true, states);
    } else {
        const auto job = [&](std::uint32_t i, int end) {
            const Sums share = run_share(choice, i, i == 0, states);
            return tools::send(end, &share, sizeof share) && tools::send(end, states);
        };
        const auto tell = [&](int end) {
            Sums share;
            if (tools::receive(end, &share, sizeof share) && tools::receive_into(end, states)) {
                sums.add(share);
            } else {
                ++sums.failed;
                std::printf("a job died without telling its result\n");
            }
        };
        if (!tools::run_jobs(choice.jobs, job, tell)) return 2;
    }
    print_summary(sums, seconds_since(start));
    std::printf("%s", thoroughness(states, "seeds").c_str());
    if (choice.probes) print_probes(sums);
    const std::size_t missed = report_missed_probes(sums, choice.probes_least);
    if (sums.failed == 0 && missed != 0) return 1;
    return sums.failed == 0 ? 0 : sums.failed == sums.not_deterministic ? 3 : 1;
}

bool parse_range(const std::string& text, Choice& choice) {
    unsigned long long first = 0, last = 0;
    int used = 0;
    if (std::sscanf(text.c_str(), "%llu..%llu%n", &first, &last, &used) != 2 || used != static_cast<int>(text.size()) ||
        last < first)
        return false;
    choice.first = first;
    choice.last = last;
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    Choice choice;
    std::string range;
    std::string classes;
    CLI::App app{"Runs PCCL's core in a simulated world: networks, faults and applications drawn from a seed.",
                 "sim-run"};
    app.set_version_flag("--version", "sim-run " PCCL_VERSION);
    auto* seed =
        app.add_option("--seed", choice.first, "run one seed; prints its scenario, the verdict and the trace hash");
    auto* seeds = app.add_option("--seeds", range, "run a range A..B (both included); prints a summary");
    seed->excludes(seeds);
    auto* file = app.add_option("--scenario", choice.file,
                                "run the scenario of a file; with --seed or --seeds, what it leaves open is drawn from "
                                "these seeds instead of its own");
    std::string list_file;
    auto* seed_list = app.add_option("--seed-list", list_file,
                                     "run the seeds of a file (one a line), as a range; with --search, begin with them")
                          ->excludes(seeds)
                          ->excludes(file);
    app.add_option("--jobs", choice.jobs, "processes for a range or a search")->check(CLI::Range(1, 64));
    app.add_option("--trace", choice.trace,
                   "write an event log of the run to FILE (- for standard output); FILE.json: a trace for Perfetto")
        ->excludes(seeds);
    app.add_option("--report", choice.report.html, "write a page that shows the run to FILE")->excludes(seeds);
    app.add_flag("--print-scenario", choice.print_scenario, "only print the scenario of the seed")->excludes(seeds);
    std::string measured;
    app.add_option("--bench", measured,
                   "measure: paper (published tables, reference and prediction), speed, topology (bandwidth tests), "
                   "scale (1,000 peers), quantized or all")
        ->expected(0, 1)
        ->default_str("all")
        ->check(CLI::IsMember({"paper", "speed", "topology", "scale", "quantized", "all"}));
    bool list = false;
    app.add_flag("--list-faults", list, "print what faults there are and what their numbers mean");
    app.add_flag("--determinism", choice.twice,
                 "run every seed twice and compare each event (a range does so for 5 %)");
    app.add_flag("--shrink", choice.shrink, "remove faults and work from a failing run while it still fails")
        ->excludes(seeds);
    app.add_flag("--futures", choice.futures,
                 "find from which event on a failing run was certain to fail: redraw its future from several instants")
        ->excludes(seeds);
    app.add_option("--shrink-seconds", choice.shrink_seconds, "time limit of --shrink and of --futures")
        ->check(CLI::Range(1, 3600));
    auto* real = app.add_flag("--real", choice.real, "play the scenario with real processes over loopback instead")
                     ->excludes(seeds);
    app.add_flag("--skip-unplayable", choice.skip_unplayable, "leave out what real processes cannot play")->needs(real);
    std::string explain;
    auto* explained = app.add_option(
        "--explain", explain,
        "print which call and machine waits for what: at the end of the run, or at a time such as 12.5 (seconds)");
    explained->expected(0, 1)->default_str("end")->excludes(seeds);
    app.add_flag("--stats", choice.stats, "print for one run the summary that a range ends with")->excludes(seeds);
    tools::SearchChoice searched;
    bool searches = false;
    auto* search = app.add_flag("--search", searches,
                                "search for failures: keep scenarios that reach something new, and mutate them. --seed "
                                "is the seed of the search (default 1)");
    search->excludes(seeds)->excludes(file);
    auto* runs = app.add_option("--runs", searched.runs, "number of runs of a search (default 10000)");
    runs->needs(search)->check(CLI::PositiveNumber);
    app.add_option("--minutes", searched.minutes, "end a search after this time instead")
        ->needs(search)
        ->excludes(runs)
        ->check(CLI::PositiveNumber);
    app.add_option("--scenarios", searched.scenarios, "begin a search with the scenarios of this folder")
        ->needs(search)
        ->check(CLI::ExistingDirectory);
    app.add_option("--corpus", searched.corpus,
                   "begin a search with the scenarios of this folder, and add the scenarios that the search keeps")
        ->needs(search)
        ->check(CLI::ExistingDirectory);
    app.add_option("--save", choice.save, "write failing scenarios into this folder")->check(CLI::ExistingDirectory);
    app.add_flag("--stop-at-first", choice.stop_at_first, "end a range or a search at its first failure");
    bool canary = false;
    app.add_flag("--canary", canary, "check the oracles: each has to report an application that lies to it")
        ->excludes(seed)
        ->excludes(seeds)
        ->excludes(file);
    bool audit = false;
    app.add_flag("--audit-excuses", audit,
                 "repeat each seed of a range without each excuse that its oracles used; fail if no seed needs an "
                 "excuse")
        ->needs(seeds)
        ->excludes(file);
    tools::DistilChoice distilled;
    auto* distil =
        app.add_option("--distil", distilled.file,
                       "choose the seeds of a range that together reach the most rare states, and write them to FILE, "
                       "the best first");
    distil->needs(seeds)->excludes(file);
    distilled.most = 600;
    app.add_option("--keep", distilled.most, "number of seeds that --distil writes (default 600)")
        ->needs(distil)
        ->check(CLI::Range(1, 100'000));
    app.add_flag("--probes", choice.probes, "print how often a range reached each marked state of the protocol")
        ->needs(seeds);
    app.add_option("--probes-min", choice.probes_least, "fail if the range reached a marked state fewer than N times")
        ->needs(seeds);
    app.add_option(
        "--classes", classes,
        "only these fault classes, joined by commas: none latency bandwidth segmentation partition "
        "connection crash master pause limits "
        "application shape clock corrupt hostile journal slow forever steady even liars nat sync (shared state at all) "
        "gangs, hosts (in every run where they fit); all: these without gangs and hosts");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    if (app.count("--bench") != 0) return tools::bench(measured.empty() ? "all" : measured);
    if (tools::is_perfetto(choice.trace)) choice.report.perfetto.swap(choice.trace);
    if (choice.twice && choice.report.wanted()) {
        std::fprintf(stderr, "sim-run: --determinism compares two runs and shows none; run again without it for a "
                             "report or a trace for Perfetto\n");
        return 2;
    }
    if (explained->count() != 0) {
        double seconds = 0;
        int used = 0;
        choice.explain_at = core::never;
        if (!explain.empty() && explain != "end") {
            if (std::sscanf(explain.c_str(), "%lf%n", &seconds, &used) != 1 ||
                used != static_cast<int>(explain.size()) || !(seconds >= 0 && seconds < 1e6)) {
                std::fprintf(stderr, "sim-run: --explain wants a time in seconds, not %s\n", explain.c_str());
                return 2;
            }
            choice.explain_at = static_cast<core::Instant>(seconds * 1e9);
        }
    }
    if (!classes.empty()) {
        choice.replay = " --classes " + classes;
        if (!tools::read_classes(classes, choice.classes)) return 2;
    }
    if (!list_file.empty() && !tools::read_seeds(list_file, choice.list)) return 2;
    if (seed_list->count() != 0 && choice.list.empty()) {
        std::fprintf(stderr, "sim-run: there is no seed in %s\n", list_file.c_str());
        return 2;
    }
    if (seed_list->count() != 0 && seed->count() != 0 && !searches) {
        std::fprintf(stderr, "sim-run: --seed and --seed-list go together with --search only\n");
        return 2;
    }
    if (list) {
        std::fputs(list_faults().c_str(), stdout);
        return 0;
    }
    if (canary) return run_lies();
    if (searches) {
        if (seed->count() != 0) searched.seed = choice.first;
        searched.jobs = choice.jobs;
        searched.classes = choice.classes;
        searched.stop_at_first = choice.stop_at_first;
        searched.save = choice.save;
        searched.first_seeds = choice.list;
        searched.list_file = list_file;
        return tools::search(searched);
    }
    choice.other_seed = seed->count() != 0 || seeds->count() != 0;
    if (file->count() != 0 && !tools::read_scenario(choice.file, choice.scenario)) return 2;
    if (seed->count() != 0 || (file->count() != 0 && seeds->count() == 0)) return run_one(choice);
    if (seeds->count() != 0 && !parse_range(range, choice)) {
        std::fprintf(stderr, "sim-run: --seeds %s is no range; give A..B, with A not above B\n", range.c_str());
        return 2;
    }
    if (choice.list.empty() && seeds->count() == 0) {
        std::fprintf(stderr, "sim-run: give --seed N, --seeds A..B, --seed-list F or --scenario F (see --help)\n");
        return 2;
    }
    if (distil->count() != 0) {
        distilled.first = choice.first;
        distilled.last = choice.last;
        distilled.jobs = choice.jobs;
        distilled.classes = choice.classes;
        distilled.replay = choice.replay;
        distilled.command =
            core::formatted("sim-run --seeds {}{} --distil FILE --keep {}", range, choice.replay, distilled.most);
        return tools::distil(distilled);
    }
    if (audit) return tools::audit_excuses(choice.first, choice.last, choice.jobs, choice.classes);
    return run_range(choice);
}
