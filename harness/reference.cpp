#include "harness/reference.hpp"

#include "harness/quantized.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace pccl::harness {
namespace {

using namespace core;

bool is_float(DataType t) {
    return t == DataType::f16 || t == DataType::bf16 || t == DataType::f32 || t == DataType::f64;
}
bool is_signed(DataType t) {
    return t == DataType::i8 || t == DataType::i16 || t == DataType::i32 || t == DataType::i64;
}

// --- 16-bit floating point -------------------------------------------------------------------------------------------

double half_value(std::uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    double value = exponent == 0 ? static_cast<double>(bits & 1023) : static_cast<double>((bits & 1023) | 1024);
    for (int e = exponent == 0 ? 1 : exponent; e < 25; ++e) value /= 2;
    for (int e = 25; e < exponent; ++e) value *= 2;
    return (bits & 0x8000) != 0 ? -value : value;
}

// Rounds to nearest, ties to even; a product of more than 16 members may overflow to an infinity. NaN does not occur.
std::uint16_t half_bits(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
    const int exponent = static_cast<int>((bits >> 23) & 255u) - 127 + 15;
    std::uint32_t mantissa = (bits & 0x7fffffu) | 0x800000u;
    if ((bits & 0x7fffffffu) == 0) return sign;
    int shift = 13;
    if (exponent <= 0) shift += 1 - exponent;
    if (shift > 25) return sign;
    const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
    const std::uint32_t halfway = 1u << (shift - 1);
    mantissa >>= shift;
    if (rest > halfway || (rest == halfway && (mantissa & 1u) != 0)) ++mantissa;
    if (exponent <= 0) return static_cast<std::uint16_t>(sign | mantissa);
    constexpr std::uint32_t infinity = 31u << 10;
    const std::uint32_t rounded = (static_cast<std::uint32_t>(exponent - 1) << 10) + mantissa;
    return static_cast<std::uint16_t>(sign | std::min(rounded, infinity));
}

double brain_value(std::uint16_t bits) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}

std::uint16_t brain_bits(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// --- elements --------------------------------------------------------------------------------------------------------

template <class T>
T load(const std::uint8_t* from, std::uint64_t index) {
    T value;
    std::memcpy(&value, from + index * sizeof(T), sizeof(T));
    return value;
}

double load_float(DataType type, const std::uint8_t* from, std::uint64_t index) {
    switch (type) {
    case DataType::f16: return half_value(load<std::uint16_t>(from, index));
    case DataType::bf16: return brain_value(load<std::uint16_t>(from, index));
    case DataType::f32: return static_cast<double>(load<float>(from, index));
    default: return load<double>(from, index);
    }
}

void store_float(DataType type, std::uint8_t* to, std::uint64_t index, double value) {
    const auto narrow = static_cast<float>(value);
    const std::uint16_t bits = type == DataType::f16 ? half_bits(narrow) : brain_bits(narrow);
    switch (type) {
    case DataType::f16:
    case DataType::bf16: std::memcpy(to + index * 2, &bits, 2); break;
    case DataType::f32: std::memcpy(to + index * 4, &narrow, 4); break;
    default: std::memcpy(to + index * 8, &value, 8); break;
    }
}

// Sign-extends or zero-extends to 64 bits. Sums and products modulo 2^64 are right in the low bits.
std::uint64_t load_integer(DataType type, const std::uint8_t* from, std::uint64_t index) {
    const std::size_t size = element_bytes(type);
    std::uint64_t value = 0;
    std::memcpy(&value, from + index * size, size);
    if (is_signed(type) && size < 8 && ((value >> (size * 8 - 1)) & 1) != 0) value |= ~0ull << (size * 8);
    return value;
}

std::uint64_t wrapped(DataType type, std::uint64_t value) {
    std::uint8_t bytes[8];
    std::memcpy(bytes, &value, 8);
    return load_integer(type, bytes, 0);
}

bool integer_matches(const ReduceShape& shape, std::span<const std::vector<std::uint8_t>* const> inputs,
                     const std::uint8_t* result, std::uint64_t i) {
    std::uint64_t value = load_integer(shape.type, inputs[0]->data(), i);
    for (std::size_t k = 1; k < inputs.size(); ++k) {
        const std::uint64_t next = load_integer(shape.type, inputs[k]->data(), i);
        const bool less =
            is_signed(shape.type) ? static_cast<std::int64_t>(next) < static_cast<std::int64_t>(value) : next < value;
        switch (shape.op) {
        case ReduceOp::sum:
        case ReduceOp::avg: value += next; break;
        case ReduceOp::prod: value *= next; break;
        case ReduceOp::max: value = less ? value : next; break;
        case ReduceOp::min: value = less ? next : value; break;
        }
    }
    value = wrapped(shape.type, value);
    if (shape.op == ReduceOp::avg) {
        const std::uint64_t count = inputs.size();
        value = is_signed(shape.type)
                    ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(count))
                    : value / count;
    }
    return wrapped(shape.type, value) == load_integer(shape.type, result, i);
}

