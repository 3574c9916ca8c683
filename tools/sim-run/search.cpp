#include "tools/sim-run/search.hpp"

#include "core/base/format.hpp"
#include "harness/scenario_text.hpp"
#include "harness/search.hpp"
#include "tools/sim-run/classes.hpp"
#include "tools/sim-run/jobs.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace pccl::tools {

using namespace pccl::harness;

namespace {

// Plain data, sent through a pipe.
struct Totals {
    std::uint64_t runs = 0, mutated = 0, kept = 0, failed = 0, not_deterministic = 0, first_failed = ~0ull;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string search_command(const SearchChoice& choice, std::uint64_t run) {
    std::string text = core::formatted("sim-run --search --seed {} --runs {}", choice.seed, run);
    if (choice.jobs != 1) text += core::formatted(" --jobs {}", choice.jobs);
    if (!choice.list_file.empty()) text += " --seed-list " + choice.list_file;
    if (!choice.scenarios.empty()) text += " --scenarios " + choice.scenarios;
    if (!choice.corpus.empty()) text += " --corpus " + choice.corpus;
    return text;
}

// `from`: where the scenario was read from; empty: it was drawn or changed.
void print_failure(const SearchChoice& choice, std::uint64_t run, const Scenario& scenario, const Verdict& verdict,
                   const std::string& from) {
    std::printf("run %" PRIu64 " FAILED  oracle %s\n  %s\n", run, verdict.violation.oracle.c_str(),
                verdict.violation.reason.c_str());
    if (!from.empty()) {
        std::printf("  replay: sim-run --scenario %s\n", from.c_str());
        std::fflush(stdout);
        return;
    }
    const std::string file = core::formatted("{}/search-{}-{}.scenario", choice.save, choice.seed, run);
    if (!choice.save.empty() && write_scenario(file, scenario, verdict.violation)) {
        std::printf("  replay: sim-run --scenario %s\n", file.c_str());
    } else {
        std::printf("%s  replay: put the text from pccl-scenario to claim into F; sim-run --scenario F\n",
                    to_text(scenario).c_str());
    }
    std::fflush(stdout);
}

// If a run crashes the process, its scenario is still printed.
std::string scenario_that_runs;

extern "C" void on_crash_in_search(int) {
    static constexpr char begin[] = "run ? FAILED  oracle crash\n";
    (void)!write(1, begin, sizeof begin - 1);
    (void)!write(1, scenario_that_runs.data(), scenario_that_runs.size());
    _exit(1);
}

void watch_crashes() {
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, &on_crash_in_search);
}

std::vector<std::string> files_of(const std::string& folder, const std::set<std::string>& but = {}) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".scenario" && !but.contains(entry.path().string()))
            files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    return files;
}

// What a search begins with: a line of the file "first" in the folder of its scenarios. It names one of them, or a seed
// and the fault classes from which its scenario is drawn.
struct First {
    std::string file;  // empty: a seed
    std::uint64_t seed = 0;
    std::uint32_t classes = 0;
};

std::vector<First> first_of(const std::string& folder, std::uint32_t classes) {
    std::vector<First> first;
    std::ifstream lines(folder + "/first");
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string word, of;
        First one;
        one.classes = classes;
        if (words >> word && word != "seed")
            one.file = folder + "/" + word;
        else if (!(words >> one.seed) || (words >> of && !tools::read_classes(of, one.classes)))
            continue;
        first.push_back(one);
    }
    return first;
}

// One process of the command, with its own search.
class Job {
public:
    Job(const SearchChoice& choice, std::uint32_t job)
        : choice_(choice), job_(job), search_(choice.seed, options_of(choice), job, choice.jobs) {}

    Totals run() {
        if (!choice_.corpus.empty()) {
            const std::vector<std::string> files = files_of(choice_.corpus);
            for (std::size_t i = job_; i < files.size() && !over(); i += choice_.jobs) {
                Scenario scenario;
                if (read_scenario(files[i], scenario)) play(scenario, false, files[i]);
            }
        }
        // Then kept scenarios and seeds in turn, as long as there are both.
        std::vector<std::string> kept;
        std::size_t place = 0;
        if (!choice_.scenarios.empty()) {
            std::set<std::string> played;
            for (const First& one : first_of(choice_.scenarios, choice_.classes)) {
                played.insert(one.file);
                if (place++ % choice_.jobs != job_) continue;
                if (over()) break;
                Scenario scenario;
                GeneratorOptions options;
                options.classes = one.classes;
                if (one.file.empty() || read_scenario(one.file, scenario))
                    play(one.file.empty() ? generate(one.seed, options) : scenario, false, one.file);
            }
            kept = files_of(choice_.scenarios, played);
        }
        for (std::size_t i = 0; i < std::max(kept.size(), choice_.first_seeds.size()) && !over(); ++i) {
            Scenario scenario;
            if (i < kept.size() && place++ % choice_.jobs == job_ && read_scenario(kept[i], scenario))
                play(scenario, false, kept[i]);
            if (i < choice_.first_seeds.size() && !over() && place++ % choice_.jobs == job_)
                play(generate(choice_.first_seeds[i], options_of(choice_)), false);
        }
        while (!over()) play(search_.next(), true);
        totals_.runs = search_.runs();
        totals_.mutated = search_.mutated();
        totals_.kept = search_.corpus().size();
        if (job_ == 0 && isatty(2) != 0) std::fputs("\n", stderr);
        return totals_;
    }
    const Search& search() const { return search_; }

private:
    static GeneratorOptions options_of(const SearchChoice& choice) {
        GeneratorOptions options;
        options.classes = choice.classes;
        return options;
    }
    bool over() const {
        if (choice_.stop_at_first && totals_.failed != 0) return true;
        if (choice_.minutes != 0) return seconds_since(start_) >= 60 * choice_.minutes;
        return search_.runs() >= (choice_.runs + choice_.jobs - 1 - job_) / choice_.jobs;
    }

