// The kernels for CPUs with AVX2 and F16C. Called only if best_level() has detected both.
#include "core/numeric/levels.hpp"
#include "core/numeric/quantize.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)

#include <immintrin.h>

#pragma GCC diagnostic ignored "-Wpsabi"

// Headers with code that other files may share must be included above this line. Only the functions below are compiled
// for the wider instruction set, and all of them have internal linkage.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

#define XXH_VECTOR 2  // XXH_AVX2, which the header defines later; clang defines no __AVX2__ for the attribute above
#define XXH_INLINE_ALL
#include <xxhash.h>
static_assert(XXH_VECTOR == XXH_AVX2);

#define PCCL_LEVEL avx2
#define PCCL_VECTOR_BYTES 32
#define PCCL_HAVE_F16C 1
#include "core/numeric/checksum_body.hpp"
#include "core/numeric/copy_body.hpp"
#include "core/numeric/reduce_body.hpp"

#include "core/numeric/quantize_body.hpp"

namespace pccl::core::numeric::avx2 {
constinit const LevelFunctions functions{reduce,          checksum64,      hash128,  checksum_start,
                                         checksum_update, checksum_digest, quantize, dequantize,
                                         copy_past_caches};
}

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
