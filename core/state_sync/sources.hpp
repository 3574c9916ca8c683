// A receiver's table of the members that hold the elected state: which of them it can ask, and the history of each.
//
// The table sends nothing and opens no connection. The receiver keeps track of the fetches that are open. It passes the
// table one fact about them (`only_whole`): whether only entries that may differ are left, which not every holder has.
//
// Invariants: a peer is in the table at most once. The table holds at most Limits::sources_max. The counters of a
// source outlive its place in the table (`forgotten_`). Otherwise a source that returns would have its failures
// forgiven each time.
#pragma once

#include "core/base/link_pass.hpp"
#include "core/base/way.hpp"
#include "core/turn.hpp"
#include "core/wire/control.pb.h"

#include <cstdint>
#include <map>
#include <vector>

namespace pccl::core {

// A source that has sent wrong data this often is not asked any more. The limit is above 1 because a bit may flip.
inline constexpr std::uint32_t wrongs_max = 3;

struct SyncSource {
    Uuid peer;
    Addresses addresses;
    LinkPass pass;
    bool whole = false;            // also has the entries that may differ
    bool active = false;           // connected for this synchronization, or being dialled
    std::uint32_t given_up = 0;    // how often it was given up
    std::uint32_t wrongs = 0;      // how often it sent data that is not the elected state
    std::uint32_t begun = 0;       // starts of the entries that may differ with it, since they last got further
    std::size_t unequal_most = 0;  // verified chunks of those entries in its longest attempt
    Instant since = 0;             // when it was last idle, or made progress
    Instant verified_at = 0;       // the same, but bytes of an incomplete chunk are no progress
    Duration took = never;         // time that its last chunk took; never: none came, or it was too slow
    bool too_slow = false;         // given up for a faster one since a chunk last came from any source
    // Verified bytes from it, and the highest total so far of verified and arriving bytes. The total falls back to the
    // verified bytes if a loss of chunks is excused: after a few broken links, or if a faster source takes over.
    std::uint64_t verified_bytes = 0;
    std::uint64_t bytes_most = 0;
    std::size_t broken_off = 0;  // chunks that broke off while they arrived, since the last verified one
    // How many requests to it may be in flight. A connection that keeps breaking may carry only a limited number of
    // bytes each time, and requests that are lost with it have used up a part of them. So after such a loss the window
    // is 1, and it grows by 1 with each useful answer.
    std::uint32_t window = 0;
    // How many hashes to request on its next page. The number grows while pages come quickly, and shrinks after a page
    // that took long or broke off. A page is no progress until all of it has arrived.
    std::uint32_t page = 0;
    Instant page_since = 0;        // when the next page was requested, or the one before it arrived
    std::size_t list_most = 0;     // most hashes of the list of all entries that ever came from it
    std::uint32_t list_begun = 0;  // how often that list was begun with it, since it last grew
    Instant named_at = 0;          // when the master named it last
    Instant rests_until = 0;       // after it was given up: not tried again before this time

    // `only_whole`: only entries that may differ are still open.
    bool helps(bool only_whole) const { return !only_whole || whole; }
    // It cannot help at present: it has sent wrong data too often, or lacks the entries that are still open.
    bool useless(bool only_whole) const { return wrongs >= wrongs_max || !helps(only_whole); }
};

class SyncSources {
public:
    explicit SyncSources(Turn& turn) : turn_(turn) {}

    enum class Added : std::uint8_t { no, anew, named_again };
    // Adds a holder that the master has named, or updates it.
    Added add(const proto::SyncHolder& holder, const Uuid& self, bool only_whole);
    SyncSource* find(const Uuid& peer);
    // Returns the source to try next. The most recently named one comes first: the master may have stopped naming the
    // others because they are gone. Among equals, the one that was tried longest ago comes first. Null: all are active,
    // at rest or useless.
    SyncSource* next_to_try(bool only_whole);
    void renew_clocks();
    void slept(Duration time);
    // A chunk arrived from one of the sources. Each source may be given up for a faster one again.
    void chunk_came();
    // Its last page took long, or broke off.
    void shorten_pages(SyncSource& source) const;
    // True if every source that was ever known has sent wrong data too often.
    bool all_refuted() const;
    std::size_t active() const;

    // A holder has one place at most, here or among the forgotten ones.
    void check() const;
    std::size_t size() const { return sources_.size(); }
    SyncSource& operator[](std::size_t index) { return sources_[index]; }
    auto begin() { return sources_.begin(); }
    auto end() { return sources_.end(); }

private:
    bool make_room_for(const SyncSource& candidate, bool only_whole);

    Turn& turn_;
    std::vector<SyncSource> sources_;  // in the order in which they were added
    // Sources that lost their place in the full table. At most peers_max.
    std::map<Uuid, SyncSource> forgotten_;
};

}  // namespace pccl::core
