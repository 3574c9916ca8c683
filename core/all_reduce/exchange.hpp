// The data plane of a peer: its connections with neighbours, and the slices of all-reduces that travel over them.
//
// It dials what the master's plan names and reports what is up, owns the operations from their start to their outcome, and
// gives up what makes no progress. It knows calls only as launches that start and are concluded.
//
// Files: links.cpp (connections to and from neighbours), exchange.cpp (slices), life.cpp (an operation from its start to its
// end), progress.cpp (what gets through).
// Invariants: nothing of an operation is outstanding when its outcome is told. A slice lands at most once per phase. What a
// neighbour sends before the start is known here fits into its reserve. Every wait for a neighbour is ended by a clock that
// only useful bytes renew.
#pragma once

#include "core/all_reduce/operation.hpp"
#include "core/base/link_pass.hpp"
#include "core/links/link_table.hpp"
#include "core/membership/session.hpp"
#include "core/peer_machine.hpp"
#include "core/requests.hpp"
#include "core/state_sync/holder_links.hpp"
#include "core/state_sync/transfer.hpp"
#include "core/topology/bandwidth_probe.hpp"
#include "core/voting/launches.hpp"
#include "core/wire/control.pb.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pccl::core {

class Packed;

class Exchange final : public HolderLinks {
public:
    // What it works with; all of it outlives the exchange.
    struct Parts {
        Turn& turn;
        const PeerConfig& config;
        const Identity& who;
        Computes& computes;
        Memory& memory;
        LinkTable& links;
        Session& session;
        Launches& launches;
        BandwidthProbe& probe;
        SyncTransfer& sync;
    };
    explicit Exchange(const Parts& parts)
        : turn_(parts.turn), config_(parts.config), who_(parts.who), computes_(parts.computes), memory_(parts.memory),
          links_(parts.links), session_(parts.session), launches_(parts.launches), probe_(parts.probe),
          sync_(parts.sync) {}

    // ---- the master
    void welcomed(const Secret& link_key);
    void declare_edges(const std::set<Uuid>& but = {});
    void start_answered(const proto::StartAnswer& answer);
    // Why the outcome cannot be; null: it was taken.
    const char* outcome_answered(const proto::OutcomeAnswer& answer);
    // Links are closed, and what landed in reserves is freed; then every operation fails.
    void membership_over(const LinkTable::Map& closed);
    void fail_all(const std::string& reason);

    // ---- neighbours
    // A connection was lost. What was landing from it never lands; what it was sending has to go another way.
    void link_lost(LinkId id, const Link& link, const std::string& reason);
    bool knows_host(const Endpoint& remote) const;  // a neighbour is on it
    void on_plan(const proto::DialPlan& plan);
    void maintain_edges() override;
    void on_data_link_opened(LinkId id, Link& link);
    void on_link_message(LinkId id, const ControlArrived& event);
    void aim_at_holder(const Uuid& peer, const Endpoint& endpoint, const LinkPass& pass) override;
    void want_holder(const Uuid& peer, const Endpoint& endpoint, const LinkPass& pass, std::uint32_t sharers) override;
    void unwant_holder(const Uuid& peer) override;
    void unwant_all_holders() override;
    std::vector<LinkId> open_links_to(const Uuid& peer) const override;
    std::size_t stripes_to(const Uuid& peer) const override;
    void payload_moved(LinkId id, Link& link, std::uint32_t arrived);
    void leave_out(Duration time);
    void on_flow(const FlowArrived& event);
    void on_bulk(const BulkArrived& event);
    void on_landed(const PayloadLanded& event);
    void on_sent(const PayloadSent& event);

