// A seeded generator (SplitMix64) whose draws are equal on every platform. Not for secrets, because all later outputs
// can be computed from one of them (core/base/secret.hpp is for secrets). The driver seeds it: from the operating
// system in the real world, from the run's seed in the simulator.
#pragma once

#include <cstdint>

namespace pccl::core {

class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        return z ^ (z >> 31);
    }
    // Uniform in [0, bound); 0 for bound 0. The bias is below 2^-32 for bounds that fit 32 bits.
    std::uint64_t below(std::uint64_t bound) {
        if (bound == 0) return 0;
        return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
    }

private:
    std::uint64_t state_;
};

}  // namespace pccl::core
