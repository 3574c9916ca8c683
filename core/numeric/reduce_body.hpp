// The reduction kernels, compiled once per level: no include guard on purpose.
//
// The includer defines PCCL_LEVEL (a namespace), PCCL_VECTOR_BYTES (register width) and PCCL_HAVE_F16C (0 or 1). It
// includes <cstddef>, <cstdint> and <cstring> before it switches the instruction set: no inline function of the
// standard library may be compiled for instructions that some CPUs lack.
//
// All operations are element-wise on compiler vectors, so the bytes are the same at any width. Comparisons and NaN
// tests work on the bit patterns, so they do not depend on the floating-point environment of the calling thread. Vector
// arguments never cross a call boundary (all helpers are inlined).

#define PCCL_INLINE [[gnu::always_inline]] inline

namespace pccl::core::numeric::PCCL_LEVEL {
namespace {

template <class T, std::size_t bytes>
struct VectorOf {
    typedef T type __attribute__((vector_size(bytes)));
};
template <class T>
using Vector = typename VectorOf<T, PCCL_VECTOR_BYTES>::type;

template <class T>
struct UnsignedOf {
    using type = T;
};
template <>
struct UnsignedOf<std::int8_t> {
    using type = std::uint8_t;
};
template <>
struct UnsignedOf<std::int16_t> {
    using type = std::uint16_t;
};
template <>
struct UnsignedOf<std::int32_t> {
    using type = std::uint32_t;
};
template <>
struct UnsignedOf<std::int64_t> {
    using type = std::uint64_t;
};

struct Half;   // IEEE binary16
struct Brain;  // bfloat16

// The bit layout of a floating-point type.
template <class T>
struct FloatBits;
template <>
struct FloatBits<float> {
    using Unsigned = std::uint32_t;
    using Signed = std::int32_t;
    static constexpr Unsigned infinity = 0x7f800000u, quiet_nan = 0x7fc00000u, magnitude = 0x7fffffffu;
};
template <>
struct FloatBits<double> {
    using Unsigned = std::uint64_t;
    using Signed = std::int64_t;
    static constexpr Unsigned infinity = 0x7ff0000000000000u, quiet_nan = 0x7ff8000000000000u,
                              magnitude = 0x7fffffffffffffffu;
};
template <>
struct FloatBits<Half> {
    using Unsigned = std::uint16_t;
    using Signed = std::int16_t;
    static constexpr Unsigned infinity = 0x7c00u, quiet_nan = 0x7e00u, magnitude = 0x7fffu;
};
template <>
struct FloatBits<Brain> {
    using Unsigned = std::uint16_t;
    using Signed = std::int16_t;
    static constexpr Unsigned infinity = 0x7f80u, quiet_nan = 0x7fc0u, magnitude = 0x7fffu;
};

// Takes a lane from `yes` if the mask is all ones there, from `no` if it is zero.
template <class V>
PCCL_INLINE V select(V mask, V yes, V no) {
    return (mask & yes) | (~mask & no);
}

// Runs `Step::apply(a, b)` over the arrays, a vector at a time; the rest goes through a zero-padded vector.
template <class V, class Step>
PCCL_INLINE void for_each_vector(void* target, const void* a, const void* b, std::size_t bytes, const Step& step) {
    auto* out = static_cast<unsigned char*>(target);
    const auto* left = static_cast<const unsigned char*>(a);
    const auto* right = static_cast<const unsigned char*>(b);
    std::size_t at = 0;
    for (; bytes - at >= sizeof(V); at += sizeof(V)) {
        V x, y;
        std::memcpy(&x, left + at, sizeof x);
        std::memcpy(&y, right + at, sizeof y);
        const V result = step.apply(x, y);
        std::memcpy(out + at, &result, sizeof result);
    }
    if (at < bytes) {
        V x = {}, y = {};
        std::memcpy(&x, left + at, bytes - at);
        std::memcpy(&y, right + at, bytes - at);
        const V result = step.apply(x, y);
        std::memcpy(out + at, &result, bytes - at);
    }
}

// --- integers ------------------------------------------------------------------------------------------------------

template <class T, ReduceOp op>
struct IntegerStep {
    using U = typename UnsignedOf<T>::type;
    using V = Vector<U>;  // arithmetic in unsigned lanes wraps by definition
    using S = Vector<T>;
    std::uint32_t divisor;

