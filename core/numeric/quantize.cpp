#include "core/numeric/quantize.hpp"

#include "core/numeric/levels.hpp"

#include <algorithm>

namespace pccl::core::numeric {

namespace {

std::uint64_t block_bytes(const Quantization& how, DataType type, std::uint64_t count) {
    return 2 * element_bytes(type) + (count * code_bits(how.type) + 7) / 8;
}

}  // namespace

std::optional<CauseKind> why_not_quantizable(const Quantization& how, DataType type) {
    if (how.algorithm == QuantizationAlgorithm::none) return std::nullopt;
    if (type != DataType::f32 && type != DataType::f64) return CauseKind::quantized_type_not_float;
    if (code_bits(how.type) == 0) return CauseKind::no_such_quantized_type;
    if (how.algorithm == QuantizationAlgorithm::zero_point_scale && how.type == CodeType::u64)
        return CauseKind::no_codes_of_64_bits;
    return std::nullopt;
}

std::uint64_t wire_bytes(const Quantization& how, DataType type, std::uint64_t count) {
    if (how.algorithm == QuantizationAlgorithm::none) return count * element_bytes(type);
    const std::uint64_t rest = count % quantization_block;
    return count / quantization_block * block_bytes(how, type, quantization_block) +
           (rest != 0 ? block_bytes(how, type, rest) : 0);
}

std::uint32_t elements_within(const Quantization& how, DataType type, std::uint32_t bytes) {
    const std::uint32_t plain = std::max(1u, bytes / static_cast<std::uint32_t>(element_bytes(type)));
    if (how.algorithm == QuantizationAlgorithm::none) return plain;
    const auto block = static_cast<std::uint32_t>(block_bytes(how, type, quantization_block));
    const std::uint32_t blocks = std::min(bytes / block, plain / quantization_block);
    if (blocks != 0) return blocks * quantization_block;
    const auto parameters = static_cast<std::uint32_t>(block_bytes(how, type, 0));
    const std::uint32_t codes = bytes <= parameters ? 0 : (bytes - parameters) * 8 / code_bits(how.type);
    return std::clamp(codes, 1u, plain);
}

void quantize(const Quantization& how, DataType type, void* wire, const void* values, std::size_t count) {
    functions_of(best_level()).quantize(how, type, wire, values, count);
}

void dequantize(const Quantization& how, DataType type, void* values, const void* wire, std::size_t count) {
    functions_of(best_level()).dequantize(how, type, values, wire, count);
}

void reduce_quantized(const Quantization& how, DataType type, ReduceOp op, void* target, const void* wire,
                      const void* own, std::size_t count, std::uint32_t divisor) {
    const LevelFunctions& functions = functions_of(best_level());
    alignas(64) unsigned char values[quantization_block * sizeof(double)];
    auto* out = static_cast<unsigned char*>(target);
    const auto* in = static_cast<const unsigned char*>(wire);
    const auto* mine = static_cast<const unsigned char*>(own);
    // Block by block, so that the intermediate values stay in the cache.
    for (std::size_t at = 0; at < count; at += quantization_block) {
        const std::size_t elements = std::min<std::size_t>(quantization_block, count - at);
        functions.dequantize(how, type, values, in, elements);
        functions.reduce(type, op, values, values, mine, elements, divisor);
        functions.quantize(how, type, out, values, elements);
        const std::uint64_t bytes = block_bytes(how, type, elements);
        in += bytes;
        out += bytes;
        mine += elements * element_bytes(type);
    }
}

}  // namespace pccl::core::numeric
