// The master's half of an all-reduce: it starts an operation when all members of a group have launched the tag, the limits allow
// it and the ring is up, and decides the outcome by the votes for its end.
//
// Ballots for a start are started in the order in which they became complete, the same for all tags of a group: what runs needs
// nothing but its members' data, so a place gets free, and the next one starts at all members or at none. What runs is promised,
// so it is RunState's; this part owns that order alone. It does not know slices or links.
//
// Invariants: an operation has one outcome. It commits only if every living member voted for the same digest; a vote against it
// is never taken back.
#pragma once

#include "core/journal/decision_log.hpp"
#include "core/membership/tallies.hpp"
#include "core/topology/edge_table.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace pccl::core {

class Operations {
public:
    Operations(DecisionLog& decisions, BallotBox& ballots, const EdgeTable& edges, Tallies& tallies)
        : decisions_(decisions), state_(decisions.state()), ballots_(ballots), edges_(edges), tallies_(tallies) {}

    // ---- starts
    // All members of the group have voted for it: it starts when its turn comes.
    void wait_for_start(const BallotKey& key, Ballot& ballot);
    void start_what_waits();
    void refuse(const BallotKey& key, Result result, const std::string& reason);

    // ---- ends
    void examine(OpId id);
    void examine_all();
    // Somebody has voted against the operation that this ballot ends.
    bool refused(const BallotKey& key) const;
    // success, rank_connection_lost, or invalid_usage when a member can never do it.
    void decide(OpId id, Result result, const std::string& reason);

    void forget_run() { waiting_.clear(); }
    bool starts_wait() const { return !waiting_.empty(); }
    std::size_t starts_of_no_group() const;

private:
    void start_waiting(GroupId group);
    bool window_full(const GroupState& group, const Ballot& ballot) const;

    DecisionLog& decisions_;
    const RunState& state_;
    BallotBox& ballots_;
    const EdgeTable& edges_;
    Tallies& tallies_;
    std::map<GroupId, std::map<std::uint64_t, Tag>> waiting_;  // completed order → tag
    std::uint64_t completed_order_ = 0;
};

}  // namespace pccl::core
