// What a peer knows of its running shared-state synchronization.
#pragma once

#include "core/events.hpp"
#include "core/state_sync/parts.hpp"
#include "core/state_sync/state_digest.hpp"
#include "core/topology/link_pass.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pccl::core {

// A request that came before the plan it belongs to.
struct EarlyRequest {
    LinkId link = 0;
    SyncPart what;
};

// A member that holds the elected state, as seen by one that lacks a part of it.
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
};

// A bit may flip; a source that sends what is wrong again and again is not asked any more.
inline constexpr std::uint32_t wrongs_max = 3;

// To begin anew is progress up to the old mark this often: a connection may break in a long transfer, and a holder may die.
inline constexpr std::uint32_t beginnings_max = 3;

// A chunk that was asked for and is not verified.
struct SyncRequest {
    enum class Step : std::uint8_t { asked, landing, checking } step = Step::asked;
    std::uint32_t entry = 0;
    std::uint32_t chunk = 0;
    LinkId link = 0;
    Uuid source;
};

struct SyncFetch {
    std::uint32_t entry = 0;
    Hash128 expected;
    bool any_content = false;  // not compared: all such entries whole from one holder, anew from another one
    std::uint64_t offset = 0;  // in the staging buffer
    std::vector<Hash128>
        hashes;  // of the winner's chunks; a single chunk needs no list, its hash gives that of the entry
    std::size_t hashes_most = 0;   // of the list that were ever known at a time
    std::uint32_t list_begun = 0;  // how often the list was begun, with whatever holder
    Uuid hashes_from;              // all pages of a list come from one holder: who sent a wrong one is known
    LinkId hash_link = 0;          // was asked for the (rest of the) list
    std::uint32_t generation = 0;  // any_content: grows with each new beginning
    std::uint32_t checking = 0;
    std::uint32_t next_request = 0;
    std::uint32_t done = 0;
    std::vector<bool> asked;  // per chunk: asked for, or verified
    std::uint64_t copied = 0;
    bool hashes_known() const { return hashes.size() >= asked.size() || (asked.size() == 1 && !any_content); }
};

struct SyncSession {
    // again: the plan was withdrawn, the next vote waits for computes of the old one.
    enum class Stage : std::uint8_t { hashing, again, voting, transfer, applying, draining } stage = Stage::hashing;
    Ticket ticket = 0;
    Serial serial = 0;
    Serial end_serial = 0;
    OpId id = 0;
    std::uint64_t revision = 0;
    SyncStrategy strategy = SyncStrategy::enforce_popular;
    std::vector<StateEntry> entries;  // canonical order
    std::vector<std::vector<Hash128>> chunk_hashes;
    std::vector<Hash128> hashes;  // of the entries, in the same order
    std::uint32_t hash_entry = 0;
    std::uint32_t hash_chunk = 0;
    std::uint32_t computes = 0;  // and allocations

    // The plan: whether this peer lacks something of the elected state. What that is shows the list of the hashes of all
    // its entries, which a holder sends in pages; a peer that holds the content takes its own.
    bool receives = false;
    bool receives_unequal = false;
    Hash128 content;               // of the elected state
    std::vector<Hash128> elected;  // the list, as far as it is here; empty where it is this peer's own
    bool listed = false;           // the list is whole and gives `content`
    LinkId list_link = 0;          // was asked for the next page of it
    Uuid list_from;                // the holder that all its pages come from

    std::vector<SyncFetch> fetches;          // those that are compared first
    std::vector<std::uint32_t> fetch_index;  // per entry
    std::size_t first_open = 0;              // every fetch before it is asked for to the last chunk
    std::size_t open_compared = 0;           // fetches that are not verified whole
    std::size_t open_unequal = 0;
    std::size_t unequal_verified = 0;       // chunks of entries that may differ, since they were begun (anew)
    std::vector<std::uint32_t> hash_lists;  // entries whose fetch has a hash_link
    BufferId staging = 0;                   // where everything that is fetched lands
    std::uint64_t staging_bytes = 0;
    bool staged = false;
    std::vector<SyncSource> sources;  // in the order in which they were learned of
    // Sources that gave up their place in the full table. What was counted for them stays: a source that came back as new
    // would have its failures forgiven each time. At most peers_max.
    std::map<Uuid, SyncSource> forgotten;
    Uuid whole_holder;  // of the entries that may differ; nil: none yet
    std::vector<SyncRequest> requests;
    Instant progress = 0;      // when something of use last came
    Instant next_ask = 0;      // for further sources
    std::size_t apply_at = 0;  // the fetch that is being copied into place

    bool voted_end = false;
    bool holds_all = false;  // the vote was ok: what was fetched can be served
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
    std::optional<Completion> outcome;
    std::vector<EarlyRequest> early_requests;
};

Hash128 hash_of_hashes(const std::vector<Hash128>& hashes);

}  // namespace pccl::core
