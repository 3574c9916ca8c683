// Kernels and checksums against a reference that is written in another way: one element at a time, wide integers,
// doubles and explicit rounding instead of vectors and bit tricks. Every instruction-set level must give the
// reference's bytes.
#include "core/numeric/copy.hpp"
#include "core/numeric/kernels.hpp"
#include "core/numeric/levels.hpp"

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

// Value of a small IEEE format given by its number of exponent and mantissa bits, by arithmetic on the fields.
double decode_small(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) {
        return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    }
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

// Nearest value of the small format, ties to even, by scaling to the unit of the last place and std::nearbyint.
std::uint16_t encode_small(double value, int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto infinity = static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
    if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | (1 << (mantissa_bits - 1)));
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const double magnitude = std::fabs(value);
    if (magnitude == 0) return sign;
    if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
    int exponent = std::max(std::ilogb(magnitude), 1 - bias);
    double units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
    if (units == (2 << mantissa_bits)) {
        units /= 2;
        ++exponent;
    }
    if (exponent > bias) return static_cast<std::uint16_t>(sign | infinity);
    const int whole = static_cast<int>(units);
    const int field =
        whole < (1 << mantissa_bits) ? whole : whole - (1 << mantissa_bits) + ((exponent + bias) << mantissa_bits);
    return static_cast<std::uint16_t>(sign | field);
}

template <class T>
T canonical(T value) {
    return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <class T>
T order(ReduceOp op, T a, T b) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return (op == ReduceOp::min) == std::signbit(a) ? a : b;  // decides between -0 and +0
    return (op == ReduceOp::min) == (a < b) ? a : b;
}

template <class T>
T float_reference(ReduceOp op, T a, T b, std::uint32_t divisor) {
    switch (op) {
    case ReduceOp::sum: return canonical<T>(a + b);
    case ReduceOp::avg: return canonical<T>(divisor != 0 ? (a + b) / static_cast<T>(divisor) : a + b);
    case ReduceOp::prod: return canonical<T>(a * b);
    default: return order(op, a, b);
    }
}

template <class T>
T integer_reference(ReduceOp op, T a, T b, std::uint32_t divisor) {
    const __int128 x = a;
    const __int128 y = b;
    switch (op) {
    case ReduceOp::sum: return static_cast<T>(static_cast<unsigned __int128>(x + y));
    case ReduceOp::prod: return static_cast<T>(static_cast<unsigned __int128>(x) * static_cast<unsigned __int128>(y));
    case ReduceOp::max: return x > y ? a : b;
    case ReduceOp::min: return x < y ? a : b;
    case ReduceOp::avg: break;
    }
    const T wrapped = static_cast<T>(static_cast<unsigned __int128>(x + y));
    return divisor == 0 ? wrapped : static_cast<T>(static_cast<__int128>(wrapped) / static_cast<__int128>(divisor));
}

template <class T, class Function>
void reference_loop(unsigned char* target, const unsigned char* a, const unsigned char* b, std::size_t count,
                    const Function& function) {
    for (std::size_t i = 0; i < count; ++i) {
        T x, y;
        std::memcpy(&x, a + i * sizeof(T), sizeof(T));
        std::memcpy(&y, b + i * sizeof(T), sizeof(T));
        const T result = function(x, y);
        std::memcpy(target + i * sizeof(T), &result, sizeof(T));
    }
}

void reference(DataType type, ReduceOp op, unsigned char* target, const unsigned char* a, const unsigned char* b,
               std::size_t count, std::uint32_t divisor) {
    const auto integers = [&]<class T>(T) {
        reference_loop<T>(target, a, b, count, [&](T x, T y) { return integer_reference<T>(op, x, y, divisor); });
    };
    const auto floats = [&]<class T>(T) {
        reference_loop<T>(target, a, b, count, [&](T x, T y) { return float_reference<T>(op, x, y, divisor); });
    };
    const auto small = [&](int exponent_bits, int mantissa_bits) {
        reference_loop<std::uint16_t>(target, a, b, count, [&](std::uint16_t x, std::uint16_t y) {
            const auto left = static_cast<float>(decode_small(x, exponent_bits, mantissa_bits));
            const auto right = static_cast<float>(decode_small(y, exponent_bits, mantissa_bits));
            return encode_small(float_reference<float>(op, left, right, divisor), exponent_bits, mantissa_bits);
        });
    };
    switch (type) {
    case DataType::u8: return integers(std::uint8_t{});
    case DataType::i8: return integers(std::int8_t{});
    case DataType::i16: return integers(std::int16_t{});
    case DataType::u16: return integers(std::uint16_t{});
    case DataType::u32: return integers(std::uint32_t{});
    case DataType::i32: return integers(std::int32_t{});
    case DataType::u64: return integers(std::uint64_t{});
    case DataType::i64: return integers(std::int64_t{});
    case DataType::f16: return small(5, 10);
    case DataType::bf16: return small(8, 7);
    case DataType::f32: return floats(float{});
    case DataType::f64: return floats(double{});
    }
}

