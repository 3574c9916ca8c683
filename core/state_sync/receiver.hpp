// The receiver's part of one plan. It fetches what differs from the elected state, in chunks, from all members that
// hold it.
//
// First it finds out what differs (hash_lists.cpp): one holder sends the hashes of all entries, which must give the
// digest of the elected state. Chunks land in a staging buffer beside the application's memory. Each chunk is checked
// against the winner's chunk hashes, so the sender of a wrong one is known. A source that sends wrong data, dies,
// stalls or declines rests for a while, and its chunks are requested from others. If no known source can be reached,
// the master is asked for others: by then other receivers may hold all of the state.
//
// The receiver works from the plan to the outcome, or until the plan is withdrawn. It exists even if this peer lacks
// nothing. It never writes into the application's memory, and the outcome is unknown to it.
//
// When no holder is left, the master recalls the receivers. A recalled one checks the chunks that have landed. Then it
// has all of the state, or tells the master that it lacks a part, and fetches nothing until the master names holders.
//
// Invariants: a chunk has at most one request at a time. The request is in `requests_` until the chunk is verified, or
// has to be requested again. Verified data renews the clocks; arriving bytes renew them only if there are more than ever
// before.
#pragma once

#include "core/links/holder_links.hpp"
#include "core/links/link_table.hpp"
#include "core/links/master_line.hpp"
#include "core/requests.hpp"
#include "core/state_sync/content.hpp"
#include "core/state_sync/fetches.hpp"
#include "core/state_sync/sources.hpp"
#include "core/state_sync/staging.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::core {

// A list or transfer that is restarted counts as progress this often, although it repeats earlier data: a connection
// may break in a long transfer, and a holder may die.
inline constexpr std::uint32_t beginnings_max = 3;

// A chunk that was requested and is not verified yet.
struct SyncRequest {
    enum class Step : std::uint8_t { asked, landing, checking } step = Step::asked;
    std::uint32_t entry = 0;
    std::uint32_t chunk = 0;
    LinkId link = 0;
    Uuid source;
};

// The open computes of a synchronization, and the bytes that it moved.
struct SyncCounts {
    std::uint32_t computes = 0;  // computes and allocations that are not answered yet
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
};

class SyncReceiver {
public:
    class Owner {
    public:
        // Called once: everything is here and verified, or it cannot be fetched.
        virtual void fetched(bool ok, const Cause& cause) = 0;

    protected:
        ~Owner() = default;
    };
    // The parts that the receiver uses. All of them outlive it.
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
    // Adds the holders in the plan. If this peer lacks no compared entry, its own list is the elected one, and others
    // can be served from now on.
    void take_holders(const Holders& holders);
    void begin();
    void holders_named(const proto::SyncHolders& message);
    // Ends all fetching: the outcome is known, or the plan is withdrawn.
    void stop();

    void memory_came(Staging::Came came);
    void connected() { pump(); }
    void link_lost(LinkId id, const Uuid& remote);
    void page_arrived(LinkId id, const proto::HashPage& page);
    void declined(const Uuid& peer, OpId sync);
    // False: no request for this chunk is open.
    bool chunk_arrives(LinkId id, Link& link, const wire::BulkHeader& header);
    void chunk_moved(Link& link, std::uint32_t arrived);
    void chunk_landed(LinkId id, const Transfer& transfer, bool ok);
    void chunk_checked(const ChunkCheck& check, const Hash128& hash);
    void slept(Duration time);
    void tick();

    OpId id() const { return id_; }
    bool lacks_something() const { return receives_ || receives_unequal_; }
    bool voted() const { return voted_end_; }
    // Everything that was fetched is verified. It can be served now, and applied once the outcome is known.
    bool holds_all() const { return holds_all_; }
    bool listed() const { return listed_; }
    // The hashes of all entries of the elected state. Valid if listed().
    const std::vector<Hash128>& elected() const { return elected_.empty() ? content_.hashes() : elected_; }
    std::vector<SyncFetch>& fetches() { return fetches_.all(); }
    // Null: this entry is not fetched.
    const SyncFetch* fetch_of(std::uint32_t entry) const { return fetches_.find(entry); }
    BufferRef staged_chunk(const SyncFetch& fetch, std::uint32_t chunk) const;
    std::size_t requests() const { return requests_.size(); }
    bool receives() const { return receives_; }
    bool receives_unequal() const { return receives_unequal_; }
    void check() const;
    std::size_t sources_active() const { return sources_.active(); }

private:
    bool fetching() const { return !stopped_ && !voted_end_ && lacks_something(); }
    bool only_whole() const { return listed_ && fetches_.open_compared() == 0; }
    void end_if_complete();
    void recalled(std::uint64_t number);
    void answer_recall();
    void ask_for_holders(std::uint64_t recalled);
    void end(bool ok, const Cause& cause);
    void discard_arriving();
    void let_go();

    // sources
    std::size_t add_sources(const Holders& holders);  // returns how many of them were new
    void activate_sources();
    void give_up_source(const Uuid& peer, const std::string& why, bool refuted);
    void source_moved(const Uuid& peer, std::uint64_t bytes);
    bool unequal_moved(const Uuid& peer);
    bool breaks_off(const SyncSource& source) const;
    // Receivers with the same list of holders begin with different ones.
    std::size_t first_source() const { return who_.uuid.bytes[0]; }

    // requests
    void pump();
    void begin_anew();
    SyncRequest* request_of(std::uint64_t entry, std::uint32_t chunk, LinkId link, SyncRequest::Step step);

    // lists of hashes (hash_lists.cpp)
    void list_known();
    void ask_for_list();
    void entry_list_arrived(LinkId id, const proto::HashPage& page);
    void hashes_arrived(LinkId id, const proto::HashPage& page);
    void ask_for_page(SyncSource& source, LinkId link, SyncPart page);
    void page_came(SyncSource& source, std::size_t hashes, bool progress);

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

    // The plan gives only whether this peer lacks a part of the elected state. The list of the hashes of all entries
    // shows which part. A holder sends that list in pages; a peer that holds the content uses its own list.
    OpId id_ = 0;
    bool receives_ = false;
    bool receives_unequal_ = false;
    Hash128 elected_content_;
    std::vector<Hash128> elected_;  // the list, as far as it has arrived; empty if this peer uses its own
    bool listed_ = false;           // the list is complete and gives `elected_content_`
    LinkId list_link_ = 0;          // link on which the next page of the list was requested; 0: none
    Uuid list_from_;                // the holder that sends all pages of the list

    SyncFetches fetches_;
    std::size_t unequal_verified_ = 0;  // verified chunks of entries that may differ, since their last start
    SyncSources sources_;
    Uuid whole_holder_;  // holder of the entries that may differ; nil: none yet
    std::vector<SyncRequest> requests_;
    Instant progress_ = 0;      // when useful data last arrived
    Instant next_ask_ = 0;      // earliest time to ask the master for further sources
    std::uint64_t recall_ = 0;  // of the master, since it last named holders; 0: none
    bool voted_end_ = false;
    bool holds_all_ = false;
    bool stopped_ = false;
};

}  // namespace pccl::core
