// Quantization: converts the elements of a slice to codes of fewer bits, and back.
//
// Elements are cut into blocks of 512 (the last block may be shorter). A block is sent as two parameters of the element
// type, `base` and `step`, followed by one code per element (u4: two codes in a byte, the first one in the low half).
// A value x is sent as the whole number n = round((x - base) / step), to nearest, ties to even. It is read back as
// base + n·step. All of this is computed in binary64 and rounded once to the element type. So an error is at most half
// a step plus that last rounding. The rules, with lo and hi the extremes of the block and b the bits of a code:
//
//   min_max           base = lo, step = (hi - lo) / (2^b - 1), 0 <= n < 2^b. Code: n, or n - 2^(b-1) for signed types.
//   zero_point_scale  base (the value of the zero point) = mean, step = d / (2^(b-1) - 1), |n| < 2^(b-1). Code: n, or
//                     n + 2^(b-1) for unsigned types. d is the largest distance from the mean. With the hint `normal`
//                     it is at most 6 standard deviations, and values farther away become the end of that range.
//
//   step is rounded up to the element type, so that the ends are reached; for f64 it is at least 2^-1022.
//   A constant block has step 0 and is exact (-0 becomes +0).
//   A block with a NaN, an infinity, or f64 values farther apart than the largest f64, is read as canonical quiet NaNs.
//   The mean is lo + sum(x - lo) / count. That sum, and the sum of squares for the deviation, run in 8 lanes (element i
//   in lane i mod 8), which are then added in pairs.
//
// Any bytes may be dequantized: they give some values, the same on every machine. Pure functions, any alignment.
#pragma once

#include "core/base/cause_kinds.hpp"
#include "core/numeric/types.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace pccl::core::numeric {

inline constexpr std::uint32_t quantization_block = 512;
// Wire bytes of a single element with its two parameters, for the largest types.
inline constexpr std::uint32_t quantized_bytes_least = 2 * 8 + 8;

constexpr std::uint32_t code_bits(CodeType type) {
    switch (type) {
    case CodeType::u4: return 4;
    case CodeType::u8:
    case CodeType::i8: return 8;
    case CodeType::i16:
    case CodeType::u16: return 16;
    case CodeType::u32:
    case CodeType::i32: return 32;
    case CodeType::u64: return 64;
    }
    return 0;
}

// Nothing if elements of the type can be quantized in this way (or `how` is none); else the cause.
std::optional<CauseKind> why_not_quantizable(const Quantization& how, DataType type);

// Bytes of `count` elements on the wire: parameters and codes, or without quantization the elements themselves.
std::uint64_t wire_bytes(const Quantization& how, DataType type, std::uint64_t count);
// The number of elements in a slice; at least one. A quantized slice has at most as many elements as fit into `bytes`
// unquantized, so that a quantized operation takes about the same number of steps through the ring. It has fewer if
// their wire form would exceed `bytes`. A slice of a block or more consists of whole blocks.
std::uint32_t elements_within(const Quantization& how, DataType type, std::uint32_t bytes);

// Convert `count` elements to wire_bytes(...) bytes, and back.
void quantize(const Quantization& how, DataType type, void* wire, const void* values, std::size_t count);
void dequantize(const Quantization& how, DataType type, void* values, const void* wire, std::size_t count);
// One hop: dequantizes `wire`, reduces it with `own` as numeric::reduce does, quantizes the result into `target`, which
// may be `wire`.
void reduce_quantized(const Quantization& how, DataType type, ReduceOp op, void* target, const void* wire,
                      const void* own, std::size_t count, std::uint32_t divisor);

}  // namespace pccl::core::numeric
