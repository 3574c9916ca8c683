// Secrets that travel in messages: where they come from, how others are derived from them, how they are compared.
//
// Everything comes from a key that the driver gives (from the operating system in the real world, from the run's seed in
// the simulator). SipHash-2-4 is a keyed one-way function: who sees some secrets learns nothing about the key or others.
// core/base/random.hpp is no such function: one of its outputs tells all that follow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pccl::core {

using Secret = std::array<std::uint8_t, 16>;

// SipHash-2-4 with 128 bits of output.
Secret derive(const Secret& key, std::string_view message);

// Comparisons take the same time whatever differs, so that nobody finds a secret by measuring refusals.
bool same_secret(const Secret& a, std::string_view b);
bool same_secret(std::uint64_t a, std::uint64_t b);

class SecretSource {
public:
    // `seed` separates users of equal keys; only tests have such.
    SecretSource(const Secret& key, std::uint64_t seed) : key_(key), seed_(seed) {}
    Secret next();
    std::uint64_t next_token();  // never 0

private:
    Secret key_;
    std::uint64_t seed_;
    std::uint64_t count_ = 0;
};

}  // namespace pccl::core
