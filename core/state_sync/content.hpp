// The entries of a shared state, as one call passed them. This part cuts them into chunks and keeps the hashes of this
// peer's own content.
//
// Entries are compared and transferred in chunks of Limits::chunk_bytes. The hash of an entry is the hash of its chunk
// hashes, so each chunk can be checked when it lands. This part has no information about other peers.
//
// Invariants: entries are sorted by name (the canonical order). No name occurs twice, once impossible() has returned an
// empty text. After all_hashed() nothing changes.
#pragma once

#include "core/base/limits.hpp"
#include "core/events.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pccl::core {

Hash128 hash_of_hashes(const std::vector<Hash128>& hashes);

class SyncContent {
public:
    SyncContent(const Limits& limits, std::vector<StateEntry> entries);

    // Returns why the entries cannot be synchronized. Empty: they can be.
    Cause impossible(std::uint32_t key_bytes_max) const;

    const std::vector<StateEntry>& entries() const { return entries_; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(entries_.size()); }
    std::uint64_t bytes(std::uint32_t entry) const;
    std::uint32_t chunk_count(std::uint32_t entry) const;
    std::uint32_t chunk_length(std::uint32_t entry, std::uint32_t chunk) const;
    BufferRef chunk(std::uint32_t entry, std::uint32_t chunk) const;
    bool has_unequal() const;  // some entry may differ between members

    struct Place {
        std::uint32_t entry = 0;
        std::uint32_t chunk = 0;
    };
    // Returns the next chunk to hash. None: every chunk was returned before.
    std::optional<Place> next_unhashed();
    void hashed(const Place& place, const Hash128& hash) { chunk_hashes_[place.entry][place.chunk] = hash; }
    // Call this when all chunks are hashed. It computes the hashes of the entries.
    void all_hashed();

    const std::vector<Hash128>& hashes() const { return hashes_; }  // one for each entry
    const std::vector<Hash128>& chunk_hashes(std::uint32_t entry) const { return chunk_hashes_[entry]; }
    Hash128 schema() const;
    // The digest of a state that has these entries, with `hashes` as their hashes.
    Hash128 digest(const std::vector<Hash128>& hashes) const;

private:
    const Limits& limits_;
    std::vector<StateEntry> entries_;
    std::vector<std::vector<Hash128>> chunk_hashes_;
    std::vector<Hash128> hashes_;
    Place next_;  // the chunk to hash next
};

}  // namespace pccl::core
