#include "harness/quantized.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace pccl::harness {
namespace {

using namespace core;

double element(DataType type, const std::vector<std::uint8_t>& bytes, std::uint64_t index) {
    float narrow = 0;
    double wide = 0;
    if (type == DataType::f32)
        std::memcpy(&narrow, bytes.data() + index * 4, 4);
    else
        std::memcpy(&wide, bytes.data() + index * 8, 8);
    return type == DataType::f32 ? static_cast<double>(narrow) : wide;
}

// Quantization steps across the range of a block. With zero_point_scale the mean may lie at one end of the range; only
// half of the steps can be used then.
double steps(const Quantization& how) {
    double bits = 8;
    switch (how.type) {
    case CodeType::u4: bits = 4; break;
    case CodeType::u8:
    case CodeType::i8: bits = 8; break;
    case CodeType::u16:
    case CodeType::i16: bits = 16; break;
    case CodeType::u32:
    case CodeType::i32: bits = 32; break;
    case CodeType::u64: bits = 64; break;
    }
    return how.algorithm == QuantizationAlgorithm::min_max ? std::exp2(bits) - 1 : std::exp2(bits - 1) - 1;
}

// The largest error that any element may have, for every order of the members in the ring.
double error_bound(const ReduceShape& shape, std::span<const std::vector<std::uint8_t>* const> inputs) {
    std::vector<double> ranges;
    double lowest = std::numeric_limits<double>::infinity(), highest = -lowest, sizes = 0, largest = 0;
    for (const std::vector<std::uint8_t>* input : inputs) {
        double low = std::numeric_limits<double>::infinity(), high = -low;
        for (std::uint64_t i = 0; i < shape.count; ++i) {
            const double value = element(shape.type, *input, i);
            if (std::isnan(value)) continue;
            low = std::min(low, value);
            high = std::max(high, value);
        }
        if (low > high) low = high = 0;
        ranges.push_back(high - low);
        lowest = std::min(lowest, low);
        highest = std::max(highest, high);
        largest = std::max({largest, std::fabs(low), std::fabs(high)});
        sizes += std::max(std::fabs(low), std::fabs(high));
    }
    std::sort(ranges.rbegin(), ranges.rend());
    const double unit = shape.type == DataType::f32 ? std::exp2(-23) : std::exp2(-52);
    const auto world = static_cast<double>(inputs.size());
    // Values far from the mean are clipped to the end of the range. Sums of drawn inputs have no such values; other
    // results may have some.
    const bool clips = shape.quantization.algorithm == QuantizationAlgorithm::zero_point_scale &&
                       shape.quantization.hint == DistributionHint::normal && shape.op != ReduceOp::sum &&
                       shape.op != ReduceOp::avg;
    double error = 0, range = 0, product = 1;
    for (std::size_t hop = 0; hop < ranges.size(); ++hop) {
        double magnitude = sizes;
        switch (shape.op) {
        case ReduceOp::sum:
        case ReduceOp::avg: range += ranges[hop]; break;
        case ReduceOp::max:
        case ReduceOp::min: range = highest - lowest; break;
        case ReduceOp::prod:
            product *= largest;
            if (hop != 0) error *= largest;
            range = ranges[0] == 0 && std::all_of(ranges.begin(), ranges.end(), [](double r) { return r == 0; })
                        ? 0
                        : 2 * product;
            magnitude = product;
            break;
        }
        double span = range + 2 * error;
        if (shape.op == ReduceOp::avg && hop + 1 == ranges.size()) {
            span /= world;
            error /= world;
        }
        error += clips ? span : span / steps(shape.quantization) * 0.5 * (1 + 8 * unit);
        error += 4 * unit * (magnitude + span) + std::numeric_limits<double>::min();
    }
    return error;
}

double exact_value(const ReduceShape& shape, std::span<const std::vector<std::uint8_t>* const> inputs,
                   std::uint64_t i) {
    double value = element(shape.type, *inputs[0], i);
    for (std::size_t k = 1; k < inputs.size(); ++k) {
        const double next = element(shape.type, *inputs[k], i);
        if (std::isnan(value) || std::isnan(next)) return std::numeric_limits<double>::quiet_NaN();
        switch (shape.op) {
        case ReduceOp::sum:
        case ReduceOp::avg: value += next; break;
        case ReduceOp::prod: value *= next; break;
        case ReduceOp::max: value = std::max(value, next); break;
        case ReduceOp::min: value = std::min(value, next); break;
        }
    }
    return shape.op == ReduceOp::avg ? value / static_cast<double>(inputs.size()) : value;
}

}  // namespace

Quantization draw_quantization(sim::Draw& draw) {
    static constexpr CodeType types[] = {CodeType::u8,  CodeType::u8,  CodeType::u4,  CodeType::i8, CodeType::i16,
                                         CodeType::u16, CodeType::u32, CodeType::i32, CodeType::u64};
    Quantization how;
    how.algorithm = draw.chance(600'000) ? QuantizationAlgorithm::min_max : QuantizationAlgorithm::zero_point_scale;
    how.type = types[draw.below(how.algorithm == QuantizationAlgorithm::min_max ? 9 : 8)];
    how.hint = static_cast<DistributionHint>(draw.below(distribution_hint_count));
    return how;
}

void vary_inputs(const ReduceShape& shape, sim::Draw& draw, std::span<std::uint8_t> bytes) {
    const std::size_t size = element_bytes(shape.type);
    if (draw.chance(100'000)) {
        for (std::size_t at = size; at < bytes.size(); at += size) std::memcpy(bytes.data() + at, bytes.data(), size);
    }
    if (draw.chance(50'000)) {
        const float narrow = std::numeric_limits<float>::quiet_NaN();
        const double wide = std::numeric_limits<double>::quiet_NaN();
        std::uint8_t* const at = bytes.data() + draw.below(bytes.size() / size) * size;
        if (size == 4)
            std::memcpy(at, &narrow, 4);
        else
            std::memcpy(at, &wide, 8);
    }
}

bool is_quantized_result(const ReduceShape& shape, std::span<const std::vector<std::uint8_t>* const> inputs,
                         const std::vector<std::uint8_t>& result, std::uint64_t elements_max) {
    const double bound = error_bound(shape, inputs);
    bool any_nan = false;
    for (const std::vector<std::uint8_t>* input : inputs) {
        for (std::uint64_t i = 0; i < shape.count && !any_nan; ++i)
            any_nan = std::isnan(element(shape.type, *input, i));
    }
    for (std::uint64_t i = 0; i < std::min(shape.count, elements_max); ++i) {
        const double got = element(shape.type, result, i);
        const double value = exact_value(shape, inputs, i);
        // A NaN may turn its neighbours into NaN; how many is not promised.
        if (std::isnan(got) && any_nan) continue;
        if (!(std::fabs(got - value) <= bound)) return false;
    }
    return true;
}

}  // namespace pccl::harness
