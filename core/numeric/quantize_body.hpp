// The kernels of quantize.hpp, compiled once per level after reduce_body.hpp: no include guard on purpose.
//
// Elements are handled in groups of eight whatever the register width, so that every level performs the same operations
// in the same order. An incomplete group at the end of a block is padded with a value that changes no extreme and adds
// nothing to the sums.

namespace pccl::core::numeric::PCCL_LEVEL {
namespace {

constexpr std::size_t group = 8;
constexpr std::size_t width = PCCL_VECTOR_BYTES / sizeof(double);  // elements of a group that one register takes
constexpr std::size_t registers = group / width;

using Double = Vector<double>;
using Long = Vector<std::uint64_t>;
using Int = VectorOf<std::int32_t, width * sizeof(std::int32_t)>::type;
using Ints = VectorOf<std::int32_t, group * sizeof(std::int32_t)>::type;

// 1.5 * 2^52. In a sum with it, the lowest bit of the mantissa is worth 1, so the addition rounds to a whole number.
constexpr double rounder = 6755399441055744.0;
constexpr double two_to_52 = 4503599627370496.0, two_to_32 = 4294967296.0;
constexpr double f64_max = 1.79769313486231570815e+308, f64_least_normal = 2.22507385850720138309e-308;
constexpr double f32_max = 3.40282346638528859812e+38;

PCCL_INLINE Long bits_of(Double value) { return (Long)value; }

template <class To, class From>
PCCL_INLINE To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

template <class T>
PCCL_INLINE bool is_finite(T value) {
    using Bits = FloatBits<T>;
    return (same_bits<typename Bits::Unsigned>(value) & Bits::magnitude) < Bits::infinity;
}

template <class T>
PCCL_INLINE T quiet_nan() {
    return same_bits<T>(FloatBits<T>::quiet_nan);
}

// `value` must be neither negative nor infinite.
template <class T>
PCCL_INLINE T next_up(T value) {
    return same_bits<T>(
        static_cast<typename FloatBits<T>::Unsigned>(same_bits<typename FloatBits<T>::Unsigned>(value) + 1));
}

struct Group {
    Double part[registers];
};

template <class T>
PCCL_INLINE Group load(const T* values) {
    Group result;
    for (std::size_t i = 0; i < registers; ++i) {
        typename VectorOf<T, width * sizeof(T)>::type narrow;
        std::memcpy(&narrow, values + i * width, sizeof narrow);
        result.part[i] = __builtin_convertvector(narrow, Double);
    }
    return result;
}

// Calls step(group of values, index of its first element, number of elements without padding) for all groups of the
// `count` elements at `bytes`.
template <class T, class Step>
PCCL_INLINE void for_each_group(const unsigned char* bytes, std::size_t count, T padding, const Step& step) {
    T values[group];
    std::size_t at = 0;
    for (; count - at >= group; at += group) {
        std::memcpy(values, bytes + at * sizeof(T), sizeof values);
        step(load(values), at, group);
    }
    if (at == count) return;
    for (T& value : values) value = padding;
    std::memcpy(values, bytes + at * sizeof(T), (count - at) * sizeof(T));
    step(load(values), at, count - at);
}

// --- parameters of a block -----------------------------------------------------------------------------------------

// Parameters common to all blocks: the numbers n that may be sent, and the code of n = 0.
struct Scheme {
    bool centred = false;  // zero_point_scale: base is the mean and n has a sign
    bool clips = false;    // at 6 standard deviations
    double steps = 0;      // from base to the end of the range
    double least = 0;      // smallest n
    double most = 0;       // largest n
    double zero_code = 0;  // for codes up to 32 bits, as a signed number
};

PCCL_INLINE Scheme scheme_of(const Quantization& how) {
    const double half = static_cast<double>(1ull << (code_bits(how.type) - 1));  // 2^(b-1)
    const bool is_signed = how.type == CodeType::i8 || how.type == CodeType::i16 || how.type == CodeType::i32;
    Scheme scheme;
    scheme.centred = how.algorithm == QuantizationAlgorithm::zero_point_scale;
    scheme.clips = scheme.centred && how.hint == DistributionHint::normal;
    if (scheme.centred) {
        scheme.steps = scheme.most = half - 1;
        scheme.least = -scheme.most;
        scheme.zero_code = is_signed ? 0 : half;
    } else {
        scheme.steps = scheme.most = 2 * half - 1;
        scheme.zero_code = is_signed ? -half : 0;
    }
    if (how.type == CodeType::u64) scheme.most = 18446744073709549568.0;  // the largest double below 2^64
    // Unsigned 32-bit codes are handled as signed numbers, with their highest bit flipped.
    if (how.type == CodeType::u32) scheme.zero_code -= half;
    return scheme;
}

template <class T>
struct Parameters {
    T base;
    T step;
};

struct Sums {
    double first = 0;
    double squares = 0;
};

PCCL_INLINE double sum_of(const Group& lanes) {
    double s[group];
    std::memcpy(s, lanes.part, sizeof s);
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

template <class T>
PCCL_INLINE Sums sums_above(const unsigned char* bytes, std::size_t count, T lo) {
    Group first = {}, squares = {};
    for_each_group<T>(
        bytes, count, lo, [&](const Group& x, std::size_t, std::size_t) __attribute__((always_inline)) {
            for (std::size_t i = 0; i < registers; ++i) {
                const Double above = x.part[i] - static_cast<double>(lo);
                first.part[i] += above;
                squares.part[i] += above * above;
            }
        });
    return {sum_of(first), sum_of(squares)};
}

// Sets `base` to the mean. Returns the span: the distance from the base to the end of the range.
template <class T>
PCCL_INLINE double centre(const Scheme& scheme, const unsigned char* bytes, std::size_t count, T lo, T hi, T& base) {
    const Sums sums = sums_above(bytes, count, lo);
    const auto n = static_cast<double>(count);
    const double above = sums.first / n;
    double mean = static_cast<double>(lo) + above;
    if (!is_finite(mean) || mean > static_cast<double>(hi)) mean = static_cast<double>(hi);
    base = static_cast<T>(mean) + T{0};
    const double up = static_cast<double>(hi) - static_cast<double>(base);
    const double down = static_cast<double>(base) - static_cast<double>(lo);
    double span = up > down ? up : down;
    if (scheme.clips) {
        const double variance = sums.squares / n - above * above;
        const double limit = is_finite(variance) && variance > 0 ? 6 * __builtin_sqrt(variance) : 0;
        if (limit > 0 && limit < span) span = limit;
    }
    return span;
}

template <class T>
PCCL_INLINE Parameters<T> parameters_of(const Scheme& scheme, const unsigned char* bytes, std::size_t count) {
    T first;
    std::memcpy(&first, bytes, sizeof first);
    Group low, high;
    Long unordered = {};
    for (std::size_t i = 0; i < registers; ++i) low.part[i] = high.part[i] = Double{} + static_cast<double>(first);
    for_each_group<T>(
        bytes, count, first, [&](const Group& x, std::size_t, std::size_t) __attribute__((always_inline)) {
            for (std::size_t i = 0; i < registers; ++i) {
                low.part[i] = x.part[i] < low.part[i] ? x.part[i] : low.part[i];
                high.part[i] = x.part[i] > high.part[i] ? x.part[i] : high.part[i];
                unordered |= (Long)(x.part[i] != x.part[i]);
            }
        });
    std::uint64_t nan = 0;
    double lowest = static_cast<double>(first), highest = lowest;
    for (std::size_t lane = 0; lane < width; ++lane) {
        nan |= unordered[lane];
        for (std::size_t i = 0; i < registers; ++i) {
            if (low.part[i][lane] < lowest) lowest = low.part[i][lane];
            if (high.part[i][lane] > highest) highest = high.part[i][lane];
        }
    }
    // Whether -0 or +0 is found depends on the register width. Adding 0 makes both +0.
    const T lo = static_cast<T>(lowest) + T{0};
    const T hi = static_cast<T>(highest) + T{0};
    double span = highest - lowest;
    if (nan != 0 || !is_finite(span)) return {quiet_nan<T>(), T{0}};
    T base = lo;
    if (scheme.centred) span = centre(scheme, bytes, count, lo, hi, base);
    if (span == 0) return {base, T{0}};
    T step = static_cast<T>(span / scheme.steps);
    if (static_cast<double>(step) * scheme.steps < span) step = next_up(step);
    if (sizeof(T) == 8 && static_cast<double>(step) < f64_least_normal) step = static_cast<T>(f64_least_normal);
    return {base, step};
}

// --- codes ---------------------------------------------------------------------------------------------------------

template <class Code, class T>
PCCL_INLINE void write_codes(const Scheme& scheme, const Parameters<T>& parameters, const unsigned char* bytes,
                             std::size_t count, unsigned char* codes) {
    constexpr bool wide = sizeof(Code) == 8;
    const auto base = static_cast<double>(parameters.base);
    const double inverse = parameters.step > T{0} ? 1.0 / static_cast<double>(parameters.step) : 0.0;
    for_each_group<T>(
        bytes, count,
        parameters.base, [&](const Group& x, std::size_t at, std::size_t there) __attribute__((always_inline)) {
            Code out[group];
            Ints narrow = {};
            for (std::size_t i = 0; i < registers; ++i) {
                Double n = (x.part[i] - base) * inverse;
                n = n < scheme.least ? Double{} + scheme.least : n;
                n = n > scheme.most ? Double{} + scheme.most : n;
                if constexpr (wide) {
                    const Double upper = n * (1.0 / two_to_32) + rounder;
                    const Double lower = n - (upper - rounder) * two_to_32;
                    const Long zero = bits_of(Double{} + rounder);
                    const Long code = ((bits_of(upper) - zero) << 32) + (bits_of(lower + rounder) - zero);
                    std::memcpy(out + i * width, &code, sizeof code);
                } else {
                    const Double whole = ((n + rounder) - rounder) + scheme.zero_code;
                    const Int code = __builtin_convertvector(whole, Int);
                    std::memcpy(reinterpret_cast<unsigned char*>(&narrow) + i * sizeof code, &code, sizeof code);
                }
            }
            if constexpr (!wide) {
                using Codes = typename VectorOf<Code, group * sizeof(Code)>::type;
                if constexpr (static_cast<Code>(-1) > Code{0} && sizeof(Code) == 4) narrow ^= Ints{} + INT32_MIN;
                const Codes packed = __builtin_convertvector(narrow, Codes);
                std::memcpy(out, &packed, sizeof packed);
            }
            if (there == group)
                std::memcpy(codes + at * sizeof(Code), out, sizeof out);
            else
                std::memcpy(codes + at * sizeof(Code), out, there * sizeof(Code));
        });
}

template <class Code, class T>
PCCL_INLINE void read_codes(const Scheme& scheme, const Parameters<T>& parameters, const unsigned char* codes,
                            std::size_t count, unsigned char* bytes) {
    constexpr bool wide = sizeof(Code) == 8;
    using Narrow = typename VectorOf<T, width * sizeof(T)>::type;
    const auto base = static_cast<double>(parameters.base);
    const auto step = static_cast<double>(parameters.step);
    constexpr double largest = sizeof(T) == 4 ? f32_max : f64_max;
    for (std::size_t at = 0; at < count; at += group) {
        const std::size_t there = count - at < group ? count - at : group;
        Code in[group] = {};
        if (there == group)
            std::memcpy(in, codes + at * sizeof(Code), sizeof in);
        else
            std::memcpy(in, codes + at * sizeof(Code), there * sizeof(Code));
        Ints narrow = {};
        if constexpr (!wide) {
            using Codes = typename VectorOf<Code, group * sizeof(Code)>::type;
            Codes packed;
            std::memcpy(&packed, in, sizeof packed);
            narrow = __builtin_convertvector(packed, Ints);
            if constexpr (static_cast<Code>(-1) > Code{0} && sizeof(Code) == 4) narrow ^= Ints{} + INT32_MIN;
        }
        T out[group];
        for (std::size_t i = 0; i < registers; ++i) {
            Double n;
            if constexpr (wide) {
                Long code;
                std::memcpy(&code, in + i * width, sizeof code);
                const Long exponent = bits_of(Double{} + two_to_52);
                const Double upper = (Double)((code >> 32) | exponent) - two_to_52;
                const Double lower = (Double)((code & 0xffffffffu) | exponent) - two_to_52;
                n = upper * two_to_32 + lower;
            } else {
                Int code;
                std::memcpy(&code, reinterpret_cast<const unsigned char*>(&narrow) + i * sizeof code, sizeof code);
                n = __builtin_convertvector(code, Double) - scheme.zero_code;
            }
            Double value = base + n * step;
            value = value > largest ? Double{} + largest : value;
            value = value < -largest ? Double{} - largest : value;
            const Narrow result = __builtin_convertvector(value, Narrow);
            std::memcpy(out + i * width, &result, sizeof result);
        }
        if (there == group)
            std::memcpy(bytes + at * sizeof(T), out, sizeof out);
        else
            std::memcpy(bytes + at * sizeof(T), out, there * sizeof(T));
    }
}

// --- blocks --------------------------------------------------------------------------------------------------------

template <class Code, bool half_bytes, class T>
void quantize_blocks(const Quantization& how, unsigned char* wire, const unsigned char* values, std::size_t count) {
    const Scheme scheme = scheme_of(how);
    while (count != 0) {
        const std::size_t elements = count < quantization_block ? count : quantization_block;
        const Parameters<T> parameters = parameters_of<T>(scheme, values, elements);
        std::memcpy(wire, &parameters, sizeof parameters);
        wire += sizeof parameters;
        std::size_t bytes = elements * sizeof(Code);
        if constexpr (half_bytes) bytes = (elements + 1) / 2;
        if (!is_finite(parameters.base)) {
            std::memset(wire, 0, bytes);
        } else if constexpr (half_bytes) {
            unsigned char codes[quantization_block + 1] = {};
            write_codes<Code>(scheme, parameters, values, elements, codes);
            for (std::size_t i = 0; i < bytes; ++i)
                wire[i] = static_cast<unsigned char>(codes[2 * i] | codes[2 * i + 1] << 4);
        } else {
            write_codes<Code>(scheme, parameters, values, elements, wire);
        }
        wire += bytes;
        values += elements * sizeof(T);
        count -= elements;
    }
}

template <class Code, bool half_bytes, class T>
void dequantize_blocks(const Quantization& how, unsigned char* values, const unsigned char* wire, std::size_t count) {
    const Scheme scheme = scheme_of(how);
    while (count != 0) {
        const std::size_t elements = count < quantization_block ? count : quantization_block;
        Parameters<T> parameters;
        std::memcpy(&parameters, wire, sizeof parameters);
        wire += sizeof parameters;
        std::size_t bytes = elements * sizeof(Code);
        if constexpr (half_bytes) bytes = (elements + 1) / 2;
        if (!is_finite(parameters.base) || !is_finite(parameters.step)) {
            const T nan = quiet_nan<T>();
            for (std::size_t i = 0; i < elements; ++i) std::memcpy(values + i * sizeof(T), &nan, sizeof nan);
        } else if constexpr (half_bytes) {
            unsigned char codes[quantization_block + 1];
            for (std::size_t i = 0; i < bytes; ++i) {
                codes[2 * i] = wire[i] & 15;
                codes[2 * i + 1] = static_cast<unsigned char>(wire[i] >> 4);
            }
            read_codes<Code>(scheme, parameters, codes, elements, values);
        } else {
            read_codes<Code>(scheme, parameters, wire, elements, values);
        }
        wire += bytes;
        values += elements * sizeof(T);
        count -= elements;
    }
}

template <class T, class Run>
PCCL_INLINE void with_code(const Quantization& how, const Run& run) {
    switch (how.type) {
    case CodeType::u4: return run.template operator()<std::uint8_t, true, T>();
    case CodeType::u8: return run.template operator()<std::uint8_t, false, T>();
    case CodeType::i8: return run.template operator()<std::int8_t, false, T>();
    case CodeType::i16: return run.template operator()<std::int16_t, false, T>();
    case CodeType::u16: return run.template operator()<std::uint16_t, false, T>();
    case CodeType::u32: return run.template operator()<std::uint32_t, false, T>();
    case CodeType::i32: return run.template operator()<std::int32_t, false, T>();
    case CodeType::u64: return run.template operator()<std::uint64_t, false, T>();
    }
}

void quantize(const Quantization& how, DataType type, void* wire, const void* values, std::size_t count) {
    auto* out = static_cast<unsigned char*>(wire);
    const auto* in = static_cast<const unsigned char*>(values);
    const auto run = [&]<class Code, bool half_bytes, class T>() {
        quantize_blocks<Code, half_bytes, T>(how, out, in, count);
    };
    return type == DataType::f32 ? with_code<float>(how, run) : with_code<double>(how, run);
}

void dequantize(const Quantization& how, DataType type, void* values, const void* wire, std::size_t count) {
    auto* out = static_cast<unsigned char*>(values);
    const auto* in = static_cast<const unsigned char*>(wire);
    const auto run = [&]<class Code, bool half_bytes, class T>() {
        dequantize_blocks<Code, half_bytes, T>(how, out, in, count);
    };
    return type == DataType::f32 ? with_code<float>(how, run) : with_code<double>(how, run);
}

}  // namespace
}  // namespace pccl::core::numeric::PCCL_LEVEL

#undef PCCL_INLINE