    [[gnu::always_inline]] inline V apply(V x, V y) const {
        if constexpr (op == ReduceOp::prod) {
            return x * y;
        } else if constexpr (op == ReduceOp::max) {
            return select<V>((V)((S)x > (S)y), x, y);
        } else if constexpr (op == ReduceOp::min) {
            return select<V>((V)((S)x < (S)y), x, y);
        } else if constexpr (op == ReduceOp::sum) {
            return x + y;
        } else {
            S sum = (S)(x + y);
            // Divide in a type that holds every divisor and every element of T. The quotient is then exact even if the
            // divisor is larger than T.
            for (std::size_t i = 0; i < sizeof(S) / sizeof(T); ++i) {
                if constexpr (static_cast<T>(-1) < T{0}) {
                    sum[i] = static_cast<T>(static_cast<std::int64_t>(sum[i]) / static_cast<std::int64_t>(divisor));
                } else if constexpr (sizeof(T) < 8) {
                    sum[i] = static_cast<T>(static_cast<std::uint32_t>(sum[i]) / divisor);
                } else {
                    sum[i] = static_cast<T>(sum[i] / divisor);
                }
            }
            return (V)sum;
        }
    }
};

// --- floating point ------------------------------------------------------------------------------------------------

// Minimum and maximum on bit patterns. The key orders them as numbers with -0 below +0.
template <class T, ReduceOp op>
struct OrderStep {
    using Bits = FloatBits<T>;
    using V = Vector<typename Bits::Unsigned>;
    using S = Vector<typename Bits::Signed>;

