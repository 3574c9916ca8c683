// The entries of a shared state as one call gave them, cut into chunks, with the hashes of what this peer holds.
//
// Entries are compared and transferred in chunks of Limits::chunk_bytes; the hash of an entry is the hash of its chunk hashes,
// so each chunk is checked when it lands. It knows nothing of other peers.
//
// Invariants: entries are in canonical order (by name), and no name is there twice. Once hashed, nothing of it changes.
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

    // Why the entries cannot be synchronized; empty: they can.
    std::string impossible(std::uint32_t key_bytes_max) const;

    const std::vector<StateEntry>& entries() const { return entries_; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(entries_.size()); }
    std::uint64_t bytes(std::uint32_t entry) const;
    std::uint32_t chunk_count(std::uint32_t entry) const;
    std::uint32_t chunk_length(std::uint32_t entry, std::uint32_t chunk) const;
    BufferRef chunk(std::uint32_t entry, std::uint32_t chunk) const;
    bool has_unequal() const;  // entries that may differ

    struct Place {
        std::uint32_t entry = 0;
        std::uint32_t chunk = 0;
    };
    // The next chunk that is to be hashed; none: all were given out.
    std::optional<Place> next_unhashed();
    void hashed(const Place& place, const Hash128& hash) { chunk_hashes_[place.entry][place.chunk] = hash; }
    // All chunks are hashed: the hashes of the entries follow.
    void all_hashed();

    const std::vector<Hash128>& hashes() const { return hashes_; }  // of the entries
    const std::vector<Hash128>& chunk_hashes(std::uint32_t entry) const { return chunk_hashes_[entry]; }
    Hash128 schema() const;
    // The digest of a state with these entries and such hashes of them.
    Hash128 digest(const std::vector<Hash128>& hashes) const;

private:
    const Limits& limits_;
    std::vector<StateEntry> entries_;
    std::vector<std::vector<Hash128>> chunk_hashes_;
    std::vector<Hash128> hashes_;
    Place next_;  // to be hashed
};

}  // namespace pccl::core
