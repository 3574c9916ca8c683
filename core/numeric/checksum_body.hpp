// The checksums, compiled once per level: no include guard on purpose.
//
// The includer defines PCCL_LEVEL (a namespace) and has included <xxhash.h> with XXH_INLINE_ALL for its instruction
// set. Nothing of libxxhash is exported or needed at run time.

namespace pccl::core::numeric::PCCL_LEVEL {
namespace {

static_assert(sizeof(XXH3_state_t) <= 576);  // Checksum64::state_bytes
static_assert(alignof(XXH3_state_t) <= 64);

std::uint64_t checksum64(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

Hash128 hash128(const void* data, std::size_t bytes) {
    const XXH128_hash_t hash = XXH3_128bits(data, bytes);
    return {hash.low64, hash.high64};
}

void checksum_start(unsigned char* state) { XXH3_64bits_reset(reinterpret_cast<XXH3_state_t*>(state)); }

void checksum_update(unsigned char* state, const void* data, std::size_t bytes) {
    XXH3_64bits_update(reinterpret_cast<XXH3_state_t*>(state), data, bytes);
}

std::uint64_t checksum_digest(const unsigned char* state) {
    return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state));
}

}  // namespace
}  // namespace pccl::core::numeric::PCCL_LEVEL