    // ---- computes, memory and time
    void done(const SliceReduction& owner, const ComputeDone& done);
    void done(const InputQuantization& owner, const ComputeDone& done);
    void done(const CommitCopy& owner, const ComputeDone& done);
    void memory_came(const OperationMemory& owner, const BufferAllocated& event);
    void memory_came(const ReserveMemory& owner, const BufferAllocated& event);
    Instant next_dial() const { return next_dial_; }
    void forget_predecessors();
    // What heartbeats to neighbours say.
    proto::LinkMessage heartbeat() const;
    void tick();

    // ---- observation
    bool busy() const { return !ops_.empty(); }
    std::size_t operations() const { return ops_.size(); }
    std::uint64_t dead_frames() const { return dead_frames_; }
    void mix_into(const std::function<void(std::uint64_t)>& mix) const;
    void describe_operations(Packed& state) const;
    void describe_edges(Packed& state) const;
    void count_edges(PeerStatistics& now) const;
    std::string explain_operations() const;
    std::string explain_edges() const;
    std::string leftovers() const;

private:
    using State = MasterLine::State;
    using Purpose = Link::Purpose;
    using Stage = Link::Stage;

    struct Stripe {
        LinkId link = 0;
        Instant next_dial = 0;
        Duration backoff = 0;
    };
    // Our connections to one peer: the successor of a ring, or the holder of a state we fetch.
    struct Edge {
        Endpoint target;
        LinkPass pass;
        bool answered = false;  // the last dial was refused by the peer itself: it is alive
        bool planned = false;   // wanted by the master's dial plan
        bool single = false;    // one of its ends waits to be admitted: one connection is enough to show that it works
        bool wanted_by_sync = false;
        enum class Report : std::uint8_t { none, up, down, answered } report = Report::none;
        std::vector<Stripe> stripes;
        std::size_t next_stripe = 0;
        std::uint32_t eager_used = 0;
        Instant answered_at = 0;    // when something new that was sent to it last got through
        std::uint64_t answers = 0;  // slices of all operations that got through
        Instant opened = 0;         // when it last came up
        Instant opened_before = 0;  // and the time before: later than an instant if it broke since then
        Duration latest_word = 0;   // the longest time that what was sent on one stripe had to wait for a word about it
        OpId last_served = 0;       // round robin between operations
        std::map<OpId, wire::FlowWord> future_ready;  // said by the neighbour before our start came
    };
    struct Early {
        OpId op = 0;
        std::uint32_t slice = 0;
        std::uint32_t cell = 0;
        std::uint32_t length = 0;
        bool landed = false;
        LinkId link = 0;
    };
    // What a neighbour may send before we know of the operation.
    struct Reserve {
        BufferId buffer = 0;
        bool usable = false;
        std::vector<std::uint32_t> free_cells;
        std::vector<Early> slices;
        std::set<LinkId> links;  // incoming links of that neighbour
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

    // connections (links.cpp)
    void dial_stripe(const Uuid& target, Edge& edge, std::size_t index);
    void stripe_lost(LinkId id, const Link& link, const std::string& reason);
    void report_edge(const Uuid& target, Edge& edge, Edge::Report report, const std::string& reason);
    void report_unwanted(const Uuid& target);
    void close_on_purpose(LinkId id, const Link& link);
    void report_incoming(const Uuid& remote, bool up, bool unwanted);
    void on_link_hello(LinkId id, const proto::LinkHello& hello);
    LinkId quietest_link(const Reserve& reserve) const;
    void prepare_reserve(const Uuid& remote);
    void incoming_lost(LinkId id, const Link& link);
    bool edge_used(const Uuid& target, const Edge& edge) const;
    void close_edge(const Uuid& target);
    std::uint32_t stripe_count() const;

