// Entry points of the kernels: dispatch by CPU.
//
// The level is detected once and cached in an atomic; threads that race for it detect the same value.
#include "core/numeric/kernels.hpp"

#include "core/numeric/copy.hpp"
#include "core/numeric/levels.hpp"

#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pccl::core::numeric {

namespace {

#if defined(__x86_64__)
// True if the operating system saves the upper halves of the vector registers (bits 1 and 2 of XCR0).
bool system_saves_avx_state() {
    unsigned low = 0;
    unsigned high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 6u) == 6u;
}
#endif

Level detect_level() {
#if defined(__x86_64__)
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return Level::baseline;
    const bool f16c = (ecx & bit_F16C) != 0;
    if ((ecx & bit_OSXSAVE) == 0 || (ecx & bit_AVX) == 0 || !system_saves_avx_state()) return Level::baseline;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return Level::baseline;
    return f16c && (ebx & bit_AVX2) != 0 ? Level::avx2 : Level::baseline;
#else
    return Level::baseline;
#endif
}

const LevelFunctions& best() { return functions_of(best_level()); }

}  // namespace

Level best_level() {
    static constinit std::atomic<int> known{-1};
    int level = known.load(std::memory_order_relaxed);
    if (level < 0) {
        level = static_cast<int>(detect_level());
        known.store(level, std::memory_order_relaxed);
    }
    return static_cast<Level>(level);
}

const LevelFunctions& functions_of(Level level) {
#if defined(__x86_64__)
    if (level == Level::avx2) return avx2::functions;
#endif
    (void)level;
    return baseline::functions;
}

void reduce(DataType type, ReduceOp op, void* target, const void* a, const void* b, std::size_t count,
            std::uint32_t divisor) {
    best().reduce(type, op, target, a, b, count, divisor);
}

std::uint64_t checksum64(const void* data, std::size_t bytes) { return best().checksum64(data, bytes); }

Hash128 hash128(const void* data, std::size_t bytes) { return best().hash128(data, bytes); }

void copy_past_caches(void* target, const void* source, std::size_t bytes) {
    best().copy_past_caches(target, source, bytes);
}

void copy(void* target, const void* source, std::size_t bytes) {
    if (bytes >= copy_past_caches_bytes)
        copy_past_caches(target, source, bytes);
    else if (bytes != 0)
        std::memmove(target, source, bytes);
}

Checksum64::Checksum64() {
    // A copy of the object also reads the unused part of the state, so all of it must be initialised.
    std::memset(state_, 0, sizeof state_);
    reset();
}

void Checksum64::reset() { best().checksum_start(state_); }

void Checksum64::update(const void* data, std::size_t bytes) { best().checksum_update(state_, data, bytes); }

std::uint64_t Checksum64::digest() const { return best().checksum_digest(state_); }

}  // namespace pccl::core::numeric
