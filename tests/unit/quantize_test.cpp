// Quantization against a reference that handles one element at a time with the functions of <cmath>. Every
// instruction-set level must give the reference's bytes. Also checks the properties that users rely on, from the values
// alone.
#include "core/numeric/kernels.hpp"
#include "core/numeric/levels.hpp"
#include "core/numeric/quantize.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using namespace pccl::core;
using numeric::Level;

namespace {

using Bytes = std::vector<unsigned char>;

constexpr CodeType codes[] = {CodeType::u4,  CodeType::u8,  CodeType::i8,  CodeType::i16,
                              CodeType::u16, CodeType::u32, CodeType::i32, CodeType::u64};

std::vector<Quantization> all_ways() {
    std::vector<Quantization> ways;
    for (const CodeType code : codes) {
        ways.push_back({QuantizationAlgorithm::min_max, code, DistributionHint::none});
        if (code == CodeType::u64) continue;
        ways.push_back({QuantizationAlgorithm::zero_point_scale, code, DistributionHint::none});
        ways.push_back({QuantizationAlgorithm::zero_point_scale, code, DistributionHint::normal});
        ways.push_back({QuantizationAlgorithm::zero_point_scale, code, DistributionHint::uniform});
    }
    return ways;
}

std::vector<Level> levels() {
    std::vector<Level> result{Level::baseline};
    if (numeric::best_level() == Level::avx2) result.push_back(Level::avx2);
    return result;
}

bool is_signed(CodeType code) { return code == CodeType::i8 || code == CodeType::i16 || code == CodeType::i32; }

template <class T>
DataType type_of() {
    return sizeof(T) == 4 ? DataType::f32 : DataType::f64;
}

// ---- the reference ----

template <class T>
struct Block {
    T base = 0;
    T step = 0;
};

template <class T>
double sum_in_lanes(const std::vector<double>& terms) {
    double lanes[8] = {};
    for (std::size_t i = 0; i < terms.size(); ++i) lanes[i % 8] += terms[i];
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

double steps_of(const Quantization& how) {
    const int bits = static_cast<int>(numeric::code_bits(how.type));
    return how.algorithm == QuantizationAlgorithm::min_max ? std::ldexp(1.0, bits) - 1 : std::ldexp(1.0, bits - 1) - 1;
}

template <class T>
Block<T> reference_block(const Quantization& how, const T* x, std::size_t count) {
    T lo = x[0], hi = x[0];
    bool good = true;
    for (std::size_t i = 0; i < count; ++i) {
        good = good && std::isfinite(x[i]);
        lo = std::min(lo, x[i]);
        hi = std::max(hi, x[i]);
    }
    if (!good || !std::isfinite(static_cast<double>(hi) - static_cast<double>(lo)))
        return {std::numeric_limits<T>::quiet_NaN(), 0};
    double span = static_cast<double>(hi) - static_cast<double>(lo);
    T base = lo == 0 ? T{0} : lo;
    if (how.algorithm == QuantizationAlgorithm::zero_point_scale) {
        std::vector<double> first, squares;
        for (std::size_t i = 0; i < count; ++i) {
            first.push_back(static_cast<double>(x[i]) - static_cast<double>(lo));
            squares.push_back(first.back() * first.back());
        }
        const double above = sum_in_lanes<T>(first) / static_cast<double>(count);
        const double mean = static_cast<double>(lo) + above;
        base = std::isfinite(mean) ? static_cast<T>(std::min(mean, static_cast<double>(hi))) : hi;
        if (base == 0) base = 0;
        span = std::max(static_cast<double>(hi) - static_cast<double>(base),
                        static_cast<double>(base) - static_cast<double>(lo));
        if (how.hint == DistributionHint::normal) {
            const double variance = sum_in_lanes<T>(squares) / static_cast<double>(count) - above * above;
            if (std::isfinite(variance) && variance > 0) span = std::min(span, 6 * std::sqrt(variance));
        }
    }
    if (span == 0) return {base, 0};
    T step = static_cast<T>(span / steps_of(how));
    if (static_cast<double>(step) * steps_of(how) < span) step = std::nextafter(step, std::numeric_limits<T>::max());
    if (sizeof(T) == 8) step = std::max(step, static_cast<T>(std::numeric_limits<double>::min()));
    return {base, step};
}

// The number that is sent for x, exact in a long double.
template <class T>
long double reference_number(const Quantization& how, const Block<T>& block, T x) {
    if (block.step == 0) return 0;
    const bool centred = how.algorithm == QuantizationAlgorithm::zero_point_scale;
    double n = (static_cast<double>(x) - static_cast<double>(block.base)) * (1.0 / static_cast<double>(block.step));
    const double most = how.type == CodeType::u64 ? std::nextafter(std::ldexp(1.0, 64), 0.0) : steps_of(how);
    n = std::clamp(n, centred ? -most : 0.0, most);
    return std::nearbyint(n);
}

template <class T>
T reference_value(const Block<T>& block, long double n) {
    if (std::isnan(block.base)) return std::numeric_limits<T>::quiet_NaN();
    const double value = static_cast<double>(block.base) + static_cast<double>(n) * static_cast<double>(block.step);
    const double most = static_cast<double>(std::numeric_limits<T>::max());
    return static_cast<T>(std::clamp(value, -most, most));
}

template <class T>
void reference(const Quantization& how, const std::vector<T>& values, Bytes& wire, std::vector<T>& back) {
    const unsigned bits = numeric::code_bits(how.type);
    for (std::size_t at = 0; at < values.size(); at += 512) {
        const std::size_t count = std::min<std::size_t>(512, values.size() - at);
        const Block<T> block = reference_block(how, values.data() + at, count);
        unsigned char head[2 * sizeof(T)];
        std::memcpy(head, &block.base, sizeof(T));
        std::memcpy(head + sizeof(T), &block.step, sizeof(T));
        wire.insert(wire.end(), head, head + sizeof head);
        const std::size_t begin = wire.size();
        wire.resize(begin + (count * bits + 7) / 8);
        for (std::size_t i = 0; i < count; ++i) {
            if (std::isnan(block.base)) {
                back.push_back(std::numeric_limits<T>::quiet_NaN());
                continue;
            }
            const long double n = reference_number(how, block, values[at + i]);
            back.push_back(reference_value(block, n));
            const long double half = std::ldexp(1.0L, static_cast<int>(bits) - 1);
            const bool centred = how.algorithm == QuantizationAlgorithm::zero_point_scale;
            const long double code = centred == is_signed(how.type) ? n : centred ? n + half : n - half;
            const std::uint64_t field =
                code < 0 ? 0 - static_cast<std::uint64_t>(-code) : static_cast<std::uint64_t>(code);
            if (bits == 4)
                wire[begin + i / 2] = static_cast<unsigned char>(wire[begin + i / 2] | (field & 15) << (i % 2 * 4));
            else
                std::memcpy(wire.data() + begin + i * bits / 8, &field, bits / 8);
        }
    }
}

// ---- inputs ----

template <class T>
std::vector<T> draw(std::mt19937_64& random, std::size_t count, int kind) {
    std::vector<T> values(count);
    const auto uniform = [&](double low, double high) {
        return low + (high - low) * static_cast<double>(random() >> 11) / 9007199254740992.0;
    };
    for (T& value : values) {
        switch (kind) {
        case 0: value = static_cast<T>(uniform(-1, 1)); break;
        case 1: value = static_cast<T>(uniform(-1000, -999)); break;  // all negative
        case 2: {                                                     // about normal, with outliers
            double sum = 0;
            for (int i = 0; i < 12; ++i) sum += uniform(-0.5, 0.5);
            value = static_cast<T>(random() % 300 == 0 ? sum * 100 : sum);
            break;
        }
        case 3: value = static_cast<T>(uniform(-1, 1) * static_cast<double>(std::numeric_limits<T>::max()) / 2); break;
        case 4: {  // subnormal
            const std::uint64_t bits = random() % 5000 | (random() & 1) << (8 * sizeof(T) - 1);
            std::memcpy(&value, &bits, sizeof value);
            break;
        }
        case 5: value = random() % 2 != 0 ? T{0} : -T{0}; break;
        default: {  // any bits: infinities, NaN, every size
            const std::uint64_t bits = random();
            std::memcpy(&value, &bits, sizeof value);
            if (random() % 3 != 0)
                value = static_cast<T>(std::ldexp(uniform(-1, 1), static_cast<int>(random() % 200) - 100));
            break;
        }
        }
    }
    return values;
}

constexpr int kinds = 7;

template <class T>
void compare_levels() {
    std::mt19937_64 random(11);
    for (const Quantization& how : all_ways()) {
        for (int kind = 0; kind < kinds; ++kind) {
            for (const std::size_t count : {0u, 1u, 2u, 7u, 8u, 9u, 15u, 31u, 511u, 512u, 513u, 1500u}) {
                const std::vector<T> values = draw<T>(random, count, kind);
                Bytes wire;
                std::vector<T> back;
                reference(how, values, wire, back);
                REQUIRE(wire.size() == numeric::wire_bytes(how, type_of<T>(), count));
                for (const Level level : levels()) {
                    INFO("algorithm " << static_cast<int>(how.algorithm) << " code " << static_cast<int>(how.type)
                                      << " hint " << static_cast<int>(how.hint) << " kind " << kind << " count "
                                      << count << " level " << static_cast<int>(level) << " type f" << 8 * sizeof(T));
                    // Unaligned by one byte. The bytes around must stay as they are.
                    Bytes shifted(1 + count * sizeof(T)), made(wire.size() + 2, 0xcd),
                        read(1 + count * sizeof(T) + 1, 0xcd);
                    if (count != 0) std::memcpy(shifted.data() + 1, values.data(), count * sizeof(T));
                    const auto& functions = numeric::functions_of(level);
                    functions.quantize(how, type_of<T>(), made.data() + 1, shifted.data() + 1, count);
                    REQUIRE(std::equal(wire.begin(), wire.end(), made.begin() + 1));
                    functions.dequantize(how, type_of<T>(), read.data() + 1, made.data() + 1, count);
                    REQUIRE((count == 0 || std::memcmp(read.data() + 1, back.data(), count * sizeof(T)) == 0));
                    REQUIRE(
                        (made.front() == 0xcd && made.back() == 0xcd && read.front() == 0xcd && read.back() == 0xcd));
                }
            }
        }
    }
}

template <class T>
std::vector<T> there_and_back(const Quantization& how, const std::vector<T>& values) {
    Bytes wire(numeric::wire_bytes(how, type_of<T>(), values.size()));
    std::vector<T> back(values.size());
    numeric::quantize(how, type_of<T>(), wire.data(), values.data(), values.size());
    numeric::dequantize(how, type_of<T>(), back.data(), wire.data(), values.size());
    return back;
}

// The bound is half a step of the range, plus what the element type cannot represent.
template <class T>
void within_half_a_step() {
    std::mt19937_64 random(23);
    for (const Quantization& how : all_ways()) {
        if (how.hint == DistributionHint::normal) continue;  // clips outliers
        for (const int kind : {0, 1, 2}) {
            const std::vector<T> values = draw<T>(random, 512, kind);
            const std::vector<T> back = there_and_back(how, values);
            const auto [lo, hi] = std::minmax_element(values.begin(), values.end());
            double mean = 0;
            for (const T value : values) mean += static_cast<double>(value) / 512;
            const double span = how.algorithm == QuantizationAlgorithm::min_max
                                    ? static_cast<double>(*hi) - static_cast<double>(*lo)
                                    : std::max(static_cast<double>(*hi) - mean, mean - static_cast<double>(*lo));
            const double largest = std::max(std::fabs(static_cast<double>(*lo)), std::fabs(static_cast<double>(*hi)));
            const double unit = static_cast<double>(std::numeric_limits<T>::epsilon());
            const double bound = span / steps_of(how) * 0.5 * (1 + 4 * unit) + 2 * unit * (largest + span);
            double worst = 0;
            for (std::size_t i = 0; i < values.size(); ++i)
                worst = std::max(worst, std::fabs(static_cast<double>(values[i]) - static_cast<double>(back[i])));
            INFO("algorithm " << static_cast<int>(how.algorithm) << " code " << static_cast<int>(how.type) << " kind "
                              << kind);
            CHECK(worst <= bound);
        }
    }
}

}  // namespace

TEST_CASE("quantized bytes match the reference at every level", "[quantize]") {
    compare_levels<float>();
    compare_levels<double>();
}

TEST_CASE("an error is at most half a step", "[quantize]") {
    within_half_a_step<float>();
    within_half_a_step<double>();
}

TEST_CASE("constant blocks are exact", "[quantize]") {
    for (const Quantization& how : all_ways()) {
        for (const float value : {0.0f, 42.0f, -3.3f, 1e-45f, -1e-45f, 3.4e38f, -3.4e38f}) {
            CHECK(there_and_back(how, std::vector<float>(1024, value)) == std::vector<float>(1024, value));
            CHECK(there_and_back(how, std::vector<float>(1, value)) == std::vector<float>(1, value));
        }
        for (const double value : {5e-324, -1.7e308, 1.0 / 3}) {
            CHECK(there_and_back(how, std::vector<double>(700, value)) == std::vector<double>(700, value));
        }
    }
}

TEST_CASE("1024 times 42 and 43 in codes of 8 bits are 85", "[quantize]") {
    const Quantization how{QuantizationAlgorithm::min_max, CodeType::u8, DistributionHint::none};
    const std::vector<float> a(1024, 42), b(1024, 43);
    Bytes wire(numeric::wire_bytes(how, DataType::f32, 1024));
    numeric::quantize(how, DataType::f32, wire.data(), a.data(), 1024);
    numeric::reduce_quantized(how, DataType::f32, ReduceOp::sum, wire.data(), wire.data(), b.data(), 1024, 0);
    std::vector<float> result(1024);
    numeric::dequantize(how, DataType::f32, result.data(), wire.data(), 1024);
    CHECK(result == std::vector<float>(1024, 85));
}

TEST_CASE("a value that is not finite makes its block NaN, and no other", "[quantize]") {
    for (const Quantization& how : all_ways()) {
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity()}) {
            std::vector<float> values(1100, 1.5f);
            values[700] = bad;
            const std::vector<float> back = there_and_back(how, values);
            for (std::size_t i = 0; i < back.size(); ++i) {
                std::uint32_t bits = 0;
                std::memcpy(&bits, &back[i], sizeof bits);
                REQUIRE(bits == (i / 512 == 1 ? 0x7fc00000u : 0x3fc00000u));
            }
        }
    }
    // Farther apart than the largest double, so there is no step.
    const double most = std::numeric_limits<double>::max();
    for (const double value : there_and_back(all_ways()[0], std::vector<double>{-most, most})) CHECK(std::isnan(value));
    // The largest floats stay finite.
    const float top = std::numeric_limits<float>::max();
    for (const Quantization& how : all_ways()) {
        for (const float value : there_and_back(how, std::vector<float>{-top, 0, top})) CHECK(std::isfinite(value));
    }
}