    [[gnu::always_inline]] static inline V is_nan(V x) {
        // The sign bits of both sides are clear, so a signed comparison is right, and every instruction set has one.
        return (V)((S)(x & Bits::magnitude) > (S)(V{} + Bits::infinity));
    }
    [[gnu::always_inline]] static inline S key(V x) { return (S)(x ^ ((V)((S)x < S{}) & Bits::magnitude)); }
    [[gnu::always_inline]] inline V apply(V x, V y) const {
        const V take_left = op == ReduceOp::max ? (V)(key(x) > key(y)) : (V)(key(x) < key(y));
        const V ordered = select<V>(take_left, x, y);
        return select<V>(is_nan(x) | is_nan(y), V{} + Bits::quiet_nan, ordered);
    }
};

template <class T, ReduceOp op, bool divide>
PCCL_INLINE Vector<T> arithmetic(Vector<T> x, Vector<T> y, T divisor) {
    using Bits = FloatBits<T>;
    using V = Vector<typename Bits::Unsigned>;
    Vector<T> result;
    if constexpr (op == ReduceOp::prod)
        result = x * y;
    else
        result = x + y;
    if constexpr (divide) result = result / divisor;
    // The NaN that the hardware produces depends on CPU and operand order. Replace it by the canonical one.
    const V unordered = (V)(result != result);
    return (Vector<T>)select<V>(unordered, V{} + Bits::quiet_nan, (V)result);
}

template <class T, ReduceOp op, bool divide>
struct FloatStep {
    using V = Vector<T>;
    T divisor;
    [[gnu::always_inline]] inline V apply(V x, V y) const { return arithmetic<T, op, divide>(x, y, divisor); }
};

// --- 16-bit floating point: widen to f32, compute, round once to nearest even --------------------------------------

using Word = Vector<std::uint32_t>;
using SignedWord = Vector<std::int32_t>;
using Float = Vector<float>;
using Narrow = VectorOf<std::uint16_t, PCCL_VECTOR_BYTES / 2>::type;

PCCL_INLINE Word float_bits(std::uint32_t value) { return Word{} + value; }

template <class T>
PCCL_INLINE Float widen(Narrow narrow);
template <class T>
PCCL_INLINE Narrow round_to_even(Float value);

template <>
PCCL_INLINE Float widen<Brain>(Narrow narrow) {
    return (Float)(__builtin_convertvector(narrow, Word) << 16);
}

template <>
PCCL_INLINE Narrow round_to_even<Brain>(Float value) {
    const Word bits = (Word)value;  // NaN is canonical here, so adding the rounding term cannot turn it into infinity
    return __builtin_convertvector((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, Narrow);
}

#if PCCL_HAVE_F16C

template <>
PCCL_INLINE Float widen<Half>(Narrow narrow) {
    return (Float)_mm256_cvtph_ps((__m128i)narrow);
}

template <>
PCCL_INLINE Narrow round_to_even<Half>(Float value) {
    return (Narrow)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#else

template <>
PCCL_INLINE Float widen<Half>(Narrow narrow) {
    const Word half = __builtin_convertvector(narrow, Word);
    const Word magnitude = half & 0x7fffu;
    const Word sign = (half & 0x8000u) << 16;
    const Word shifted = magnitude << 13;
    const Word normal = shifted + ((127u - 15u) << 23);
    const Word special = normal + ((128u - 16u) << 23);  // infinity and NaN: exponent all ones
    // A denormal is m * 2^-24. Put the exponent of 2^-14 in front of m and subtract 2^-14: the difference is the value.
    const Word denormal = (Word)((Float)(shifted + (113u << 23)) - (Float)float_bits(113u << 23));
    const Word is_special = (Word)((SignedWord)magnitude > (SignedWord)float_bits(0x7bffu));
    const Word is_denormal = (Word)((SignedWord)magnitude < (SignedWord)float_bits(0x0400u));
    return (Float)(sign | select<Word>(is_denormal, denormal, select<Word>(is_special, special, normal)));
}

template <>
PCCL_INLINE Narrow round_to_even<Half>(Float value) {
    const Word bits = (Word)value;
    const Word magnitude = bits & 0x7fffffffu;
    const Word sign = (bits >> 16) & 0x8000u;
    // Rebias the exponent and add just under half a unit, plus one if the kept part is odd: ties go to even.
    const Word normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Below 2^-14: in the sum with 1/2, the last bit of the sum has the value of the last bit of a half (2^-24). So the
    // addition rounds.
    const Word small = (Word)((Float)magnitude + (Float)float_bits(126u << 23)) - (126u << 23);
    const Word is_small = (Word)((SignedWord)magnitude < (SignedWord)float_bits(113u << 23));
    const Word is_large = (Word)((SignedWord)magnitude > (SignedWord)float_bits((143u << 23) - 1u));
    const Word is_nan = (Word)((SignedWord)magnitude > (SignedWord)float_bits(0x7f800000u));
    const Word large = select<Word>(is_nan, float_bits(0x7e00u), float_bits(0x7c00u));
    return __builtin_convertvector(sign | select<Word>(is_small, small, select<Word>(is_large, large, normal)), Narrow);
}

#endif

template <class T, ReduceOp op, bool divide>
struct NarrowFloatStep {
    using V = Narrow;
    float divisor;
    [[gnu::always_inline]] inline V apply(V x, V y) const {
        return round_to_even<T>(arithmetic<float, op, divide>(widen<T>(x), widen<T>(y), divisor));
    }
};

// --- choice by operator and type -----------------------------------------------------------------------------------

struct Arrays {
    void* target;
    const void* a;
    const void* b;
    std::size_t count;
    std::uint32_t divisor;
};

template <class Step>
void run(const Arrays& arrays, std::size_t element_size, const Step& step) {
    for_each_vector<typename Step::V>(arrays.target, arrays.a, arrays.b, arrays.count * element_size, step);
}

template <class T>
void reduce_integer(ReduceOp op, const Arrays& arrays) {
    switch (op) {
    case ReduceOp::avg:
        if (arrays.divisor != 0) {
            return run(arrays, sizeof(T), IntegerStep<T, ReduceOp::avg>{arrays.divisor});
        }
        [[fallthrough]];
    case ReduceOp::sum: return run(arrays, sizeof(T), IntegerStep<T, ReduceOp::sum>{0});
    case ReduceOp::prod: return run(arrays, sizeof(T), IntegerStep<T, ReduceOp::prod>{0});
    case ReduceOp::max: return run(arrays, sizeof(T), IntegerStep<T, ReduceOp::max>{0});
    case ReduceOp::min: return run(arrays, sizeof(T), IntegerStep<T, ReduceOp::min>{0});
    }
}

template <class T, template <class, ReduceOp, bool> class Step, class Divisor>
void reduce_float(ReduceOp op, const Arrays& arrays) {
    constexpr std::size_t size = sizeof(typename FloatBits<T>::Unsigned);
    switch (op) {
    case ReduceOp::avg:
        if (arrays.divisor != 0) {
            return run(arrays, size, Step<T, ReduceOp::avg, true>{static_cast<Divisor>(arrays.divisor)});
        }
        [[fallthrough]];
    case ReduceOp::sum: return run(arrays, size, Step<T, ReduceOp::sum, false>{1});
    case ReduceOp::prod: return run(arrays, size, Step<T, ReduceOp::prod, false>{1});
    case ReduceOp::max: return run(arrays, size, OrderStep<T, ReduceOp::max>{});
    case ReduceOp::min: return run(arrays, size, OrderStep<T, ReduceOp::min>{});
    }
}

void reduce(DataType type, ReduceOp op, void* target, const void* a, const void* b, std::size_t count,
            std::uint32_t divisor) {
    const Arrays arrays{target, a, b, count, divisor};
    switch (type) {
    case DataType::u8: return reduce_integer<std::uint8_t>(op, arrays);
    case DataType::i8: return reduce_integer<std::int8_t>(op, arrays);
    case DataType::i16: return reduce_integer<std::int16_t>(op, arrays);
    case DataType::u16: return reduce_integer<std::uint16_t>(op, arrays);
    case DataType::u32: return reduce_integer<std::uint32_t>(op, arrays);
    case DataType::i32: return reduce_integer<std::int32_t>(op, arrays);
    case DataType::u64: return reduce_integer<std::uint64_t>(op, arrays);
    case DataType::i64: return reduce_integer<std::int64_t>(op, arrays);
    case DataType::f16: return reduce_float<Half, NarrowFloatStep, float>(op, arrays);
    case DataType::bf16: return reduce_float<Brain, NarrowFloatStep, float>(op, arrays);
    case DataType::f32: return reduce_float<float, FloatStep, float>(op, arrays);
    case DataType::f64: return reduce_float<double, FloatStep, double>(op, arrays);
    }
}

}  // namespace
}  // namespace pccl::core::numeric::PCCL_LEVEL
