// Secrets that are sent in messages: this file creates them, derives others from them, and compares them.
//
// All secrets come from a key of the driver (from the operating system in the real world, from the run's seed in the
// simulator). SipHash-2-4 is a keyed one-way function: some secrets reveal nothing about the key or other secrets.
// core/base/random.hpp is no such function: all later outputs can be computed from one of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace pccl::core {

using Secret = std::array<std::uint8_t, 16>;

inline std::string to_bytes(const Secret& secret) {
    return std::string(reinterpret_cast<const char*>(secret.data()), secret.size());
}

// False: `bytes` does not have the size of a secret.
inline bool read(const std::string& bytes, Secret& secret) {
    if (bytes.size() != secret.size()) return false;
    std::memcpy(secret.data(), bytes.data(), bytes.size());
    return true;
}

// SipHash-2-4 with 128 bits of output.
Secret derive(const Secret& key, std::string_view message);

// Comparisons take the same time whatever differs. Otherwise an attacker could find a secret by timing refusals.
bool same_secret(const Secret& a, std::string_view b);
bool same_secret(std::uint64_t a, std::uint64_t b);

class SecretSource {
public:
    // `seed` separates users of equal keys, which exist only in tests.
    SecretSource(const Secret& key, std::uint64_t seed) : key_(key), seed_(seed) {}
    Secret next();
    std::uint64_t next_token();  // never 0

private:
    Secret key_;
    std::uint64_t seed_;
    std::uint64_t count_ = 0;
};

}  // namespace pccl::core
