// The slices that come from the predecessors: where each one lands, and the flow words that are sent about it.
//
// A slice lands in a slot of its operation. If the operation cannot take it yet, it lands in the neighbour's reserve
// (predecessors.hpp), or is declined and discarded: it is never left unread, because everything behind it on the
// connection would wait. Reductions computes with what has landed. It does not know how slices leave (slice_sender.hpp).
//
// Invariants: a slice lands at most once per phase, and has one landing at a time. Each slice that arrives is
// acknowledged, declined, or of an operation that is over. Bytes count as progress of an operation once, also if they
// come again.
#pragma once

#include "core/all_reduce/predecessors.hpp"
#include "core/all_reduce/reductions.hpp"
#include "core/events.hpp"
#include "core/links/link_table.hpp"
#include "core/membership/session.hpp"
#include "core/turn.hpp"

#include <cstdint>

namespace pccl::core {

class SliceReceiver {
public:
    // All of them outlive it.
    SliceReceiver(Turn& turn, LinkTable& links, Session& session, Predecessors& predecessors, Reductions& reductions)
        : turn_(turn), links_(links), session_(session), predecessors_(predecessors), reductions_(reductions) {}

    // ---- words to the predecessor
    void tell_ready(const Operation& op);
    // The neighbour has one connection more, or one less.
    void neighbour_connected(const Uuid& neighbour);
    void neighbour_lost_a_link(const Uuid& neighbour);
    void repeat_ready();

    // ---- frames
    void on_bulk(LinkId id, Link& link, wire::BulkHeader header);
    // Of no use to anybody; it is counted.
    void discard_dead(LinkId id, Link& link, const wire::BulkHeader& header);
    void payload_moved(LinkId id, Link& link, std::uint32_t arrived);
    // `receiving` is what arrived on the link, which is free again. `landed`: with success.
    void landed(const PayloadLanded& event, Link& link, const Transfer& receiving, bool landed);
    std::uint64_t dead_frames() const { return dead_frames_; }

    // ---- operations
    void prepared(Operation& op);    // its slots are there
    void over(const Operation& op);  // nothing of it lands any more
    // Frees slices that neighbours sent early for operations that are over, or will never start here.
    void forget_dead_early();

private:
    using Purpose = Link::Purpose;

    static wire::FlowWord ready_word(const Operation& op);
    void acknowledge(LinkId link, const Operation& op, int phase, std::uint32_t slice);
    void decline(LinkId link, const wire::BulkHeader& header);
    void tell_moving(LinkId id, Link& link, const Transfer& receiving);
    void arrives(LinkId id, Link& link, const wire::BulkHeader& header);
    void receive_early(LinkId id, Link& link, const wire::BulkHeader& header);
    void discard(LinkId id, Link& link, const wire::BulkHeader& header);
    void early_landed(const Link& link, const Transfer& receiving, bool landed);
    void absorb_early(Operation& op);
    void slice_landed(Operation& op, std::uint32_t bytes);
    void landing_broke(Operation& op, Half& half, std::uint32_t arrived);
    void discarded_moved(LinkId id, Link& link, std::uint32_t arrived);

    Turn& turn_;
    LinkTable& links_;
    Session& session_;
    Predecessors& predecessors_;
    Reductions& reductions_;
    std::uint64_t dead_frames_ = 0;
};

}  // namespace pccl::core
