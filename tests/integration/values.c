/* See values.h. */
#include "values.h"

#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t seed, uint64_t index) {
    uint64_t z = seed * 0x9E3779B97F4A7C15u + (index + 1) * 0xD1B54A32D192ED03u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static bool is_unsigned(pcclDataType_t type) {
    return type == pcclUint8 || type == pcclUint16 || type == pcclUint32 || type == pcclUint64;
}

static bool is_float(pcclDataType_t type) {
    return type == pcclFloat16 || type == pcclBFloat16 || type == pcclFloat || type == pcclDouble;
}

/* 0..4 for unsigned types, -2..2 for all others. */
static int64_t element(pcclDataType_t type, uint64_t seed, size_t index) {
    const int64_t small = (int64_t)(mix(seed, index) % 5);
    return is_unsigned(type) ? small : small - 2;
}

size_t value_bytes(pcclDataType_t type) {
    switch (type) {
    case pcclUint8:
    case pcclInt8: return 1;
    case pcclInt16:
    case pcclUint16:
    case pcclFloat16:
    case pcclBFloat16: return 2;
    case pcclUint32:
    case pcclInt32:
    case pcclFloat: return 4;
    case pcclUint64:
    case pcclInt64:
    case pcclDouble: return 8;
    }
    return 0;
}

/* Rounds to `bits` significant bits, ties to even. Enough for the normal range of the 16-bit floats. */
static double round_to_bits(double x, int bits) {
    int exponent = 0;
    if (x == 0) return 0;
    frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(x, bits - exponent)), exponent - bits);
}

static uint16_t half_of_small_integer(int64_t value) {
    int exponent = 0;
    const uint16_t sign = (uint16_t)(value < 0 ? 0x8000 : 0);
    double fraction = frexp(fabs((double)value), &exponent);
    if (value == 0) return 0;
    return (uint16_t)(sign | ((exponent + 14) << 10) | ((uint16_t)(fraction * 2048.0) & 0x3FF));
}

static double half_to_double(uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 0x3FF;
    double value = exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, exponent - 25);
    if (exponent == 31) value = fraction == 0 ? INFINITY : NAN;
    return bits & 0x8000 ? -value : value;
}

static void store(unsigned char* at, pcclDataType_t type, int64_t value) {
    const float f = (float)value;
    const double d = (double)value;
    uint32_t word = 0;
    uint16_t half = 0;
    switch (type) {
    case pcclFloat: memcpy(at, &f, 4); return;
    case pcclDouble: memcpy(at, &d, 8); return;
    case pcclBFloat16:
        memcpy(&word, &f, 4);
        half = (uint16_t)(word >> 16);
        memcpy(at, &half, 2);
        return;
    case pcclFloat16:
        half = half_of_small_integer(value);
        memcpy(at, &half, 2);
        return;
    default: memcpy(at, &value, value_bytes(type)); /* little-endian: the low bytes are the wrapped value */
    }
}

void value_fill(void* data, pcclDataType_t type, size_t count, uint64_t seed) {
    unsigned char* at = data;
    const size_t bytes = value_bytes(type);
    for (size_t i = 0; i < count; ++i) store(at + i * bytes, type, element(type, seed, i));
}

static double load_float(const unsigned char* at, pcclDataType_t type) {
    float f = 0;
    double d = 0;
    uint32_t word = 0;
    uint16_t half = 0;
    switch (type) {
    case pcclFloat: memcpy(&f, at, 4); return f;
    case pcclDouble: memcpy(&d, at, 8); return d;
    case pcclBFloat16:
        memcpy(&half, at, 2);
        word = (uint32_t)half << 16;
        memcpy(&f, &word, 4);
        return f;
    default: memcpy(&half, at, 2); return half_to_double(half);
    }
}

static int64_t fold(pcclDataType_t type, pcclRedOp_t op, size_t index, const uint64_t* seeds, size_t seed_count) {
    int64_t total = element(type, seeds[0], index);
    for (size_t k = 1; k < seed_count; ++k) {
        const int64_t next = element(type, seeds[k], index);
        switch (op) {
        case pcclSum:
        case pcclAvg: total += next; break;
        case pcclProd: total *= next; break;
        case pcclMax: total = next > total ? next : total; break;
        case pcclMin: total = next < total ? next : total; break;
        }
    }
    return total;
}

static double expected_float(pcclDataType_t type, pcclRedOp_t op, int64_t total, size_t members) {
    if (op != pcclAvg) return (double)total;
    if (type == pcclDouble) return (double)total / (double)members;
    const float quotient = (float)total / (float)members;
    if (type == pcclFloat16) return round_to_bits(quotient, 11);
    if (type == pcclBFloat16) return round_to_bits(quotient, 8);
    return quotient;
}

bool value_matches(const void* data, pcclDataType_t type, pcclRedOp_t op, size_t count, const uint64_t* seeds,
                   size_t seed_count) {
    const unsigned char* at = data;
    const size_t bytes = value_bytes(type);
    for (size_t i = 0; i < count; ++i, at += bytes) {
        int64_t total = fold(type, op, i, seeds, seed_count);
        if (is_float(type)) {
            if (load_float(at, type) != expected_float(type, op, total, seed_count)) return false;
            continue;
        }
        if (op == pcclAvg) total /= (int64_t)seed_count; /* small, so the sum has not wrapped */
        if (memcmp(at, &total, bytes) != 0) return false;
    }
    return true;
}

uint64_t value_hash(const void* data, size_t bytes) {
    const unsigned char* at = data;
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001B3u;
    return hash;
}
