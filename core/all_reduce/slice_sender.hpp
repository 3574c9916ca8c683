// The slices that leave for the successors: which one leaves on which stripe, and what the successors say about it.
//
// It takes slices from the operations (reductions.hpp) and gives them to stripes that have nothing to send. It counts
// the credit and the acknowledgements that come back. It sends slices again that were lost with a connection, declined,
// or sent on a stripe that stalls; hedges.hpp decides which of them leave twice because one stripe is late. It does not
// know how slices come in (slice_receiver.hpp), and gives up nothing: progress.hpp judges the clocks that it keeps.
//
// Invariants: a stripe carries one slice at a time. Of a slice that is in flight, `Half::out_link` is the stripe of its
// latest copy. `Flow::eager_used` is the sum of what the operations to that neighbour sent before its `ready`.
#pragma once

#include "core/all_reduce/flow.hpp"
#include "core/all_reduce/hedges.hpp"
#include "core/all_reduce/reductions.hpp"
#include "core/all_reduce/slice_receiver.hpp"
#include "core/events.hpp"
#include "core/links/link_table.hpp"
#include "core/membership/session.hpp"
#include "core/topology/stripes.hpp"
#include "core/turn.hpp"

#include <cstdint>

namespace pccl::core {

class SliceSender {
public:
    // All of them outlive it.
    SliceSender(Turn& turn, LinkTable& links, Session& session, Stripes& stripes, Reductions& reductions,
                SliceReceiver& receiver)
        : turn_(turn), links_(links), session_(session), stripes_(stripes), reductions_(reductions),
          receiver_(receiver), hedges_(turn, links, stripes, reductions, flows_) {}

    const Flows& flows() const { return flows_; }
    // A short path leads to this neighbour.
    bool is_near(const Uuid& target) const {
        const auto flow = flows_.find(target);
        return flow != flows_.end() && flow->second.is_near(turn_.limits);
    }
    std::uint64_t dead_frames() const { return dead_frames_; }  // words about operations that are over
    void check() const;

    // ---- edges
    void edge_opened(const Uuid& target, Duration round_trip);
    void edge_closed(const Uuid& target) { flows_.erase(target); }
    // Gives slices to all stripes of the edge that can send.
    void pump_edge(const Uuid& target);
    // A slice that was not cancelled has left the stripe as a whole.
    void left(const PayloadSent& event, const Link& link, const Transfer& sending);
    void on_flow(const FlowArrived& event);
    // The stripe was lost. Its slices that were not acknowledged are queued for another one.
    void slices_lost(LinkId id, const Uuid& target);
    void forget_run() { flows_.clear(); }

    // ---- operations (the reports of Reductions)
    void begins(Operation& op);
    void start_taken();
    void started(const Operation& op, OpId ahead);
    void prepared(Operation& op);
    void over(Operation& op);  // nothing of it leaves any more

    // ---- time
    void tick();
    Instant next_hedge() const { return hedges_.next(); }
    void hedge();
    void leave_out(Duration time);

private:
    using Stage = Link::Stage;
    using Purpose = Link::Purpose;

    bool send_next(const Uuid& target, Flow& flow, LinkId id, Link& link);
    void answered(LinkId id, Link& link, Operation& op, const wire::FlowWord& word);
    void rest_moves(Link& link, Flow& flow, const wire::FlowWord& word);
    void stripe_moves(LinkId id, Link& link, Flow& flow);
    void requeue_stalled();
    void send_declined();
    bool requeue(const Uuid& target, LinkId id, Link& link);

    Turn& turn_;
    LinkTable& links_;
    Session& session_;
    Stripes& stripes_;
    Reductions& reductions_;
    SliceReceiver& receiver_;  // hears of slots that are free again
    Flows flows_;
    Hedges hedges_;
    std::uint64_t dead_frames_ = 0;
};

}  // namespace pccl::core