    // what gets through (progress.cpp)
    void slice_landed(Operation& op, std::uint32_t bytes);
    void discarded_moved(LinkId id, Link& link, std::uint32_t arrived);
    void reopen_filled_links();
    void tell_moving(LinkId id, Link& link);
    void landing_broke(Operation& op, Half& half, std::uint32_t arrived);
    void requeue_stalled();
    void stripe_moves(LinkId id, Link& link, Edge& edge);
    bool waits_for_input(const Operation& op) const;
    bool successor_stuck(const Operation& op) const;
    std::string starved_reason(const Operation& op) const;
    bool waits_for_turn(const Operation& op, const Arrivals& arrivals) const;
    bool waits_to_leave(const Operation& op) const;
    std::uint64_t rounds(std::size_t operations) const;
    Arrivals arrivals_from(const Uuid& predecessor) const;
    void repeat_ready();
    // What it says in its heartbeats: it was told no operation behind that one yet.
    void neighbour_started(const Uuid& neighbour, OpId last);
    void judge_progress();
    void give_up_edge(Operation& op);

    // slices (exchange.cpp, life.cpp)
    void begin_operation(const proto::StartAnswer& answer, const Launches::Start& launch);
    std::uint64_t memory_left(const Operation& op) const;
    void operation_prepared(Operation& op);
    static wire::FlowWord ready_word(const Operation& op);
    void tell_ready(const Operation& op);
    void pump_edge(const Uuid& target);
    bool send_next(const Uuid& target, Edge& edge, LinkId id, Link& link);
    void on_bulk_slice(LinkId id, Link& link, const wire::BulkHeader& header);
    void receive_early(LinkId id, Link& link, const wire::BulkHeader& header);
    void discard(LinkId id, Link& link, const wire::BulkHeader& header);
    void partial_landed(Operation& op, std::uint32_t slice, const BufferRef& place, std::uint32_t cell,
                        const Uuid& remote);
    void final_there(Operation& op, std::uint32_t slice, std::uint64_t checksum);
    void quantize_inputs(Operation& op);
    void input_quantized(Operation& op, std::uint32_t slice, std::uint64_t checksum);
    void reduced(Operation& op, const SliceReduction& owner, std::uint64_t checksum);
    void absorb_early(Operation& op);
    void forget_dead_early();
    void free_cell(const Uuid& remote, std::uint32_t cell);
    void vote_end_if_complete(Operation& op);
    // `never`: why this peer can never do it; then it is not worth another try.
    void vote_end(Operation& op, bool ok, const std::string& reason, const std::string& never = {});
    proto::Vote end_vote(const Operation& op, bool ok, const std::string& reason) const;
    void decide(Operation& op, bool commit, Completion outcome);
    void copy_next(Operation& op);
    void finish_if_idle(Operation& op);
    LinkId liveliest(const Reserve& reserve) const;
    void send_flow(LinkId preferred, const Uuid& remote, const wire::FlowWord& word);
    void acknowledge(LinkId link, const Operation& op, int phase, std::uint32_t slice);
    void decline(LinkId link, const wire::BulkHeader& header);
    std::uint32_t cells() const { return turn_.limits.eager_bytes / turn_.limits.slice_bytes; }

    Turn& turn_;
    const PeerConfig& config_;
    const Identity& who_;
    Computes& computes_;
    Memory& memory_;
    LinkTable& links_;
    Session& session_;
    Launches& launches_;
    BandwidthProbe& probe_;
    SyncTransfer& sync_;

    LinkKeys link_keys_;  // told with each welcome; who dials this peer proves with it who it is
    std::map<Uuid, Edge> edges_;
    std::map<Uuid, Reserve> reserves_;
    std::map<Uuid, Arrivals> arrivals_;
    bool tell_all_ = true;        // the next plan comes from a master that may know none of our connections
    std::set<Uuid> callers_;      // peers that wait to be admitted and may dial this one, by the plan
    proto::DialPlan plan_pages_;  // of a plan whose last page has not come
    Instant next_dial_ = never;
    std::map<OpId, std::unique_ptr<Operation>> ops_;
    OpId highest_op_ = 0;   // whose start came
    OpId settled_ops_ = 0;  // no start of an operation up to this one is still to come
    std::uint64_t dead_frames_ = 0;
};

}  // namespace pccl::core
