// The data plane of a peer: it moves the slices of all-reduces between neighbours.
//
// It owns the parts, routes the traffic of data links to them, and gives up operations that make no progress. Its
// parts: the connections that this peer dials (core/topology/stripes.hpp), the neighbours that dial it
// (predecessors.hpp), the operations from start to outcome (reductions.hpp), slices that leave (slice_sender.hpp) and
// slices that come (slice_receiver.hpp), and the checks of the clocks of operations (progress.hpp).
//
// Invariant: each wait for a neighbour is ended by a clock that only useful bytes renew.
#pragma once

#include "core/all_reduce/predecessors.hpp"
#include "core/all_reduce/progress.hpp"
#include "core/all_reduce/reductions.hpp"
#include "core/all_reduce/slice_receiver.hpp"
#include "core/all_reduce/slice_sender.hpp"
#include "core/base/link_pass.hpp"
#include "core/links/link_table.hpp"
#include "core/membership/session.hpp"
#include "core/peer_machine.hpp"
#include "core/requests.hpp"
#include "core/state_sync/transfer.hpp"
#include "core/topology/bandwidth_probe.hpp"
#include "core/topology/offers.hpp"
#include "core/topology/stripes.hpp"
#include "core/voting/launches.hpp"
#include "core/wire/control.pb.h"

#include <functional>
#include <string>

namespace pccl::core {

class Packed;

class Exchange final : private Stripes::Owner,
                       private Predecessors::Owner,
                       private Reductions::Owner,
                       private Offers::Owner {
public:
    // The parts that it uses. All of them outlive the exchange.
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
        : turn_(parts.turn), links_(parts.links), session_(parts.session), probe_(parts.probe), sync_(parts.sync),
          stripes_(parts.turn, parts.config, parts.who, parts.links, parts.session, *this),
          predecessors_(parts.turn, parts.who, parts.links, parts.memory, parts.session, *this),
          offers_(parts.turn, parts.config, parts.links, parts.session, *this),
          reductions_(parts.turn, parts.who, parts.computes, parts.memory, parts.session, parts.launches, *this),
          receiver_(parts.turn, parts.links, parts.session, predecessors_, reductions_),
          sender_(parts.turn, parts.links, parts.session, stripes_, reductions_, receiver_),
          progress_(parts.turn, parts.links, stripes_, predecessors_, reductions_, sender_.flows()) {}

    // ---- parts that others use
    Stripes& stripes() { return stripes_; }
    const Stripes& stripes() const { return stripes_; }
    void check() const;
    Reductions& reductions() { return reductions_; }
    const Reductions& reductions() const { return reductions_; }

    // ---- connections
    Instant next_dial() const { return std::min(stripes_.next_dial(), offers_.next_dial()); }
    void dial();
    void opened(LinkId id, const Link& link);

    // ---- the master
    void welcomed(const Secret& link_key);
    void on_plan(const proto::DialPlan& page);
    Cause start_answered(const proto::Answer& answer);  // as for Reductions
    // A short path leads to the successor of the last start.
    bool successor_is_near() const { return sender_.is_near(reductions_.successor()); }
    void launched(const Launches::Start& launch) { reductions_.launched(launch, successor_is_near()); }
    // The master waits for the end vote of the successor.
    void successor_unfinished(OpId id);
    // The links are closed. Frees the slices that landed in reserves.
    void membership_over(const LinkTable::Map& closed);

    // ---- neighbours
    // A connection was lost. A slice that was landing from it never lands; slices that were sent on it are queued for
    // another stripe.
    void link_lost(LinkId id, const Link& link, const std::string& reason);
    bool knows_host(const Endpoint& remote) const;  // a neighbour is on this host
    void on_link_message(LinkId id, const ControlArrived& event);
    void payload_moved(LinkId id, Link& link, std::uint32_t arrived);
    void on_flow(const FlowArrived& event) { sender_.on_flow(event); }
    void on_bulk(const BulkArrived& event);
    void on_landed(const PayloadLanded& event);
    void on_sent(const PayloadSent& event);
    void memory_came(const ReserveMemory& owner, const BufferAllocated& event) {
        predecessors_.memory_came(owner, event);
    }
    void memory_came(const OperationMemory& owner, const BufferAllocated& event) {
        reductions_.memory_came(owner, event);
    }

    // ---- time
    // For `time` this peer did not run, or had no link to the master. Clocks leave it out, so that nobody is blamed.
    void leave_out(Duration time);
    void forget_predecessors();
    // The heartbeat for neighbours: whether this peer is starved, and the last start that it has received.
    proto::LinkMessage heartbeat() const;
    void tick();
    Instant next_hedge() const { return sender_.next_hedge(); }
    void hedge() { sender_.hedge(); }

    // ---- observation
    std::uint64_t dead_frames() const { return sender_.dead_frames() + receiver_.dead_frames(); }
    void mix_into(const std::function<void(std::uint64_t)>& mix) const;
    void describe_operations(Packed& state) const;
    void describe_edges(Packed& state) const;
    std::string explain_operations() const;
    std::string leftovers() const;

private:
    using State = MasterLine::State;
    using Purpose = Link::Purpose;
    using Stage = Link::Stage;

    void neighbour_started(const Uuid& neighbour, OpId last);
    void reopen_filled_links();
    void judge_progress();

    // callbacks of parts
    bool edge_needed(const Uuid& target) const override;
    void edge_opened(const Uuid& target, Duration round_trip) override;
    void edge_closed(const Uuid& target) override { sender_.edge_closed(target); }
    void neighbour_connected(const Uuid& neighbour) override { receiver_.neighbour_connected(neighbour); }
    void neighbour_lost_a_link(const Uuid& neighbour) override { receiver_.neighbour_lost_a_link(neighbour); }
    void caller_uses(const Uuid& neighbour, std::uint32_t stripes) override;
    void offer_came(LinkId id, const Uuid& from, std::uint32_t stripe) override;
    bool caller_has(const Uuid& caller, std::uint32_t stripe) const override {
        return predecessors_.has_stripe(caller, stripe);
    }
    void tester_came(LinkId id, const Uuid& from, const proto::LinkHello& hello, const LinkPass& pass) override {
        probe_.accept(id, from, hello, pass);
    }
    void operation_begins(Operation& op) override;
    void start_taken() override { sender_.start_taken(); }
    void operation_prepared(Operation& op) override;
    void operation_may_send(const Operation& op) override { sender_.pump_edge(op.id.successor); }
    void operation_grants(const Operation& op) override { receiver_.tell_ready(op); }
    void operation_decided(Operation& op) override;
    void operation_started(const Operation& op, OpId ahead) override { sender_.started(op, ahead); }
    void operation_dropped(Operation& op) override;
    void early_cell_free(const Uuid& neighbour, std::uint32_t cell) override {
        predecessors_.free_cell(neighbour, cell);
    }

    Turn& turn_;
    LinkTable& links_;
    Session& session_;
    BandwidthProbe& probe_;
    SyncTransfer& sync_;
    Stripes stripes_;
    Predecessors predecessors_;
    Offers offers_;
    Reductions reductions_;
    SliceReceiver receiver_;
    SliceSender sender_;
    Progress progress_;

    bool tell_all_ = true;        // the next plan is the first after a welcome: the master may know none of our links
    proto::DialPlan plan_pages_;  // pages of a plan whose last page has not arrived
};

}  // namespace pccl::core
