// The neighbours that dial this peer: their connections, what they may send before their operation is known here, and when
// something new last came from each.
//
// It admits a connection whose caller proves who it is, tells the master that the edge is there, keeps memory for slices that
// come early, and answers on a connection that lives. Which slice is good for what is the matter of Exchange.
//
// Invariants: what a neighbour sends before the start is known here fits into its reserve. A cell of a reserve is in one place:
// free, or held by one early slice. A reserve is freed when its neighbour has no connection and its last cell is back.
#pragma once

#include "core/all_reduce/operation.hpp"
#include "core/base/link_pass.hpp"
#include "core/base/secret.hpp"
#include "core/links/link_table.hpp"
#include "core/membership/session.hpp"
#include "core/requests.hpp"
#include "core/turn.hpp"

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
        // It has one more connection, or one less: what it was told of operations may have been lost.
        virtual void neighbour_connected(const Uuid& neighbour) = 0;
        virtual void neighbour_lost_a_link(const Uuid& neighbour) = 0;
        // It dialled for a bandwidth test, and has proved who it is.
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
    };
    // What came from a predecessor, of whatever operation; it outlives the connections.
    struct Arrivals {
        Instant at = 0;  // when something new last came
        std::uint64_t slices = 0;
        Duration longest_wait = 0;  // of an operation for which something came after all
        bool starved = false;       // its own word: it waits for its upstream
        Instant starved_at = 0;     // until when it is known to have said so
        Instant filler_at = 0;      // when a part of a frame that nobody wants any more last came from it
    };

    Predecessors(Turn& turn, const Identity& who, LinkTable& links, Memory& memory, Session& session, Owner& owner)
        : turn_(turn), who_(who), links_(links), memory_(memory), session_(session), owner_(owner) {}

    // ---- who may dial
    void welcomed(const Secret& link_key) { link_keys_.renew(link_key); }
    // The callers of a plan. `all`: the master may know none of our connections.
    void named(const google::protobuf::RepeatedPtrField<std::string>& callers, bool all);
    void hello(LinkId id, const proto::LinkHello& hello);
    void lost(LinkId id, const Link& link);
    bool connected(const Uuid& neighbour) const;
    bool any_on_host(const Endpoint& remote) const;
    void forget_run();

    // ---- words to them
    // On `preferred` when it lives, else on the liveliest link that `remote` dialled; if none is open it is told when one comes.
    void send(LinkId preferred, const Uuid& remote, const wire::FlowWord& word);
    // None, where there is no choice of links.
    const std::set<LinkId>* links_to_choose(const Uuid& remote) const;

    // ---- early slices
    // Room for it; null: there is none, or it is here already. Not landed yet.
    const Early* keep(LinkId id, const Link& link, const wire::BulkHeader& header);
    BufferRef place_of(const Uuid& remote, const Early& early) const;
    void landed(const Uuid& remote, std::uint32_t cell);
    void never_landed(const Uuid& remote, std::uint32_t cell);
    // Those of an operation that have landed. Their cells are the caller's, to be given back.
    std::vector<Early> take(const Uuid& remote, OpId op);
    // Frees those that have landed for an operation of which this holds.
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
    // Gives a cell back (none: only looks).
    void free_cell(const Uuid& remote, std::uint32_t cell);
    void memory_came(const ReserveMemory& owner, const BufferAllocated& event);

    // ---- what comes
    Arrivals arrivals(const Uuid& neighbour) const;
    // Something new of an operation for which nothing had come since `before`.
    void came(const Uuid& neighbour, Instant before);
    std::uint64_t slice_came(const Uuid& neighbour) { return ++arrivals_[neighbour].slices; }
    void filler_came(const Uuid& neighbour);
    void says_starved(const Uuid& neighbour, bool starved);
    // Time in which nobody is blamed.
    void leave_out(Duration time);
    // Predecessors come and go. Without a connection and an operation nothing of one is needed.
    template <class Needed>
    void forget(const Needed& needed) {
        std::erase_if(arrivals_,
                      [&](const auto& entry) { return !reserves_.contains(entry.first) && !needed(entry.first); });
    }

    // ---- observation
    void describe(Packed& state) const;
    std::size_t callers() const { return callers_.size(); }
    std::size_t arrivals_kept() const { return arrivals_.size(); }
    std::size_t reserves_kept() const;  // without those whose memory has not come: it is freed when it comes

private:
    struct Reserve {
        BufferId buffer = 0;
        bool usable = false;
        std::vector<std::uint32_t> free_cells;
        std::vector<Early> slices;
        std::set<LinkId> links;  // incoming links of that neighbour
    };

    std::string why_refused(const proto::LinkHello& hello, Uuid& from, std::optional<LinkPass>& pass,
                            LinkId& gives_way) const;
    LinkId quietest_link(const Reserve& reserve) const;
    LinkId liveliest(const Reserve& reserve) const;
    void prepare(const Uuid& remote);
    void report(const Uuid& remote, bool up, bool unwanted);
    std::vector<Early>::iterator find_early(const Uuid& remote, std::uint32_t cell);

    Turn& turn_;
    const Identity& who_;
    LinkTable& links_;
    Memory& memory_;
    Session& session_;
    Owner& owner_;
    LinkKeys link_keys_;  // told with each welcome; who dials this peer proves with it who it is
    std::map<Uuid, Reserve> reserves_;
    std::map<Uuid, Arrivals> arrivals_;
    std::set<Uuid> callers_;  // peers that wait to be admitted and may dial this one, by the plan
};

}  // namespace pccl::core
