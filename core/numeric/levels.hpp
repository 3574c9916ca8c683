// The compilations of the kernels, one per instruction set, and the choice between them.
//
// kernels.cpp takes the best level that the CPU offers; tests call each level and compare bytes. The same sources
// (reduce_body.hpp, quantize_body.hpp, checksum_body.hpp, copy_body.hpp) are compiled for every level, so a level changes the speed,
// never the result.
#pragma once

#include "core/numeric/kernels.hpp"
#include "core/numeric/types.hpp"

#include <cstddef>
#include <cstdint>

namespace pccl::core::numeric {

enum class Level : int { baseline = 0, avx2 = 1 };

// The best level that CPU and operating system support. Detected once, then cached.
Level best_level();

// The functions of one level. The checksum state is 576 bytes aligned to 64, with one layout at all levels.
struct LevelFunctions {
    void (*reduce)(DataType type, ReduceOp op, void* target, const void* a, const void* b, std::size_t count,
                   std::uint32_t divisor);
    std::uint64_t (*checksum64)(const void* data, std::size_t bytes);
    Hash128 (*hash128)(const void* data, std::size_t bytes);
    void (*checksum_start)(unsigned char* state);
    void (*checksum_update)(unsigned char* state, const void* data, std::size_t bytes);
    std::uint64_t (*checksum_digest)(const unsigned char* state);
    void (*quantize)(const Quantization& how, DataType type, void* wire, const void* values, std::size_t count);
    void (*dequantize)(const Quantization& how, DataType type, void* values, const void* wire, std::size_t count);
    void (*copy_past_caches)(void* target, const void* source, std::size_t bytes);
};

// `level` must not be above best_level().
const LevelFunctions& functions_of(Level level);

namespace baseline {
extern const LevelFunctions functions;
}
#if defined(__x86_64__)
namespace avx2 {
extern const LevelFunctions functions;
}
#endif

}  // namespace pccl::core::numeric
