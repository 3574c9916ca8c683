// tls_storm PLAYS [SEED]: so many handshakes of tls_play.hpp, drawn from the seed. Prints what became of them.
// Exit code 1: one of its rules is broken; the message names the play.
#include "tls_play.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: tls_storm PLAYS [SEED]\n");
        return 2;
    }
    const std::uint64_t plays = std::strtoull(argv[1], nullptr, 10);
    const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    tls_play::World world;
    tls_play::Played sum;
    const auto began = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < plays; ++i) {
        pccl::core::Random random(seed * 1'000'003 + i);
        try {
            const tls_play::Played one = tls_play::Play<pccl::core::Random>(world, random).run();
            sum.opened_both += one.opened_both;
            sum.opened_one += one.opened_one;
            sum.refused += one.refused;
            sum.waiting += one.waiting;
            sum.bytes_arrived += one.bytes_arrived;
            sum.frames_arrived += one.frames_arrived;
            sum.frames_refused += one.frames_refused;
        } catch (const std::logic_error& broken) {
            std::fprintf(stderr, "tls_storm: play %llu of seed %llu: %s\n", static_cast<unsigned long long>(i),
                         static_cast<unsigned long long>(seed), broken.what());
            return 1;
        }
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf("%llu handshakes from seed %llu in %.0f s (%.0f per second): both ends open %llu, one %llu, "
                "refused %llu, without an end %llu; then %llu bytes and %llu frames arrived, %llu frames were refused\n",
                number(plays), number(seed), seconds, static_cast<double>(plays) / seconds, number(sum.opened_both),
                number(sum.opened_one), number(sum.refused), number(sum.waiting), number(sum.bytes_arrived),
                number(sum.frames_arrived), number(sum.frames_refused));
    return 0;
}
