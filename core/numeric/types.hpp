// Element types and reduction operators, as numbers that also appear in the C API and on the wire.
//
// This header does not depend on kernels or machines; everything in core may include it.
// Values equal `pcclDataType_t` and `pcclRedOp_t` (a static_assert in net-real/c_api holds them equal).
#pragma once

#include <cstddef>
#include <cstdint>

namespace pccl::core {

enum class DataType : std::uint8_t {
    u8 = 0,
    i8 = 1,
    i16 = 2,
    u16 = 3,
    u32 = 4,
    i32 = 5,
    u64 = 6,
    i64 = 7,
    f16 = 8,
    bf16 = 9,
    f32 = 10,
    f64 = 11,
};
inline constexpr std::uint32_t data_type_count = 12;

enum class ReduceOp : std::uint8_t { sum = 0, avg = 1, prod = 2, max = 3, min = 4 };
inline constexpr std::uint32_t reduce_op_count = 5;

// The wire form of an all-reduce's elements. `type` and `hint` are ignored with QuantizationAlgorithm::none.
enum class QuantizationAlgorithm : std::uint8_t { none = 0, min_max = 1, zero_point_scale = 2 };
inline constexpr std::uint32_t quantization_algorithm_count = 3;
enum class DistributionHint : std::uint8_t { none = 0, normal = 1, uniform = 2 };
inline constexpr std::uint32_t distribution_hint_count = 3;

// Types of codes. The numbers are those of DataType, except u4, which exists on the wire only.
enum class CodeType : std::uint8_t { u8 = 0, i8 = 1, i16 = 2, u16 = 3, u32 = 4, i32 = 5, u64 = 6, u4 = 12 };
inline constexpr std::uint32_t code_type_count = 13;  // includes the numbers 7 to 11, which no algorithm produces

struct Quantization {
    QuantizationAlgorithm algorithm = QuantizationAlgorithm::none;
    CodeType type = CodeType::u8;
    DistributionHint hint = DistributionHint::none;
    friend bool operator==(const Quantization&, const Quantization&) = default;
};

// Bytes of one element. Defined for the twelve types above only.
constexpr std::size_t element_bytes(DataType type) {
    switch (type) {
    case DataType::u8:
    case DataType::i8: return 1;
    case DataType::i16:
    case DataType::u16:
    case DataType::f16:
    case DataType::bf16: return 2;
    case DataType::u32:
    case DataType::i32:
    case DataType::f32: return 4;
    case DataType::u64:
    case DataType::i64:
    case DataType::f64: return 8;
    }
    return 0;
}

}  // namespace pccl::core
