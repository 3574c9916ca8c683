#include "tools/sim-run/distil.hpp"

#include "harness/distil.hpp"
#include "harness/run.hpp"
#include "harness/scenario.hpp"
#include "tools/sim-run/jobs.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pccl::tools {

using namespace pccl::harness;

namespace {

// Runs every jobs-th seed from first + job on. False if one failed.
bool run_share(const DistilChoice& choice, std::uint32_t job, Distillery& distillery) {
    Coverage coverage(Coverage::Detail::all);
    RunOptions options;
    options.coverage = &coverage;
    GeneratorOptions generator;
    generator.classes = choice.classes;
    bool held = true;
    for (std::uint64_t seed = choice.first + job; seed <= choice.last; seed += choice.jobs) {
        const Verdict verdict = run(generate(seed, generator), options);
        if (verdict.held()) {
            distillery.add(seed, verdict.events, coverage.marks());
            continue;
        }
        held = false;
        std::printf("seed %" PRIu64 " FAILED  oracle %s\n  %s\n  replay: sim-run --seed %" PRIu64 "%s\n", seed,
                    verdict.violation.oracle.c_str(), verdict.violation.reason.c_str(), seed, choice.replay.c_str());
    }
    return held;
}

// Sends the runs of a job and their marks to the parent.
bool tell_share(int end, const Distillery& distillery, bool held) {
    const std::uint64_t sizes[] = {held ? 1u : 0u, distillery.runs().size(), distillery.marks().size()};
    return send(end, sizes, sizeof sizes) &&
           send(end, distillery.runs().data(), distillery.runs().size() * sizeof(Distillery::Run)) &&
           send(end, distillery.marks().data(), distillery.marks().size() * sizeof(Mark));
}

bool hear_share(int end, Distillery& distillery) {
    std::uint64_t sizes[3] = {};
    if (!receive(end, sizes, sizeof sizes)) return false;
    std::vector<Distillery::Run> runs(sizes[1]);
    std::vector<Mark> marks(sizes[2]);
    if (!receive(end, runs.data(), runs.size() * sizeof(Distillery::Run)) ||
        !receive(end, marks.data(), marks.size() * sizeof(Mark)))
        return false;
    const Mark* at = marks.data();
    for (const Distillery::Run& run : runs) {
        distillery.add(run.seed, run.events, {at, run.marks});
        at += run.marks;
    }
    return sizes[0] == 1;
}

}  // namespace

int distil(const DistilChoice& choice) {
    Distillery distillery;
    bool held = true;
    const auto job = [&](std::uint32_t i, int end) {
        Distillery share;
        const bool all_held = run_share(choice, i, share);
        return tell_share(end, share, all_held);
    };
    const auto tell = [&](int end) { held = hear_share(end, distillery) && held; };
    if (!run_jobs(choice.jobs, job, tell)) return 2;
    const Distillery::Choice chosen = distillery.choose(choice.most);
    std::FILE* out = std::fopen(choice.file.c_str(), "w");
    if (out == nullptr) {
        std::fprintf(stderr, "sim-run: cannot write %s: %s\n", choice.file.c_str(), std::strerror(errno));
        return 2;
    }
    std::fprintf(out, "# Seeds whose runs reach the most of what few runs reach, the best first. Written by\n# %s\n",
                 choice.command.c_str());
    std::fprintf(out, "# %zu marks are rare; %zu of them are reached by these runs.\n", chosen.rare, chosen.reached);
    for (const std::uint64_t seed : chosen.seeds) std::fprintf(out, "%" PRIu64 "\n", seed);
    const bool written = std::fclose(out) == 0;
    std::printf("%zu of %" PRIu64 " seeds reach %zu of %zu rare marks: %s\n", chosen.seeds.size(),
                choice.last - choice.first + 1, chosen.reached, chosen.rare, choice.file.c_str());
    if (!held) std::printf("some seeds failed, or a job died; they are not in it\n");
    if (!written) return 2;
    return held ? 0 : 1;
}

bool read_seeds(const std::string& file, std::vector<std::uint64_t>& seeds) {
    std::FILE* in = std::fopen(file.c_str(), "r");
    if (in == nullptr) {
        std::fprintf(stderr, "sim-run: cannot read %s: %s\n", file.c_str(), std::strerror(errno));
        return false;
    }
    char line[256];
    bool sound = true;
    for (unsigned number = 1; sound && std::fgets(line, sizeof line, in) != nullptr; ++number) {
        line[std::strcspn(line, "#\r\n")] = '\0';
        char* end = line;
        while (*end == ' ') ++end;
        if (*end == '\0') continue;
        errno = 0;
        const unsigned long long seed = std::strtoull(line, &end, 10);
        sound = errno == 0 && end != line && *end == '\0' && std::strchr(line, '-') == nullptr;
        if (sound)
            seeds.push_back(seed);
        else
            std::fprintf(stderr, "%s:%u: not a seed; expected a number\n", file.c_str(), number);
    }
    std::fclose(in);
    return sound;
}

}  // namespace pccl::tools
