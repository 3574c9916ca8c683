// The receiver's part of one plan: what differs from the elected state is fetched, in chunks, from all members that hold it.
//
// What differs is found out first (hash_lists.cpp): one holder is asked for the hashes of all entries, which must give the
// digest of the elected state. What comes lands in a staging buffer beside the application's memory. Each chunk is checked
// against the winner's chunk hashes; one that does not match names its sender. A source that is wrong, dies, stalls or declines
// rests for a while and its chunks are asked for elsewhere; when no known source can be reached, the master is asked for
// others: by then other receivers may hold all of it.
//
// It lives from the plan to the outcome, or to the withdrawal of the plan, and exists as well where this peer lacks nothing. It
// writes nothing into the application's memory and does not know what is decided.
//
// Invariants: a chunk is asked for at most once at a time, and is in `requests_` from then on until it is verified. `open_*`
// count the fetches that are not verified whole. Its clocks are renewed by what is verified, and by bytes only where there were
// never as many.
#pragma once

#include "core/links/holder_links.hpp"
#include "core/links/link_table.hpp"
#include "core/links/master_line.hpp"
#include "core/requests.hpp"
#include "core/state_sync/content.hpp"
#include "core/state_sync/sources.hpp"
#include "core/state_sync/staging.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::core {

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

// An entry that differs.
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

// What a synchronization has under way, and what it moved.
struct SyncCounts {
    std::uint32_t computes = 0;  // and allocations, that were not answered
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
};

class SyncReceiver {
public:
    class Owner {
    public:
        // All is here and verified, or it cannot be had: told once.
        virtual void fetched(bool ok, const std::string& reason) = 0;

    protected:
        ~Owner() = default;
    };
    // What it works with; all of it outlives the receiver.
    struct Parts {
        Turn& turn;
        LinkTable& links;
        Computes& computes;
        HolderLinks& holders;
        MasterLine& master;
        const Identity& who;
        Owner& owner;
        const SyncContent& content;
        Staging& staging;
        SyncCounts& counts;
    };

    using Holders = google::protobuf::RepeatedPtrField<proto::SyncHolder>;

    SyncReceiver(const Parts& parts, const proto::SyncAnswer& plan);
    // From here on it is known what can be served.
    void take_holders(const Holders& holders);
    void begin();
    void holders_named(const Holders& holders);
    // Nothing more is fetched: the outcome is known, or the plan is withdrawn.
    void stop();

    void memory_came(Staging::Came came);
    void connected() { pump(); }
    void link_lost(LinkId id, const Uuid& remote);
    void page_arrived(LinkId id, const proto::HashPage& page);
    void declined(const Uuid& peer, OpId sync);
    // False: nobody waits for this chunk.
    bool chunk_arrives(LinkId id, Link& link, const wire::BulkHeader& header);
    void chunk_moved(Link& link, std::uint32_t arrived);
    void chunk_landed(LinkId id, const Transfer& transfer, bool ok);
    void chunk_checked(const ChunkCheck& check, const Hash128& hash);
    void slept(Duration time);
    void tick();

    OpId id() const { return id_; }
    bool lacks_something() const { return receives_ || receives_unequal_; }
    bool voted() const { return voted_end_; }
    // All that was fetched is verified: it can be served, and applied once the outcome is known.
    bool holds_all() const { return holds_all_; }
    bool listed() const { return listed_; }
    // The hashes of all entries of the elected state; valid once listed.
    const std::vector<Hash128>& elected() const { return elected_.empty() ? content_.hashes() : elected_; }
    std::vector<SyncFetch>& fetches() { return fetches_; }
    // Null: this entry does not differ.
    const SyncFetch* fetch_of(std::uint32_t entry) const;
    BufferRef staged_chunk(const SyncFetch& fetch, std::uint32_t chunk) const;
    std::size_t requests() const { return requests_.size(); }
    bool receives() const { return receives_; }
    bool receives_unequal() const { return receives_unequal_; }
    std::size_t sources_active() const { return sources_.active(); }

private:
    SyncFetch* fetch_of(std::uint32_t entry);
    bool fetching() const { return !stopped_ && !voted_end_ && lacks_something(); }
    bool all_fetched() const { return listed_ && open_compared_ == 0 && open_unequal_ == 0; }
    bool only_whole() const { return listed_ && open_compared_ == 0; }
    void end_if_complete();
    void end(bool ok, const std::string& reason);
    void let_go();

    // sources
    std::size_t add_sources(const Holders& holders);  // so many that were not known
    void activate_sources();
    void give_up_source(const Uuid& peer, const std::string& why, bool refuted);
    void source_moved(const Uuid& peer, std::uint64_t bytes);
    bool unequal_moved(const Uuid& peer);
    bool breaks_off(const SyncSource& source) const;
    // Receivers that know the same holders begin with different ones.
    std::size_t first_source() const { return who_.uuid.bytes[0]; }

    // requests
    void pump();
    void ask_again(std::uint32_t entry, std::uint32_t chunk);
    void begin_anew();
    SyncRequest* request_of(std::uint64_t entry, std::uint32_t chunk, LinkId link, SyncRequest::Step step);

    // lists of hashes (hash_lists.cpp)
    void list_known();
    void ask_for_list();
    void entry_list_arrived(LinkId id, const proto::HashPage& page);
    void hashes_arrived(LinkId id, const proto::HashPage& page);
    void set_hash_link(SyncFetch& fetch, LinkId link);
    void ask_for_page(SyncSource& source, LinkId link, SyncPart page);
    void page_came(SyncSource& source, std::size_t hashes, bool progress);
    void ask_for_shorter_pages(SyncSource& source);

    Turn& turn_;
    LinkTable& links_;
    Computes& computes_;
    HolderLinks& holders_;
    MasterLine& master_;
    const Identity& who_;
    Owner& owner_;
    const SyncContent& content_;
    Staging& staging_;
    SyncCounts& counts_;

    // The plan: whether this peer lacks something of the elected state. What that is shows the list of the hashes of all
    // its entries, which a holder sends in pages; a peer that holds the content takes its own.
    OpId id_ = 0;
    bool receives_ = false;
    bool receives_unequal_ = false;
    Hash128 elected_content_;
    std::vector<Hash128> elected_;  // the list, as far as it is here; empty where it is this peer's own
    bool listed_ = false;           // the list is whole and gives `elected_content_`
    LinkId list_link_ = 0;          // was asked for the next page of it
    Uuid list_from_;                // the holder that all its pages come from

    std::vector<SyncFetch> fetches_;          // those that are compared first
    std::vector<std::uint32_t> fetch_index_;  // per entry
    std::size_t first_open_ = 0;              // every fetch before it is asked for to the last chunk
    std::size_t open_compared_ = 0;           // fetches that are not verified whole
    std::size_t open_unequal_ = 0;
    std::size_t unequal_verified_ = 0;       // chunks of entries that may differ, since they were begun (anew)
    std::vector<std::uint32_t> hash_lists_;  // entries whose fetch has a hash_link
    SyncSources sources_;
    Uuid whole_holder_;  // of the entries that may differ; nil: none yet
    std::vector<SyncRequest> requests_;
    Instant progress_ = 0;  // when something of use last came
    Instant next_ask_ = 0;  // for further sources
    bool voted_end_ = false;
    bool holds_all_ = false;
    bool stopped_ = false;
};

}  // namespace pccl::core
