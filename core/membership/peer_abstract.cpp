// The situation of a peer with counts put into a few classes. Observation only.
#include "core/base/packed.hpp"
#include "core/membership/peer_core.hpp"

namespace pccl::core {

std::uint64_t PeerCore::abstract_state() const {
    Packed state;
    // phase
    state.count(static_cast<std::size_t>(session_.state()), 2);
    state.count(sync_.stage_number(), 3);
    state.flags(!ops_.empty(), launches_.unstarted() != 0, run_wide_.size() != 0);
    // session
    state.count(session_.link_stage(), 2);
    state.flags(session_.lost_since() != never);
    state.count(session_.votes().size(), 2);
    state.count(run_wide_.size(), 2);
    // operations
    state.count(ops_.size(), 2);
    bool unprepared = false, unready = false, decided = false, given_up = false, ended = false, lost = false;
    for (const auto& [id, op] : ops_) {
        unprepared |= !op->prepared;
        unready |= !op->neighbour_ready;
        decided |= op->decided;
        given_up |= op->given_up;
        ended |= op->end_serial != 0;
        lost |= !op->lost.empty();
    }
    state.flags(unprepared, unready, decided, given_up, ended, lost);
    state.flags(launches_.many());
    // edges
    state.count(edges_.size(), 2);
    bool closed = false, stalled = false, reported_down = false;
    for (const auto& [target, edge] : edges_) {
        for (const Stripe& stripe : edge.stripes) {
            const auto link = links_.find(stripe.link);
            closed |= stripe.link == 0;
            stalled |= link != links_.end() && link->second.stalled;
        }
        reported_down |= edge.report == Edge::Report::down;
    }
    bool early = false, starved = false;
    for (const auto& [remote, reserve] : reserves_) early |= !reserve.slices.empty();
    for (const auto& [remote, arrivals] : arrivals_) starved |= arrivals.starved;
    state.flags(closed, stalled, reported_down, early, starved);
    // shared state
    sync_.describe(state);
    state.flags(probe_.sends(), probe_.receives(), memory_.waits(), sync_.awaits_abandoned_memory(),
                session_.former_tokens() != 0);
    return state.word();
}

}  // namespace pccl::core
