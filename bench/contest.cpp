#include "contest.hpp"

#include "statistics.hpp"

#include <algorithm>
#include <istream>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace pccl::bench {

namespace {

double own_cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

std::string measure(std::istream& arguments, unsigned rank, unsigned world, const Reduce& reduce) {
    std::size_t bytes = 0;
    unsigned in_place = 0, tags = 1, warmup = 0, iterations = 0;
    arguments >> bytes >> in_place >> tags >> warmup >> iterations;
    const std::size_t elements = bytes / sizeof(float);
    const auto own = static_cast<float>(rank + 1);
    const auto expected = static_cast<float>(world * (world + 1) / 2);
    std::vector<float> receive(elements, own), send(in_place != 0 ? 0 : elements, own);
    float* source = in_place != 0 ? receive.data() : send.data();
    std::vector<double> times_ms;
    double cpu_seconds = own_cpu_seconds();
    bool good = true;
    for (unsigned i = 0; i < warmup + iterations && good; ++i) {
        if (i == warmup) cpu_seconds = own_cpu_seconds();
        const std::int64_t start = monotonic_ns();
        good = reduce(source, receive.data(), elements);
        if (i >= warmup && rank == 0) times_ms.push_back(static_cast<double>(monotonic_ns() - start) * 1e-6);
        if (i == 0 && good) {
            good = std::all_of(receive.begin(), receive.end(), [&](float x) { return x == expected; });
            // Sums must not grow from one iteration to the next.
            if (in_place != 0) std::fill(receive.begin(), receive.end(), 0.0f);
        }
    }
    std::ostringstream answer;
    answer << "reduced " << (good ? 0 : 1) << ' ' << own_cpu_seconds() - cpu_seconds << " 0 " << times_ms.size();
    for (const double time : times_ms) answer << ' ' << time;
    return answer.str();
}

}  // namespace

void obey_commands(std::istream& commands, std::ostream& answers, unsigned rank, unsigned world, const Reduce& reduce) {
    for (std::string line; std::getline(commands, line);) {
        std::istringstream arguments(line);
        std::string command;
        arguments >> command;
        if (command != "reduce") return;
        answers << measure(arguments, rank, world, reduce) << std::endl;
    }
}

}  // namespace pccl::bench