bool float_matches(const ReduceShape& shape, bool exact, std::span<const std::vector<std::uint8_t>* const> inputs,
                   const std::uint8_t* result, std::uint64_t i) {
    double value = load_float(shape.type, inputs[0]->data(), i);
    double size = value < 0 ? -value : value;
    bool no_number = std::isnan(value);
    for (std::size_t k = 1; k < inputs.size(); ++k) {
        const double next = load_float(shape.type, inputs[k]->data(), i);
        no_number = no_number || std::isnan(next);
        size += next < 0 ? -next : next;
        switch (shape.op) {
        case ReduceOp::sum:
        case ReduceOp::avg: value += next; break;
        case ReduceOp::prod: value *= next; break;
        case ReduceOp::max: value = next > value ? next : value; break;
        case ReduceOp::min: value = next < value ? next : value; break;
        }
    }
    const double got = load_float(shape.type, result, i);
    // A NaN from an input, or from infinities that cancel out, must stay NaN.
    if (no_number || std::isnan(value)) return std::isnan(got);
    if (shape.op == ReduceOp::max || shape.op == ReduceOp::min) return got == value;
    const auto count = static_cast<double>(inputs.size());
    if (shape.op == ReduceOp::avg) {
        // One division in the type that accumulates.
        value = shape.type == DataType::f64
                    ? value / count
                    : static_cast<double>(static_cast<float>(value) / static_cast<float>(count));
        size /= count;
    }
    if (exact) {
        std::uint8_t expected[8];
        store_float(shape.type, expected, 0, value);
        return std::memcmp(expected, result + i * element_bytes(shape.type), element_bytes(shape.type)) == 0;
    }
    double epsilon = 0;
    double tiny = 0;
    switch (shape.type) {
    case DataType::f16:
        epsilon = 1.0 / 1024;
        tiny = 1.0 / 16'777'216;
        break;
    case DataType::bf16:
        epsilon = 1.0 / 128;
        tiny = 1e-30;
        break;
    case DataType::f32:
        epsilon = 1.0 / 8'388'608;
        tiny = 1e-30;
        break;
    default:
        epsilon = 1.0 / 4'503'599'627'370'496.0;
        tiny = 1e-200;
        break;
    }
    if (shape.op == ReduceOp::prod) size = value < 0 ? -value : value;
    const double error = got > value ? got - value : value - got;
    return error <= (count + 1) * (epsilon * size + tiny);
}

}  // namespace

void draw_inputs(const ReduceShape& shape, bool exact, sim::Draw& draw, std::span<std::uint8_t> bytes) {
    const bool floating = is_float(shape.type);
    const std::size_t size = element_bytes(shape.type);
    for (std::uint64_t i = 0; i < shape.count; ++i) {
        if (floating) {
            double value = 0;
            if (exact) {
                static constexpr double powers[] = {1, 2, -1, -2};
                value = shape.op == ReduceOp::prod ? powers[draw.below(4)] : static_cast<double>(draw.between(-8, 8));
            } else {
                value = static_cast<double>(draw.between(-1'000'000, 1'000'000)) / 1'048'576.0;
            }
            store_float(shape.type, bytes.data(), i, value);
        } else {
            const std::uint64_t value = exact ? draw.below(16) : draw.bits();
            std::memcpy(bytes.data() + i * size, &value, size);
        }
    }
    if (shape.quantization.algorithm != QuantizationAlgorithm::none) vary_inputs(shape, draw, bytes);
}

bool is_result(const ReduceShape& shape, bool exact, std::span<const std::vector<std::uint8_t>* const> inputs,
               const std::vector<std::uint8_t>& result, std::uint64_t elements_max) {
    if (shape.quantization.algorithm != QuantizationAlgorithm::none)
        return is_quantized_result(shape, inputs, result, elements_max);
    const std::uint64_t count = shape.count < elements_max ? shape.count : elements_max;
    const bool floating = is_float(shape.type);
    for (std::uint64_t i = 0; i < count; ++i) {
        const bool good = floating ? float_matches(shape, exact, inputs, result.data(), i)
                                   : integer_matches(shape, inputs, result.data(), i);
        if (!good) return false;
    }
    return true;
}

}  // namespace pccl::harness
