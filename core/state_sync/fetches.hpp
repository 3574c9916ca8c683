// The entries that a receiver has to fetch: which of their chunks were requested, and which are verified.
//
// It sends nothing and knows no holder. The receiver decides what is requested from whom, and reports what it verified.
//
// Invariants: compared entries come first, then those that may differ. `open_*` count the entries that are not
// completely verified. All chunks of the fetches before `first_open` were requested. `hash_lists` are the entries whose
// fetch has a `hash_link`.
#pragma once

#include "core/base/ids.hpp"
#include "core/state_sync/content.hpp"

#include <cstdint>
#include <vector>

namespace pccl::core {

// An entry that this peer has to fetch.
struct SyncFetch {
    std::uint32_t entry = 0;
    Hash128 expected;
    // Its content may differ between members. All such entries come whole from one holder; another holder restarts
    // them.
    bool any_content = false;
    std::uint64_t offset = 0;  // in the staging buffer
    // Of the winner's chunks (any_content: of the whole holder's). A compared entry of one chunk needs no list: the
    // hash of the chunk gives the hash of the entry.
    std::vector<Hash128> hashes;
    std::size_t hashes_most = 0;   // the most that were ever known at a time
    std::uint32_t list_begun = 0;  // how often the list was begun, with any holder, since it last grew
    Uuid hashes_from;              // sends all pages of the list, so the sender of a wrong list is known
    LinkId hash_link = 0;          // link on which the next page was requested; 0: none
    std::uint32_t generation = 0;  // any_content: number of restarts
    std::uint32_t checking = 0;
    std::uint32_t next_request = 0;
    std::uint32_t done = 0;
    std::vector<bool> asked;  // for each chunk: requested, or verified
    std::uint64_t copied = 0;
    bool hashes_known() const { return hashes.size() >= asked.size() || (asked.size() == 1 && !any_content); }
};

class SyncFetches {
public:
    explicit SyncFetches(const SyncContent& content);

    // Finds the entries to fetch: the compared ones whose hash is not the elected one (only if `compared`), and those
    // that may differ (only if `unequal`). Returns the bytes of staging buffer that they need.
    std::uint64_t find_out(const std::vector<Hash128>& elected, bool compared, bool unequal);

    // Null: this entry is not fetched.
    SyncFetch* find(std::uint64_t entry);
    const SyncFetch* find(std::uint64_t entry) const;
    std::vector<SyncFetch>& all() { return fetches_; }
    std::size_t size() const { return fetches_.size(); }
    SyncFetch& operator[](std::size_t index) { return fetches_[index]; }
    std::size_t open_compared() const { return open_compared_; }
    std::size_t open_unequal() const { return open_unequal_; }

    // ---- chunks
    // The first fetch of which a chunk may be requested. requested() says that all chunks of one were.
    std::size_t first_open() const { return first_open_; }
    void requested(std::size_t index) {
        if (index == first_open_) ++first_open_;
    }
    // The chunk is to be requested again.
    void ask_again(std::uint32_t entry, std::uint32_t chunk);
    void verified(SyncFetch& fetch);  // one more of its chunks
    // Restarts the entries that may differ.
    void begin_unequal_anew();

    // ---- lists of the hashes of an entry's chunks
    const std::vector<std::uint32_t>& hash_lists() const { return hash_lists_; }
    // The next page of the list is requested on this link; 0: on none.
    void set_hash_link(SyncFetch& fetch, LinkId link);
    void await_no_lists() { hash_lists_.clear(); }

    void check() const;

private:
    const SyncContent& content_;
    std::vector<SyncFetch> fetches_;
    std::vector<std::uint32_t> index_;  // for each entry: its index in `fetches_`
    std::size_t first_open_ = 0;
    std::size_t open_compared_ = 0;
    std::size_t open_unequal_ = 0;
    std::vector<std::uint32_t> hash_lists_;
};

}  // namespace pccl::core