// Bit patterns at the edges of the type, in its bit width: extremes, infinities, NaNs, zeros, denormals.
std::vector<std::uint64_t> special_patterns(DataType type) {
    switch (type) {
    case DataType::f16:
        return {0,      0x8000, 1,      0x8001, 0x3ff,  0x400,  0x3c00, 0xbc00,
                0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xfe55};
    case DataType::bf16:
        return {0,      0x8000, 1,      0x8001, 0x7f,   0x80,   0x3f80, 0xbf80,
                0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffd5};
    case DataType::f32:
        return {0,          0x80000000, 1,          0x80000001, 0x7fffff,   0x800000,   0x3f800000, 0xbf800000,
                0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffc12345};
    case DataType::f64:
        return {0,
                0x8000000000000000,
                1,
                0x8000000000000001,
                0xfffffffffffff,
                0x10000000000000,
                0x3ff0000000000000,
                0xbff0000000000000,
                0x7fefffffffffffff,
                0xffefffffffffffff,
                0x7ff0000000000000,
                0xfff0000000000000,
                0x7ff8000000000000,
                0x7ff0000000000001,
                0xfff8000012345678};
    default: break;
    }
    const unsigned bits = static_cast<unsigned>(element_bytes(type)) * 8;
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - bits);
    const std::uint64_t top = std::uint64_t{1} << (bits - 1);
    return {0, 1, 2, all, all - 1, top, top - 1, top + 1};
}

// Every pair of special patterns, then random bits, then random values of ordinary size.
void fill(DataType type, Bytes& a, Bytes& b, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::size_t size = element_bytes(type);
    const auto special = special_patterns(type);
    const std::size_t count = a.size() / size;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t x = random();
        std::uint64_t y = random();
        if (i < special.size() * special.size()) {
            x = special[i / special.size()];
            y = special[i % special.size()];
        } else if (i % 2 == 0 && type >= DataType::f16) {
            // Same sign and nearby exponents: sums that round, cancel and tie, which random bits seldom do.
            y = x ^ (y & (size == 2 ? 0x3ffu : size == 4 ? 0x1ffffffu : 0x3fffffffffffffu));
        }
        std::memcpy(&a[i * size], &x, size);
        std::memcpy(&b[i * size], &y, size);
    }
}

std::vector<Level> levels() {
    std::vector<Level> all{Level::baseline};
    if (numeric::best_level() >= Level::avx2) all.push_back(Level::avx2);
    return all;
}

constexpr std::uint32_t divisors[] = {0, 1, 2, 3, 7, 255, 4096, 100000};

template <class Function>
void for_each_combination(const Function& function) {
    for (std::uint32_t type = 0; type < data_type_count; ++type) {
        for (std::uint32_t op = 0; op < reduce_op_count; ++op) {
            for (const std::uint32_t divisor : divisors) {
                if (divisor != 0 && static_cast<ReduceOp>(op) != ReduceOp::avg) continue;
                function(static_cast<DataType>(type), static_cast<ReduceOp>(op), divisor);
            }
        }
    }
}

}  // namespace

TEST_CASE("every type and operator matches the reference at every level", "[numeric]") {
    for_each_combination([](DataType type, ReduceOp op, std::uint32_t divisor) {
        const std::size_t count = 20011;  // odd, so that a tail remains at every vector width
        Bytes a(count * element_bytes(type)), b(a.size()), expected(a.size());
        fill(type, a, b, 1000 + static_cast<std::uint64_t>(type));
        reference(type, op, expected.data(), a.data(), b.data(), count, divisor);
        for (const Level level : levels()) {
            Bytes target(a.size(), 0xcd);
            numeric::functions_of(level).reduce(type, op, target.data(), a.data(), b.data(), count, divisor);
            INFO("type " << static_cast<int>(type) << " op " << static_cast<int>(op) << " divisor " << divisor
                         << " level " << static_cast<int>(level));
            std::size_t first = 0;
            while (first < target.size() && target[first] == expected[first]) ++first;
            INFO("first different element " << first / element_bytes(type));
            CHECK(first == target.size());
            // Two members that exchange their arrays take the operands in different orders.
            numeric::functions_of(level).reduce(type, op, target.data(), b.data(), a.data(), count, divisor);
            CHECK(target == expected);
        }
        Bytes target(a.size());
        numeric::reduce(type, op, target.data(), a.data(), b.data(), count, divisor);
        CHECK(target == expected);
    });
}

