// The members that hold the elected state, as a receiver that lacks a part of it knows them: who can be asked, and what came of
// it so far.
//
// It sends nothing and opens no connection. Which parts are still open is the receiver's knowledge; the table is only told
// whether it comes down to the entries that may differ, which not every holder has.
//
// Invariants: no peer is in the table twice; the table holds at most Limits::sources_max. What was counted for a source outlives
// its place in the table: one that came back as new would have its failures forgiven each time.
#pragma once

#include "core/base/link_pass.hpp"
#include "core/turn.hpp"
#include "core/wire/control.pb.h"

#include <cstdint>
#include <map>
#include <vector>

namespace pccl::core {

// A bit may flip; a source that sends what is wrong again and again is not asked any more.
inline constexpr std::uint32_t wrongs_max = 3;

struct SyncSource {
    Uuid peer;
    Endpoint endpoint;
    LinkPass pass;
    bool whole = false;            // has the entries that may differ too
    bool active = false;           // connected for this synchronization, or being dialled
    std::uint32_t given_up = 0;    // how often
    std::uint32_t wrongs = 0;      // how often it sent what is not the elected state
    std::uint32_t begun = 0;       // how often the entries that may differ were begun with it
    std::size_t unequal_most = 0;  // chunks of them that were verified in its longest attempt
    Instant since = 0;             // when it last had nothing to do, or moved this peer further
    Instant verified_at = 0;       // the same, but bytes of a chunk that is not whole do not count
    Duration took = never;  // for the last chunk from it, since the one before; never: none came, or it was too slow
    bool too_slow = false;  // another one was asked in its place since the last chunk came from anybody
    // Bytes that it sent and that were verified, and the most there ever were together with those that were arriving.
    std::uint64_t verified_bytes = 0;
    std::uint64_t bytes_most = 0;
    std::size_t broken_off = 0;  // chunks that began to come and did not, since the last one that was verified
    // What may be asked of it at a time. A connection that breaks may do so after so many bytes, and questions that are lost
    // with it have used them up: from then on one at first, then one more for each answer that is of use.
    std::uint32_t window = 0;
    // Hashes on the next page from it: more while pages come quickly, fewer for one that took long or broke off. What has come
    // of a page is no progress before all of it is there.
    std::uint32_t page = 0;
    Instant page_since = 0;        // when it was asked for the page that comes next, or sent the one before
    std::size_t list_most = 0;     // of the list of all entries that ever came from it
    std::uint32_t list_begun = 0;  // how often that list was begun with it
    Instant named_at = 0;          // when the master named it last
    Instant rests_until = 0;       // given up; not tried again before

    // `only_whole`: what is still open are entries that may differ.
    bool helps(bool only_whole) const { return !only_whole || whole; }
    // Nothing can be asked of it at present: it sent what is not the elected state, or lacks what is still open.
    bool useless(bool only_whole) const { return wrongs >= wrongs_max || !helps(only_whole); }
};

class SyncSources {
public:
    explicit SyncSources(Turn& turn) : turn_(turn) {}

    enum class Added : std::uint8_t { no, anew, named_again };
    // A holder that the master names.
    Added add(const proto::SyncHolder& holder, const Uuid& self, bool only_whole);
    SyncSource* find(const Uuid& peer);
    // The one that is tried next: one that was named last comes before one that the master does not know any more; of those,
    // the one that was not tried for the longest time. Null: all are used, rest or are useless.
    SyncSource* next_to_try(bool only_whole);
    void renew_clocks();
    void slept(Duration time);
    // A chunk came from one of them: each may be left for another one again.
    void chunk_came();
    // Each one that was ever known sent what is wrong too often.
    bool all_refuted() const;
    std::size_t active() const;

    std::size_t size() const { return sources_.size(); }
    SyncSource& operator[](std::size_t index) { return sources_[index]; }
    auto begin() { return sources_.begin(); }
    auto end() { return sources_.end(); }

private:
    bool make_room_for(const SyncSource& candidate, bool only_whole);

    Turn& turn_;
    std::vector<SyncSource> sources_;  // in the order in which they were learned of
    // Those that gave up their place in the full table. At most peers_max.
    std::map<Uuid, SyncSource> forgotten_;
};

}  // namespace pccl::core
