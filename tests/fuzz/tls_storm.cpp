// tls_storm PLAYS [SEED [PROCESSES]]: so many plays of tls_play.hpp, drawn from the seed, shared by so many processes.
// Each play begins one handshake, and counts as one. Prints what became of them.
// Exit code 1: one of its rules is broken; the message names the play.
#include "tls_play.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <vector>

#include <sys/wait.h>

namespace {

std::ptrdiff_t descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

// Plays `first` and those behind it.
int storm(std::uint64_t first, std::uint64_t plays, std::uint64_t seed) {
    tls_play::World world;
    tls_play::Played sum;
    const std::ptrdiff_t open_before = descriptors();
    const auto began = std::chrono::steady_clock::now();
    for (std::uint64_t i = first; i < first + plays; ++i) {
        pccl::core::Random random(seed * 1'000'003 + i);
        try {
            const tls_play::Played one = tls_play::Play<pccl::core::Random>(world, random).run();
            sum.opened_both += one.opened_both;
            sum.opened_one += one.opened_one;
            sum.refused += one.refused;
            sum.waiting += one.waiting;
            sum.one_end += one.one_end;
            sum.bytes_arrived += one.bytes_arrived;
            sum.frames_arrived += one.frames_arrived;
            sum.frames_refused += one.frames_refused;
        } catch (const std::logic_error& broken) {
            std::fprintf(stderr, "tls_storm: play %llu of seed %llu: %s\n", static_cast<unsigned long long>(i),
                         static_cast<unsigned long long>(seed), broken.what());
            return 1;
        }
    }
    if (descriptors() != open_before) {
        std::fprintf(stderr, "tls_storm: the plays of seed %llu have left descriptors open\n",
                     static_cast<unsigned long long>(seed));
        return 1;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf("%llu handshakes from seed %llu in %.0f s (%.0f per second): both ends open %llu, one %llu, "
                "refused %llu (%llu of them by an end that met a recording), without an end %llu; ",
                number(plays), number(seed), seconds, static_cast<double>(plays) / seconds, number(sum.opened_both),
                number(sum.opened_one), number(sum.refused), number(sum.one_end), number(sum.waiting));
    std::printf("then %llu bytes and %llu frames arrived, %llu frames were refused\n", number(sum.bytes_arrived),
                number(sum.frames_arrived), number(sum.frames_refused));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: tls_storm PLAYS [SEED [PROCESSES]]\n");
        return 2;
    }
    const auto argument = [&](int index, std::uint64_t otherwise) {
        return argc > index ? std::strtoull(argv[index], nullptr, 10) : otherwise;
    };
    const std::uint64_t plays = argument(1, 0), seed = argument(2, 1), processes = argument(3, 1);
    if (processes <= 1) return storm(0, plays, seed);
    std::vector<pid_t> children;
    for (std::uint64_t i = 0; i < processes; ++i) {
        const std::uint64_t first = plays * i / processes, behind = plays * (i + 1) / processes;
        const pid_t child = ::fork();
        if (child == 0) return storm(first, behind - first, seed);
        if (child < 0) return 2;
        children.push_back(child);
    }
    int result = 0;
    for (const pid_t child : children) {
        int status = 0;
        const bool ended = ::waitpid(child, &status, 0) == child && WIFEXITED(status);
        if (!ended || WEXITSTATUS(status) != 0) result = 1;
    }
    return result;
}
