// Distributions over the core's random generator. Results are equal bit for bit on every compiler and machine.
//
// Uses integer arithmetic only, because the standard library's distributions and libm differ between platforms. Each
// Draw belongs to one concern (latencies, segments, faults, ...), so an additional draw in one place does not change
// the others.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/random.hpp"

#include <bit>
#include <cstdint>
#include <span>

namespace pccl::sim {

// Combines two numbers into a seed or hash.
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t z = (a ^ (b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 29)) * 0x94D049BB133111EBull;
    return z ^ (z >> 32);
}

// Bytes that replace the generator's decisions, so that a fuzzer can steer what is drawn. A choice takes as many bytes
// as its bound needs. When the bytes are used up, the generator decides again.
class Choices {
public:
    explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
    bool empty() const { return at_ == bytes_.size(); }
    std::uint64_t take(std::uint64_t bound) {
        std::uint64_t value = 0;
        for (std::uint64_t rest = bound - 1; rest != 0 && !empty(); rest >>= 8) value = value << 8 | bytes_[at_++];
        return value % bound;
    }

private:
    std::span<const std::uint8_t> bytes_;
    std::size_t at_ = 0;
};

class Draw {
public:
    explicit Draw(std::uint64_t seed, Choices* choices = nullptr) : random_(seed), choices_(choices) {}

    std::uint64_t bits() { return steered() ? choices_->take(~std::uint64_t{0}) : random_.next(); }
    // bound > 0
    std::uint64_t below(std::uint64_t bound) {
        return bound > 1 && steered() ? choices_->take(bound) : random_.below(bound);
    }
    // Both ends included.
    std::int64_t between(std::int64_t low, std::int64_t high) {
        if (high <= low) return low;
        return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
    }
    std::uint32_t number(std::uint32_t low, std::uint32_t high) {
        return static_cast<std::uint32_t>(between(low, high));
    }
    bool chance(std::uint32_t per_million) { return below(1'000'000) < per_million; }

    // Log-uniform: each octave between the two bounds (both > 0) is equally likely. Linear within an octave.
    std::int64_t log_uniform(std::int64_t low, std::int64_t high) {
        if (high <= low) return low;
        const std::int64_t from = fixed_log2(static_cast<std::uint64_t>(low));
        const std::int64_t to = fixed_log2(static_cast<std::uint64_t>(high));
        const std::int64_t value = fixed_exp2(between(from, to));
        return value < low ? low : value > high ? high : value;
    }

private:
    bool steered() const { return choices_ != nullptr && !choices_->empty(); }
    // log2 in units of 1/65536, interpolated linearly between powers of two. fixed_exp2 is its inverse.
    static std::int64_t fixed_log2(std::uint64_t value) {
        const int octave = 63 - std::countl_zero(value | 1);
        const std::uint64_t rest = value - (1ull << octave);
        const std::uint64_t fraction = octave >= 16 ? rest >> (octave - 16) : rest << (16 - octave);
        return (static_cast<std::int64_t>(octave) << 16) + static_cast<std::int64_t>(fraction);
    }
    static std::int64_t fixed_exp2(std::int64_t value) {
        const auto octave = static_cast<int>(value >> 16);
        const auto fraction = static_cast<std::uint64_t>(value & 0xffff);
        const std::uint64_t rest = octave >= 16 ? fraction << (octave - 16) : fraction >> (16 - octave);
        return static_cast<std::int64_t>((1ull << octave) + rest);
    }

    core::Random random_;
    Choices* choices_;
};

}  // namespace pccl::sim
