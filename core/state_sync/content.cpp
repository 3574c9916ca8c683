#include "core/state_sync/content.hpp"

#include "core/numeric/kernels.hpp"
#include "core/state_sync/state_digest.hpp"

#include <algorithm>

namespace pccl::core {

Hash128 hash_of_hashes(const std::vector<Hash128>& hashes) {
    std::vector<std::uint64_t> words;
    words.reserve(hashes.size() * 2);
    for (const Hash128& hash : hashes) {
        words.push_back(hash.low);
        words.push_back(hash.high);
    }
    return numeric::hash128(words.data(), words.size() * sizeof(std::uint64_t));
}

SyncContent::SyncContent(const Limits& limits, std::vector<StateEntry> entries)
    : limits_(limits), entries_(std::move(entries)) {
    // Drivers sort a long list before they pass it on. Sorting can take seconds, and this machine would send nothing in
    // that time.
    const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
    if (!std::is_sorted(entries_.begin(), entries_.end(), by_name))
        std::sort(entries_.begin(), entries_.end(), by_name);
    for (std::uint32_t i = 0; i < size(); ++i) chunk_hashes_.emplace_back(chunk_count(i));
}

Cause SyncContent::impossible(std::uint32_t key_bytes_max) const {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const StateEntry& entry = entries_[i];
        if (entry.name.empty() || entry.name.size() > key_bytes_max)
            return make_cause<CauseKind::key_length>(key_bytes_max);
        if (i > 0 && entries_[i - 1].name == entry.name) return make_cause<CauseKind::key_twice>(entry.name);
    }
    return {};
}

std::uint64_t SyncContent::bytes(std::uint32_t entry) const {
    return entries_[entry].count * element_bytes(entries_[entry].type);
}

std::uint32_t SyncContent::chunk_count(std::uint32_t entry) const {
    const std::uint64_t chunk = limits_.chunk_bytes;
    return static_cast<std::uint32_t>((bytes(entry) + chunk - 1) / chunk);
}

std::uint32_t SyncContent::chunk_length(std::uint32_t entry, std::uint32_t chunk) const {
    const std::uint64_t begin = static_cast<std::uint64_t>(chunk) * limits_.chunk_bytes;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(limits_.chunk_bytes, bytes(entry) - begin));
}

BufferRef SyncContent::chunk(std::uint32_t entry, std::uint32_t chunk) const {
    return BufferRef{entries_[entry].buffer, static_cast<std::uint64_t>(chunk) * limits_.chunk_bytes,
                     chunk_length(entry, chunk)};
}

bool SyncContent::has_unequal() const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [](const auto& entry) { return entry.allow_content_inequality; });
}

std::optional<SyncContent::Place> SyncContent::next_unhashed() {
    for (; next_.entry < size(); next_ = Place{next_.entry + 1, 0}) {
        if (next_.chunk < chunk_hashes_[next_.entry].size()) return Place{next_.entry, next_.chunk++};
    }
    return {};
}

void SyncContent::all_hashed() {
    hashes_.clear();
    for (const auto& chunks : chunk_hashes_) hashes_.push_back(hash_of_hashes(chunks));
}

Hash128 SyncContent::schema() const {
    StateDigest schema(limits_.digest_block_bytes);
    for (const StateEntry& entry : entries_)
        schema.add(entry.name, entry.count, entry.type, entry.allow_content_inequality);
    return schema.value();
}

Hash128 SyncContent::digest(const std::vector<Hash128>& hashes) const {
    StateDigest content(limits_.digest_block_bytes);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const StateEntry& entry = entries_[i];
        content.add(entry.name, entry.count, entry.type, entry.allow_content_inequality);
        if (!entry.allow_content_inequality) content.add_content(hashes[i]);
    }
    return content.value();
}

}  // namespace pccl::core