TEST_CASE("one hop is dequantize, reduce, quantize", "[quantize]") {
    std::mt19937_64 random(31);
    for (const Quantization& how : all_ways()) {
        for (std::uint32_t op = 0; op < reduce_op_count; ++op) {
            const std::vector<float> a = draw<float>(random, 1300, 2), b = draw<float>(random, 1300, 0);
            Bytes wire(numeric::wire_bytes(how, DataType::f32, 1300)), expected(wire.size());
            numeric::quantize(how, DataType::f32, wire.data(), a.data(), 1300);
            std::vector<float> sum(1300);
            numeric::dequantize(how, DataType::f32, sum.data(), wire.data(), 1300);
            const std::uint32_t divisor = static_cast<ReduceOp>(op) == ReduceOp::avg ? 3 : 0;
            numeric::reduce(DataType::f32, static_cast<ReduceOp>(op), sum.data(), sum.data(), b.data(), 1300, divisor);
            numeric::quantize(how, DataType::f32, expected.data(), sum.data(), 1300);
            numeric::reduce_quantized(how, DataType::f32, static_cast<ReduceOp>(op), wire.data(), wire.data(), b.data(),
                                      1300, divisor);
            CHECK(wire == expected);
        }
    }
}

TEST_CASE("any bytes can be read, with the same result at every level", "[quantize]") {
    std::mt19937_64 random(37);
    for (int round = 0; round < 200; ++round) {
        for (const Quantization& how : all_ways()) {
            Bytes wire(numeric::wire_bytes(how, DataType::f32, 37));
            for (auto& byte : wire) byte = static_cast<unsigned char>(random());
            std::vector<std::uint32_t> first(37), other(37);
            for (const Level level : levels()) {
                auto& values = level == Level::baseline ? first : other;
                numeric::functions_of(level).dequantize(how, DataType::f32, values.data(), wire.data(), 37);
            }
            if (levels().size() > 1) REQUIRE(first == other);
        }
    }
}

TEST_CASE("sizes on the wire", "[quantize]") {
    for (const Quantization& how : all_ways()) {
        for (const DataType type : {DataType::f32, DataType::f64}) {
            for (const std::uint32_t bytes : {1u, 8u, 16u, 17u, 24u, 40u, 264u, 528u, 1040u, 4096u, 262'144u}) {
                const std::uint32_t elements = numeric::elements_within(how, type, bytes);
                CHECK((elements == 1 || numeric::wire_bytes(how, type, elements) <= bytes));
                CHECK((elements < 512 || elements % 512 == 0));
                CHECK((elements == 1 || elements * element_bytes(type) <= bytes));
                const std::uint32_t more = elements + (elements < 512 ? 1 : 512);
                CHECK((numeric::wire_bytes(how, type, more) > bytes || more * element_bytes(type) > bytes));
            }
        }
    }
    const Quantization bytes{QuantizationAlgorithm::min_max, CodeType::u8, DistributionHint::none};
    for (std::uint64_t count = 200; count < 5000; ++count)
        CHECK(static_cast<double>(numeric::wire_bytes(bytes, DataType::f32, count)) <=
              0.26 * 4 * static_cast<double>(count));
}
