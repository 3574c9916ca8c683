// Carries out Compute effects. All drivers use this one implementation.
#pragma once

#include "core/events.hpp"

#include <cstdint>

namespace pccl::core {

constexpr bool reads_b(Compute::Kind kind) {
    return kind == Compute::Kind::reduce || kind == Compute::Kind::reduce_quantized;
}
constexpr bool writes_target(Compute::Kind kind) { return kind != Compute::Kind::hash; }

constexpr bool writes_keep(const Compute& compute) { return compute.keep.length != 0; }

// True if the lengths of target, a, b and keep fit together. carry_out() may be called only then.
bool is_well_formed(const Compute& compute);

// The memory of the ranges; null if the kind does not use the range.
struct ComputeMemory {
    std::uint8_t* target = nullptr;
    const std::uint8_t* a = nullptr;
    const std::uint8_t* b = nullptr;
    std::uint8_t* keep = nullptr;
};

// Writes the memory of `target` and `keep`.
void carry_out(const Compute& compute, const ComputeMemory& memory);

}  // namespace pccl::core
