// The kernels that drivers run for the machines' Compute effects: pure functions over memory.
//
// The bytes that a kernel produces depend on its arguments alone: not on CPU, SIMD width, compiler or alignment of the
// pointers. Any alignment is legal. Nothing here allocates, throws or keeps state.
#pragma once

#include "core/numeric/types.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>

namespace pccl::core::numeric {

struct Hash128 {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    friend constexpr bool operator==(const Hash128&, const Hash128&) = default;
    friend constexpr auto operator<=>(const Hash128&, const Hash128&) = default;
};

// target[i] = a[i] (op) b[i] for i < count, then divided by `divisor` if that is not 0 (only for ReduceOp::avg, by the
// last reducer). Integers wrap; integer division truncates toward zero. In sum, avg and prod, f16 and bf16 are computed
// in f32 and rounded once to nearest even. min and max propagate NaN as the canonical quiet NaN; min(-0,+0) = -0,
// max(-0,+0) = +0. `target` may be `a` or `b`; otherwise the ranges must not overlap.
void reduce(DataType type, ReduceOp op, void* target, const void* a, const void* b, std::size_t count,
            std::uint32_t divisor);

// XXH3 of the bytes: the checksum of slices (64 bit) and of shared-state chunks (128 bit).
std::uint64_t checksum64(const void* data, std::size_t bytes);
Hash128 hash128(const void* data, std::size_t bytes);

// checksum64 over a range that arrives in pieces. Fixed size, no allocation; copyable.
class Checksum64 {
public:
    Checksum64();
    void reset();
    void update(const void* data, std::size_t bytes);
    std::uint64_t digest() const;

private:
    static constexpr std::size_t state_bytes = 576;
    alignas(64) unsigned char state_[state_bytes];
};

}  // namespace pccl::core::numeric
