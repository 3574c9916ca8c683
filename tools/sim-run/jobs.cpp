#include "tools/sim-run/jobs.hpp"

#include "harness/scenario_text.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace pccl::tools {

using namespace pccl::harness;

bool send(int end, const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes != 0) {
        const ssize_t wrote = write(end, at, bytes);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        at += wrote;
        bytes -= static_cast<std::size_t>(wrote);
    }
    return true;
}

bool receive(int end, void* data, std::size_t bytes) {
    char* at = static_cast<char*>(data);
    while (bytes != 0) {
        const ssize_t got = read(end, at, bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

bool send(int end, const Census& census) {
    const std::vector<Census::Entry> entries = census.entries();
    const std::uint64_t sizes[] = {census.runs(), entries.size()};
    return send(end, sizes, sizeof sizes) && send(end, entries.data(), entries.size() * sizeof(Census::Entry));
}

bool receive_into(int end, Census& census) {
    std::uint64_t sizes[2] = {};
    if (!receive(end, sizes, sizeof sizes)) return false;
    std::vector<Census::Entry> entries(sizes[1]);
    if (!receive(end, entries.data(), entries.size() * sizeof(Census::Entry))) return false;
    census.merge(entries, sizes[0]);
    return true;
}

bool run_jobs(std::uint32_t jobs, const std::function<bool(std::uint32_t, int)>& job,
              const std::function<void(int)>& tell) {
    std::vector<int> pipes;
    for (std::uint32_t i = 0; i < jobs; ++i) {
        int ends[2];
        if (pipe(ends) != 0) return false;
        std::fflush(nullptr);  // or the child would print the buffered text again
        const pid_t child = fork();
        if (child < 0) return false;
        if (child == 0) {
            const bool told = job(i, ends[1]);
            std::fflush(nullptr);
            _exit(told ? 0 : 2);  // without the parent's exit handlers
        }
        close(ends[1]);
        pipes.push_back(ends[0]);
    }
    // A job whose pipe is full waits for its turn.
    for (const int end : pipes) {
        tell(end);
        close(end);
    }
    while (wait(nullptr) > 0) {
    }
    return true;
}

bool read_scenario(const std::string& file, Scenario& scenario) {
    std::FILE* in = std::fopen(file.c_str(), "r");
    if (in == nullptr) {
        std::fprintf(stderr, "sim-run: cannot read %s: %s\n", file.c_str(), std::strerror(errno));
        return false;
    }
    std::string text(scenario_bytes_max + 1, '\0');  // one byte more, so that parse_scenario() rejects a longer file
    text.resize(std::fread(text.data(), 1, text.size(), in));
    std::fclose(in);
    ScenarioError error;
    const std::optional<Scenario> read = parse_scenario(text, error);
    if (!read) {
        std::fprintf(stderr, "%s:%u:%u: %s\n", file.c_str(), error.line, error.column, error.expected.c_str());
        return false;
    }
    scenario = *read;
    return true;
}

bool write_scenario(const std::string& file, const Scenario& scenario, const sim::Violation& violation) {
    std::FILE* out = std::fopen(file.c_str(), "w");
    if (out == nullptr) {
        std::fprintf(stderr, "sim-run: cannot write %s\n", file.c_str());
        return false;
    }
    // Only the first line of the reason, because a comment ends with its line.
    const std::string reason = violation.reason.substr(0, violation.reason.find('\n'));
    if (!violation.oracle.empty()) std::fprintf(out, "# %s: %s\n", violation.oracle.c_str(), reason.c_str());
    std::fputs(to_text(scenario).c_str(), out);
    return std::fclose(out) == 0;
}

}  // namespace pccl::tools
