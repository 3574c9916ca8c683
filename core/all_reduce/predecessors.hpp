// The neighbours that dial this peer: their connections, the slices that they send before the operation is known here,
// and when new bytes last came from each.
//
// It accepts a connection if the dialler proves its name, and reports the edge to the master. It keeps memory for early
// slices, and sends flow words on a live connection. SliceReceiver decides how a slice is used.
//
// Invariants: the slices that are kept before the start is known here fit into the neighbour's reserve. A cell of a
// reserve is either free or held by one early slice. When the last connection of its neighbour closes, the slices that
// landed are dropped, and the reserve is freed when its last cell is back. No more than a few reserves have memory at once.
#pragma once

#include "core/all_reduce/operation.hpp"
#include "core/base/link_pass.hpp"
#include "core/base/secret.hpp"
#include "core/links/link_table.hpp"
#include "core/membership/session.hpp"
#include "core/requests.hpp"
#include "core/turn.hpp"

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace pccl::core {

class Packed;

class Predecessors {
public:
    class Owner {
    public:
        // The neighbour has one connection more, or one less. Flow words that were sent to it may be lost.
        virtual void neighbour_connected(const Uuid& neighbour) = 0;
        virtual void neighbour_lost_a_link(const Uuid& neighbour) = 0;
        // The neighbour is connected, and uses so many stripes; 0: it did not say.
        virtual void caller_uses(const Uuid& neighbour, std::uint32_t stripes) = 0;
        // The peer has proved its name, and offers the connection for data that leaves here.
        virtual void offer_came(LinkId id, const Uuid& from, std::uint32_t stripe) = 0;
        // The peer dialled for a bandwidth test, and has proved its name.
        virtual void tester_came(LinkId id, const Uuid& from, const proto::LinkHello& hello, const LinkPass& pass) = 0;

    protected:
        ~Owner() = default;
    };
    // A slice that came before its operation could take it.
    struct Early {
        OpId op = 0;
        std::uint32_t slice = 0;
        std::uint32_t cell = 0;
        std::uint32_t length = 0;
        bool landed = false;
        LinkId link = 0;
        std::uint64_t cut = 0;  // ahead of its start: cut_of() the sender
    };
    // What came from a predecessor, over all operations. It outlives the connections.
    struct Arrivals {
        Instant at = 0;  // when new bytes last came
        std::uint64_t slices = 0;
        Duration longest_wait = 0;  // longest time without new bytes of an operation that got some after all
        bool starved = false;       // reported by it: it waits for its own predecessor
        Instant starved_at = 0;     // when it last reported so, or connected after it had no link
        Instant filler_at = 0;      // when a part of a frame that is discarded last came from it
        std::uint32_t fillers = 0;  // frames that were discarded since new bytes last came
    };

    Predecessors(Turn& turn, const Identity& who, LinkTable& links, Memory& memory, Session& session, Owner& owner)
        : turn_(turn), who_(who), links_(links), memory_(memory), session_(session), owner_(owner) {}

    // ---- who may dial
    void welcomed(const Secret& link_key) { link_keys_.renew(link_key); }
    // The callers of a plan. `all`: reports every connection, because the master may know none of them.
    void named(const google::protobuf::RepeatedPtrField<std::string>& callers, bool all);
    void hello(LinkId id, const proto::LinkHello& hello);
    void lost(LinkId id, const Link& link);
    bool connected(const Uuid& neighbour) const { return connections(neighbour) != 0; }
    std::size_t connections(const Uuid& neighbour) const;
    bool has_stripe(const Uuid& neighbour, std::uint32_t stripe) const;
    bool any_on_host(const Endpoint& remote) const;
    void forget_run();

    // ---- words to them
    // Sends on `preferred` if that link is there, otherwise on the link from `remote` on which bytes arrived last.
    // Without a link the word is dropped: `ready` is sent again when a link opens.
    void send(LinkId preferred, const Uuid& remote, const wire::FlowWord& word);
    // Null if there are fewer than two links.
    const std::set<LinkId>* links_to_choose(const Uuid& remote) const;

    // ---- early slices
    // Takes a cell for the slice, which has not landed yet. Null: there is no room, or the slice is already here.
    const Early* keep(LinkId id, const Link& link, const wire::BulkHeader& header);
    BufferRef place_of(const Uuid& remote, const Early& early) const;
    void landed(const Uuid& remote, std::uint32_t cell);
    void never_landed(const Uuid& remote, std::uint32_t cell);
    // Takes out the landed slices of an operation. The caller has to give their cells back.
    std::vector<Early> take(const Uuid& remote, OpId op);
    // The operation of which the neighbour sent slices ahead of its start.
    void started(const Operation::Identity& operation);
    // How the predecessor cuts its array for the operation.
    static std::uint64_t cut_for(const Operation::Identity& operation);
    // What the neighbour sent ahead of votes with lower serials belongs to no operation any more.
    void forget_ahead(const Uuid& remote, Serial from);
    // Frees the landed slices of each operation for which `dead` is true.
    template <class Dead>
    void forget_early(const Dead& dead) {
        std::vector<std::pair<Uuid, std::uint32_t>> cells_free;
        for (auto& entry : reserves_) {
            std::erase_if(entry.second.slices, [&](const Early& early) {
                if (!early.landed || !dead(early.op)) return false;
                cells_free.emplace_back(entry.first, early.cell);
                return true;
            });
        }
        for (const auto& [neighbour, cell] : cells_free) free_cell(neighbour, cell);
    }
    // Gives a cell back (Operation::none: no cell). Then frees the reserve if nothing needs it any more.
    void free_cell(const Uuid& remote, std::uint32_t cell);
    void memory_came(const ReserveMemory& owner, const BufferAllocated& event);

    // ---- what comes
    Arrivals arrivals(const Uuid& neighbour) const;
    // New bytes of an operation came; the last ones before them came at `before`.
    void came(const Uuid& neighbour, Instant before);
    std::uint64_t slice_came(const Uuid& neighbour) { return ++arrivals_[neighbour].slices; }
    // A part of a frame that is of no use. `begins`: its first part.
    void filler_came(const Uuid& neighbour, bool begins);
    void says_starved(const Uuid& neighbour, bool starved);
    // Leaves `time` out of the clocks, so that nobody is blamed for it.
    void leave_out(Duration time);
    // Predecessors come and go, so entries must not accumulate. Without a reserve and an operation one is not needed.
    template <class Needed>
    void forget(const Needed& needed) {
        std::erase_if(arrivals_,
                      [&](const auto& entry) { return !reserves_.contains(entry.first) && !needed(entry.first); });
    }

    void check() const;
    // ---- observation
    void describe(Packed& state) const;
    std::size_t callers() const { return callers_.size(); }
    std::size_t arrivals_kept() const { return arrivals_.size(); }
    std::size_t reserves_kept() const;  // without those whose memory has not come yet: it is freed when it comes

private:
    // A ring has one predecessor. Others are those of rings before it, whose connections are still open.
    static constexpr std::ptrdiff_t reserves_with_memory_max = 4;

    struct Reserve {
        BufferId buffer = 0;
        bool usable = false;
        std::vector<std::uint32_t> free_cells;
        std::vector<Early> slices;
        std::set<LinkId> links;  // incoming links of that neighbour
    };

    std::string why_refused(const Link& link, const proto::LinkHello& hello, Uuid& from, std::optional<LinkPass>& pass,
                            LinkId& gives_way) const;
    LinkId quietest_link(const Reserve& reserve) const;
    LinkId liveliest(const Reserve& reserve) const;
    void prepare(const Uuid& remote);
    void report(const Uuid& remote, bool up, bool unwanted);
    template <class Vain>
    void forget_landed(const Uuid& remote, const Vain& vain);
    std::vector<Early>::iterator find_early(const Uuid& remote, std::uint32_t cell);

    Turn& turn_;
    const Identity& who_;
    LinkTable& links_;
    Memory& memory_;
    Session& session_;
    Owner& owner_;
    LinkKeys link_keys_;  // from each welcome of the master; they check the passes of diallers
    std::map<Uuid, Reserve> reserves_;
    std::map<Uuid, Arrivals> arrivals_;
    std::set<Uuid> callers_;  // named by the plan: newcomers, and those of direct edges
};

}  // namespace pccl::core
