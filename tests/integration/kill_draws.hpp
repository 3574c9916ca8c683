// What the kill tests read from the environment. PCCL_KILL_SEED draws the same deaths again; the tests say what else they
// read.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>

namespace integration {

inline std::uint64_t from_environment(const char* name, std::uint64_t fallback) {
    const char* text = std::getenv(name);
    return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

// The first seed of a test. Without PCCL_KILL_SEED each run of the test has other ones.
inline std::uint64_t first_seed() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return from_environment("PCCL_KILL_SEED", static_cast<std::uint64_t>(
                                                  std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
}

}  // namespace integration
