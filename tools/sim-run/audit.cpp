#include "tools/sim-run/audit.hpp"

#include "harness/run.hpp"
#include "tools/sim-run/jobs.hpp"

#include <array>
#include <cinttypes>
#include <cstdio>

namespace pccl::tools {

using namespace harness;

namespace {

// An excuse that was used in this many seeds and needed in none is too wide: it forgives what needs no excuse.
constexpr std::uint64_t used_often = 100;
constexpr std::size_t examples_max = 3;

struct Need {
    std::uint64_t used = 0, needed = 0;  // numbers of seeds
    std::array<std::uint64_t, examples_max> examples{};
};
struct Audit {
    std::uint64_t seeds = 0, failed = 0;
    std::array<Need, excuse_kinds> needs{};

    void add(const Audit& other) {
        seeds += other.seeds;
        failed += other.failed;
        for (std::size_t i = 0; i < excuse_kinds; ++i) {
            for (const std::uint64_t seed : other.needs[i].examples) note(needs[i], seed);
            needs[i].used += other.needs[i].used;
            needs[i].needed += other.needs[i].needed;
        }
    }
    static void note(Need& need, std::uint64_t seed) {
        for (std::uint64_t& example : need.examples) {
            if (seed == 0 || example != 0) continue;
            example = seed;
            return;
        }
    }
};

void audit_seed(const Scenario& scenario, std::uint64_t seed, Audit& audit) {
    const Verdict verdict = run(scenario);
    ++audit.seeds;
    if (!verdict.held()) {
        ++audit.failed;
        std::printf("seed %" PRIu64 " FAILED  oracle %s\n", seed, verdict.violation.oracle.c_str());
        return;
    }
    for (std::size_t i = 0; i < excuse_kinds; ++i) {
        if (verdict.excuses[i] == 0) continue;
        Need& need = audit.needs[i];
        ++need.used;
        RunOptions options;
        options.refused = static_cast<Excuse>(i);
        if (run(scenario, options).held()) continue;
        ++need.needed;
        Audit::note(need, seed);
    }
}

}  // namespace

int audit_excuses(std::uint64_t first, std::uint64_t last, std::uint32_t jobs, std::uint32_t classes) {
    GeneratorOptions options;
    options.classes = classes;
    Audit audit;
    const auto job = [&](std::uint32_t number, int end) {
        Audit share;
        for (std::uint64_t seed = first + number; seed <= last; seed += jobs)
            audit_seed(generate(seed, options), seed, share);
        return send(end, &share, sizeof share);
    };
    const auto tell = [&](int end) {
        Audit share;
        if (receive(end, &share, sizeof share)) return audit.add(share);
        ++audit.failed;
        std::printf("a job died without telling its result\n");
    };
    if (!run_jobs(jobs, job, tell)) return 2;
    std::size_t needless = 0;
    std::printf("excuse            used in  needed in  of %" PRIu64 " seeds\n", audit.seeds);
    for (std::size_t i = 0; i < excuse_kinds; ++i) {
        const Need& need = audit.needs[i];
        std::printf("%-16s %8" PRIu64 " %10" PRIu64, to_text(static_cast<Excuse>(i)), need.used, need.needed);
        if (need.needed != 0) std::printf("  by seed");
        for (const std::uint64_t seed : need.examples) {
            if (seed != 0) std::printf(" %" PRIu64, seed);
        }
        const bool is_needless = need.needed == 0 && need.used >= used_often;
        std::printf("%s\n", is_needless ? "  NEVER NEEDED" : "");
        needless += is_needless ? 1 : 0;
    }
    return audit.failed == 0 && needless == 0 ? 0 : 1;
}

}  // namespace pccl::tools
