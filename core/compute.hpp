// Carries out Compute effects. All drivers use this one implementation.
#pragma once

#include "core/events.hpp"

#include <cstdint>

namespace pccl::core {

constexpr bool reads_b(Compute::Kind kind) {
    return kind == Compute::Kind::reduce || kind == Compute::Kind::reduce_quantized;
}
constexpr bool writes_target(Compute::Kind kind) { return kind != Compute::Kind::hash; }

// True if the lengths of target, a and b fit together. carry_out() may be called only then.
bool is_well_formed(const Compute& compute);

// Writes the memory of `target`. The pointers are those of the three ranges; null if the kind does not use the range.
void carry_out(const Compute& compute, std::uint8_t* target, const std::uint8_t* a, const std::uint8_t* b);

}  // namespace pccl::core