TEST_CASE("all pairs of a 16-bit float with a few partners", "[numeric]") {
    for (const DataType type : {DataType::f16, DataType::bf16}) {
        for (const unsigned partner : {0x0000u, 0x8000u, 0x0001u, 0x3c00u, 0x3f80u, 0x1400u, 0x7bffu, 0xfc00u}) {
            const std::size_t count = 65536;
            std::vector<std::uint16_t> a(count), b(count, static_cast<std::uint16_t>(partner)), expected(count),
                target(count);
            for (std::size_t i = 0; i < count; ++i) a[i] = static_cast<std::uint16_t>(i);
            const auto bytes = [](auto& values) { return reinterpret_cast<unsigned char*>(values.data()); };
            for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min}) {
                reference(type, op, bytes(expected), bytes(a), bytes(b), count, 0);
                for (const Level level : levels()) {
                    numeric::functions_of(level).reduce(type, op, target.data(), a.data(), b.data(), count, 0);
                    // The left operand of an element is its index, so the count names the first wrong operand.
                    const auto end = std::mismatch(target.begin(), target.end(), expected.begin()).first;
                    CHECK(static_cast<std::size_t>(end - target.begin()) == count);
                }
            }
        }
    }
}

TEST_CASE("unaligned pointers, every small count, and neighbours left alone", "[numeric]") {
    for_each_combination([](DataType type, ReduceOp op, std::uint32_t divisor) {
        if (divisor > 3) return;
        const std::size_t size = element_bytes(type);
        Bytes a(80 * size), b(a.size());
        fill(type, a, b, 77);
        for (std::size_t count = 0; count <= 70; ++count) {
            for (const std::size_t offset : {1u, 3u}) {
                Bytes left(offset + count * size), right(left.size() + 2);
                if (count != 0) {
                    std::memcpy(left.data() + offset, a.data(), count * size);
                    std::memcpy(right.data() + offset + 2, b.data(), count * size);
                }
                Bytes expected(count * size + 1, 0xee);
                reference(type, op, expected.data(), a.data(), b.data(), count, divisor);
                for (const Level level : levels()) {
                    Bytes target(offset + count * size + 1, 0xee);
                    numeric::functions_of(level).reduce(type, op, target.data() + offset, left.data() + offset,
                                                        right.data() + offset + 2, count, divisor);
                    REQUIRE(std::memcmp(target.data() + offset, expected.data(), expected.size()) == 0);
                    REQUIRE(target[0] == 0xee);
                }
            }
        }
    });
}

TEST_CASE("the target may be either operand", "[numeric]") {
    for_each_combination([](DataType type, ReduceOp op, std::uint32_t divisor) {
        const std::size_t count = 1013;
        Bytes a(count * element_bytes(type)), b(a.size()), expected(a.size());
        fill(type, a, b, 5);
        reference(type, op, expected.data(), a.data(), b.data(), count, divisor);
        for (const Level level : levels()) {
            Bytes left = a, right = b;
            numeric::functions_of(level).reduce(type, op, left.data(), left.data(), b.data(), count, divisor);
            numeric::functions_of(level).reduce(type, op, right.data(), a.data(), right.data(), count, divisor);
            CHECK(left == expected);
            CHECK(right == expected);
        }
    });
}

