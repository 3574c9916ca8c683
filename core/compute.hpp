// What a Compute effect asks for, carried out: one place for all drivers.
#pragma once

#include "core/events.hpp"

#include <cstdint>

namespace pccl::core {

constexpr bool reads_b(Compute::Kind kind) {
    return kind == Compute::Kind::reduce || kind == Compute::Kind::reduce_quantized;
}
constexpr bool writes_target(Compute::Kind kind) { return kind != Compute::Kind::hash; }

// The lengths of target, a and b belong together. What follows may be asked only then.
bool is_well_formed(const Compute& compute);

// Writes the memory of `target`. Pointers are those of the three ranges, null where the kind has none.
void carry_out(const Compute& compute, std::uint8_t* target, const std::uint8_t* a, const std::uint8_t* b);

}  // namespace pccl::core
