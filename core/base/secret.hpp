// Secrets that travel in messages: how they are compared.
//
// A comparison takes the same time whatever differs, so that nobody can find a secret by measuring refusals.
#pragma once

#include <cstdint>

namespace pccl::core {

inline bool same_secret(std::uint64_t a, std::uint64_t b) {
    volatile std::uint64_t difference = a ^ b;
    return difference == 0;
}

}  // namespace pccl::core