    void play(const Scenario& scenario, bool is_new, const std::string& from = {}) {
        const std::uint64_t run = search_.runs() * choice_.jobs + job_ + 1;
        scenario_that_runs = to_text(scenario);
        RunOptions options;
        options.coverage = &coverage_;
        // One run of 20 is made twice: both must have the same trace.
        const Verdict verdict =
            search_.runs() % 20 == 3 ? run_twice(scenario, &coverage_) : harness::run(scenario, options);
        const bool kept = search_.learn(scenario, verdict, coverage_);
        if (kept && is_new && !choice_.corpus.empty()) {
            const std::uint64_t name = core::numeric::checksum64(scenario_that_runs.data(), scenario_that_runs.size());
            (void)write_scenario(core::formatted("{}/{:016x}.scenario", choice_.corpus, name), scenario, {});
        }
        if (!verdict.held()) {
            ++totals_.failed;
            if (verdict.violation.oracle == "determinism") ++totals_.not_deterministic;
            totals_.first_failed = std::min(totals_.first_failed, run);
            print_failure(choice_, run, scenario, verdict, from);
        }
        const double now = seconds_since(start_);
        if (job_ != 0 || now - told_ < (isatty(2) != 0 ? 1.0 : 10.0)) return;
        told_ = now;
        std::fprintf(stderr, "%s%" PRIu64 " runs, %.0f runs/s, %zu kept, %zu marks, %" PRIu64 " failed%s",
                     isatty(2) != 0 ? "\r" : "", search_.runs() * choice_.jobs,
                     static_cast<double>(search_.runs()) * choice_.jobs / now, search_.corpus().size(),
                     search_.marks().size(), totals_.failed, isatty(2) != 0 ? "  " : "\n");
    }

    const SearchChoice& choice_;
    std::uint32_t job_;
    Search search_;
    Coverage coverage_{Coverage::Detail::all};
    Totals totals_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    double told_ = 0;
};

}  // namespace

int search(const SearchChoice& choice) {
    const auto start = std::chrono::steady_clock::now();
    if (!sanitized) watch_crashes();
    Totals totals;
    Census states, marks;
    bool lost = false;
    if (choice.jobs == 1) {
        Job job(choice, 0);
        totals = job.run();
        states = job.search().states();
        marks = job.search().marks();
    } else {
        const auto job = [&](std::uint32_t i, int end) {
            Job share(choice, i);
            const Totals sums = share.run();
            return send(end, &sums, sizeof sums) && send(end, share.search().states()) &&
                   send(end, share.search().marks());
        };
        const auto tell = [&](int end) {
            Totals share;
            if (!receive(end, &share, sizeof share) || !receive_into(end, states) || !receive_into(end, marks)) {
                lost = true;
                std::printf("a job died without telling its result\n");
                return;
            }
            totals.runs += share.runs;
            totals.mutated += share.mutated;
            totals.kept += share.kept;
            totals.failed += share.failed;
            totals.not_deterministic += share.not_deterministic;
            totals.first_failed = std::min(totals.first_failed, share.first_failed);
        };
        if (!run_jobs(choice.jobs, job, tell)) return 2;
    }
    const double wall = seconds_since(start);
    std::printf("\nsearch %" PRIu64 ": %" PRIu64 " runs in %.1f s (%.0f runs/s), %" PRIu64
                " of changed scenarios; %" PRIu64 " kept; %zu marks; failed %" PRIu64 "\n",
                choice.seed, totals.runs, wall, static_cast<double>(totals.runs) / wall, totals.mutated, totals.kept,
                marks.size(), totals.failed);
    std::printf("%s", thoroughness(states, "runs").c_str());
    if (totals.failed != 0)
        std::printf("first failing run %" PRIu64 "; the same search: %s\n", totals.first_failed,
                    search_command(choice, totals.first_failed).c_str());
    if (totals.failed == 0) return lost ? 1 : 0;
    return totals.failed == totals.not_deterministic ? 3 : 1;
}

}  // namespace pccl::tools