TEST_CASE("values stated in the interface", "[numeric]") {
    const auto reduce_one = []<class T>(DataType type, ReduceOp op, T a, T b, std::uint32_t divisor) {
        T target{};
        numeric::reduce(type, op, &target, &a, &b, 1, divisor);
        return target;
    };
    CHECK(reduce_one(DataType::i32, ReduceOp::avg, std::int32_t{-4}, std::int32_t{-3}, 2) == -3);
    CHECK(reduce_one(DataType::i32, ReduceOp::avg, std::numeric_limits<std::int32_t>::min(), std::int32_t{0}, 1) ==
          std::numeric_limits<std::int32_t>::min());
    CHECK(reduce_one(DataType::i64, ReduceOp::sum, std::numeric_limits<std::int64_t>::max(), std::int64_t{1}, 0) ==
          std::numeric_limits<std::int64_t>::min());
    CHECK(reduce_one(DataType::u8, ReduceOp::avg, std::uint8_t{200}, std::uint8_t{100}, 2) == 22);
    CHECK(reduce_one(DataType::u8, ReduceOp::avg, std::uint8_t{200}, std::uint8_t{1}, 300) == 0);
    CHECK(std::signbit(reduce_one(DataType::f32, ReduceOp::min, 0.0f, -0.0f, 0)));
    CHECK_FALSE(std::signbit(reduce_one(DataType::f64, ReduceOp::max, -0.0, 0.0, 0)));
    // 2049 has no f16; the divisor is applied before the only rounding, so 2049 / 2 = 1024.5 rounds to 1024 (even).
    CHECK(reduce_one(DataType::f16, ReduceOp::avg, std::uint16_t{0x6800}, std::uint16_t{0x3c00}, 2) == 0x6400);
}

TEST_CASE("streaming checksum equals the checksum in one piece", "[numeric]") {
    std::mt19937_64 random(3);
    Bytes data(300000);
    for (auto& byte : data) byte = static_cast<unsigned char>(random());
    for (const std::size_t size :
         {0u, 1u, 16u, 17u, 128u, 129u, 240u, 241u, 255u, 256u, 257u, 1024u, 65537u, 300000u}) {
        numeric::Checksum64 checksum;
        for (std::size_t at = 0; at < size;) {
            const std::size_t piece = std::min<std::size_t>(size - at, random() % 1000);
            checksum.update(data.data() + at, piece);
            at += piece;
            if (at == size / 2) {
                const numeric::Checksum64 copy = checksum;
                CHECK(copy.digest() == numeric::checksum64(data.data(), at));
            }
        }
        CHECK(checksum.digest() == numeric::checksum64(data.data(), size));
        checksum.reset();
        CHECK(checksum.digest() == numeric::checksum64(data.data(), 0));
    }
    numeric::Checksum64 original;
    original.update(data.data(), 100000);
    numeric::Checksum64 copy = original;
    copy.update(data.data() + 100000, 200000);
    CHECK(copy.digest() == numeric::checksum64(data.data(), 300000));
    CHECK(original.digest() == numeric::checksum64(data.data(), 100000));
}

TEST_CASE("hashes are those of XXH3", "[numeric]") {
    std::mt19937_64 random(9);
    Bytes data(100003);
    for (auto& byte : data) byte = static_cast<unsigned char>(random());
    for (const std::size_t size : {0u, 3u, 100u, 240u, 241u, 1024u, 1025u, 100002u}) {
        for (const Level level : levels()) {
            const auto& functions = numeric::functions_of(level);
            CHECK(functions.checksum64(data.data() + 1, size) == numeric::checksum64(data.data() + 1, size));
            CHECK(functions.hash128(data.data() + 1, size) == numeric::hash128(data.data() + 1, size));
        }
    }
    // Test vectors of the published algorithm: the empty input with seed 0.
    CHECK(numeric::checksum64(nullptr, 0) == 0x2d06800538d394c2u);
    CHECK(numeric::hash128(nullptr, 0) == numeric::Hash128{0x6001c324468d497fu, 0x99aa06d3014798d8u});
    const unsigned char one[1] = {0};
    CHECK(numeric::hash128(one, 1) != numeric::hash128(one, 0));
}

TEST_CASE("a copy writes its range and no byte beside it, at every length and alignment") {
    constexpr std::size_t large = numeric::copy_past_caches_bytes;
    constexpr std::size_t room = large + (1 << 16);
    Bytes source(room);
    std::mt19937_64 random(7);
    for (auto& byte : source) byte = static_cast<unsigned char>(random());
    const unsigned char before = 0xa5;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, large - 1, large, large + 1,
                                    large + 63, large + 4096, large + 8191, large + 8192 + 65}) {
        for (const auto& [to, from] : {std::pair<std::size_t, std::size_t>{64, 64}, {65, 64}, {64, 67}, {127, 93}}) {
            const auto copies = [&, to = to, from = from](const auto& copy) {
                Bytes target(room, before);
                copy(target.data() + to, source.data() + from, bytes);
                REQUIRE(std::memcmp(target.data() + to, source.data() + from, bytes) == 0);
                std::memset(target.data() + to, before, bytes);
                REQUIRE(target == Bytes(room, before));
            };
            copies(numeric::copy);
            for (const Level level : levels()) copies(numeric::functions_of(level).copy_past_caches);
        }
    }
}
