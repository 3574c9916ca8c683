// The kernels for every CPU of the target architecture (x86-64-v1: SSE2; aarch64: NEON).
#include "core/numeric/levels.hpp"
#include "core/numeric/quantize.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>

#pragma GCC diagnostic ignored "-Wpsabi"

#define PCCL_LEVEL baseline
#define PCCL_VECTOR_BYTES 16
#define PCCL_HAVE_F16C 0
#include "core/numeric/checksum_body.hpp"
#include "core/numeric/copy_body.hpp"
#include "core/numeric/reduce_body.hpp"

#include "core/numeric/quantize_body.hpp"

namespace pccl::core::numeric::baseline {
constinit const LevelFunctions functions{reduce,          checksum64,      hash128,  checksum_start,
                                         checksum_update, checksum_digest, quantize, dequantize,
                                         copy_past_caches};
}
