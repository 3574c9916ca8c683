#include "core/state_sync/fetches.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

namespace {

constexpr std::uint32_t not_fetched = ~0u;
constexpr std::uint64_t staging_alignment = 64;

}  // namespace

SyncFetches::SyncFetches(const SyncContent& content) : content_(content), index_(content.size(), not_fetched) {}

std::uint64_t SyncFetches::find_out(const std::vector<Hash128>& elected, bool compared, bool unequal) {
    std::uint64_t bytes = 0;
    // Entries that may differ come last: they have to wait for one holder, and no other entry depends on them.
    for (const bool any_content : {false, true}) {
        if (any_content ? !unequal : !compared) continue;
        for (std::uint32_t i = 0; i < content_.size(); ++i) {
            if (content_.entries()[i].allow_content_inequality != any_content) continue;
            if (!any_content && content_.hashes()[i] == elected[i]) continue;
            SyncFetch fetch;
            fetch.entry = i;
            if (!any_content) fetch.expected = elected[i];
            fetch.any_content = any_content;
            fetch.asked.assign(content_.chunk_count(i), false);
            fetch.offset = bytes;
            bytes += (content_.bytes(i) + staging_alignment - 1) / staging_alignment * staging_alignment;
            if (!fetch.asked.empty()) ++(any_content ? open_unequal_ : open_compared_);
            index_[i] = static_cast<std::uint32_t>(fetches_.size());
            fetches_.push_back(std::move(fetch));
        }
    }
    return bytes;
}

SyncFetch* SyncFetches::find(std::uint64_t entry) {
    if (entry >= index_.size() || index_[entry] == not_fetched) return nullptr;
    return &fetches_[index_[entry]];
}

const SyncFetch* SyncFetches::find(std::uint64_t entry) const {
    if (entry >= index_.size() || index_[entry] == not_fetched) return nullptr;
    return &fetches_[index_[entry]];
}

void SyncFetches::ask_again(std::uint32_t entry, std::uint32_t chunk) {
    SyncFetch& fetch = *find(entry);
    fetch.asked[chunk] = false;
    fetch.next_request = std::min(fetch.next_request, chunk);
    first_open_ = std::min<std::size_t>(first_open_, index_[entry]);
}

void SyncFetches::verified(SyncFetch& fetch) {
    if (++fetch.done == fetch.asked.size()) --(fetch.any_content ? open_unequal_ : open_compared_);
}

void SyncFetches::begin_unequal_anew() {
    for (std::size_t i = 0; i < fetches_.size(); ++i) {
        SyncFetch& fetch = fetches_[i];
        if (!fetch.any_content) continue;
        if (fetch.done != 0) PROBE(sync_any_content_anew);
        if (!fetch.asked.empty() && fetch.done == fetch.asked.size()) ++open_unequal_;
        ++fetch.generation;
        set_hash_link(fetch, 0);
        fetch.hashes.clear();
        fetch.asked.assign(fetch.asked.size(), false);
        fetch.done = fetch.next_request = 0;
        first_open_ = std::min(first_open_, i);
    }
}

void SyncFetches::set_hash_link(SyncFetch& fetch, LinkId link) {
    if (fetch.hash_link != 0) std::erase(hash_lists_, fetch.entry);
    fetch.hash_link = link;
    if (link != 0) hash_lists_.push_back(fetch.entry);
}

void SyncFetches::check() const {
    ASSERT(index_.size() == content_.size() && first_open_ <= fetches_.size());
    for (std::size_t i = 0; i < fetches_.size(); ++i) ASSERT(index_[fetches_[i].entry] == i);
}

}  // namespace pccl::core
