// The master's half of a collective. It starts an operation when all members of a group have launched the tag, the
// limits allow it and the ring is up. It decides the outcome from the end votes.
//
// Start ballots of a group, whatever their tags, are started in the order in which they became complete. This cannot
// deadlock: a running operation needs only the data of its members, so its place becomes free, and the next one starts
// at all members or at none. RunState owns the running operations, because they are promised. This part owns only the
// order. It must not know slices or links.
//
// Invariants: an operation has one outcome. It commits only if every living member voted for the same digest; a vote
// against it is never taken back.
#pragma once

#include "core/journal/decision_log.hpp"
#include "core/membership/tallies.hpp"
#include "core/topology/direct_edges.hpp"
#include "core/topology/hosts.hpp"
#include "core/topology/ring_optimizer.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"
#include "core/voting/graph.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pccl::core {

class Operations {
public:
    Operations(const Turn& turn, DecisionLog& decisions, BallotBox& ballots, const EdgeTable& edges,
               RingOptimizer& optimizer, DirectEdges& direct, const Hosts& hosts, Tallies& tallies)
        : turn_(turn), decisions_(decisions), state_(decisions.state()), ballots_(ballots), edges_(edges),
          optimizer_(optimizer), direct_(direct), hosts_(hosts), tallies_(tallies) {}

    // ---- starts
    // All members of the group have voted for this start. It happens when its turn comes.
    void wait_for_start(const BallotKey& key, Ballot& ballot);
    void start_what_waits();
    void refuse(const BallotKey& key, Result result, const Cause& cause);

    // ---- ends
    void examine(OpId id);
    void examine_all();
    // True: a member has voted against the operation that this ballot ends.
    bool refused(const BallotKey& key) const;
    // `result`: success, rank_connection_lost, or invalid_usage if a member can never run the operation.
    void decide(OpId id, Result result, const Cause& cause);

    void forget_run() { waiting_.clear(); }
    bool starts_wait() const { return !waiting_.empty(); }
    // A tag waits once, at a place that was given.
    void check() const;
    std::size_t starts_of_no_group() const;

private:
    void start_waiting(GroupId group);
    // Empty: all members ask for the same reduction and none gives up; else why it is refused to all of them.
    struct Objection {
        Result result = Result::success;
        Cause cause;
    };
    Objection objection_to(const BallotKey& key, const Ballot& ballot) const;
    Objection misfit_of_send(const BallotKey& key, const Ballot& ballot) const;
    Objection misfit_of(const Ballot& ballot) const;
    static Objection misfit_of_pieces(const proto::Shape& shape, const Ballot& ballot, const std::vector<Uuid>& members,
                                      const std::vector<Piece>& pieces);
    bool reduces_in_vote(std::size_t members, const Ballot& ballot) const;
    // For another collective than an all-reduce: what each of these members contributes or gets. `ring`: all that
    // voted, in any order.
    std::vector<Piece> pieces_of(const std::vector<Uuid>& ring, const Ballot& ballot) const;
    // How an all-reduce is cut: in `start` the hosts, if it is hierarchical, and returned the shares by position; empty:
    // equal parts.
    std::vector<std::uint32_t> cut(GroupId group, const std::vector<Uuid>& ring, const Ballot& ballot,
                                   proto::StartDecision& start);
    // Whether the pieces go over direct edges: it costs fewer bytes than the ring, and the edges work. Says which ones.
    bool goes_direct(GroupId group, const std::vector<Uuid>& ring, const proto::Shape& shape,
                     const std::vector<Piece>& pieces, proto::Direct& direct);
    void begin(const BallotKey& key, const std::vector<Uuid>& ring, bool in_vote);
    void begin_send(const BallotKey& key, const std::vector<Uuid>& ring, bool in_vote);
    bool window_full(const GroupState& group, const Ballot& ballot) const;

    const Turn& turn_;
    DecisionLog& decisions_;
    const RunState& state_;
    BallotBox& ballots_;
    const EdgeTable& edges_;
    RingOptimizer& optimizer_;
    DirectEdges& direct_;
    const Hosts& hosts_;
    Tallies& tallies_;
    std::map<GroupId, std::map<std::uint64_t, BallotKey>> waiting_;  // completed order → start
    std::uint64_t completed_order_ = 0;
};

}  // namespace pccl::core
