// The master's half of a synchronization: it compares what members have voted for, elects what all shall have, and decides the
// end. Content never comes here, only digests, revisions and names of keys.
//
// A round begins when all members of a group have voted. If somebody has to receive the content, it is announced with its
// holders and runs until all have voted for its end. If no holder of what somebody lacks is left, the round is repeated among
// the living. The round itself is promised, so it is RunState's; this part owns the comparison of keys alone.
//
// Invariants: a group has at most one round at a time. A round ends by one decision that names all of its votes.
#pragma once

#include "core/journal/decision_log.hpp"
#include "core/links/roster.hpp"
#include "core/state_sync/election.hpp"
#include "core/state_sync/key_comparisons.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <string>
#include <vector>

namespace pccl::core {

class SyncRounds {
public:
    SyncRounds(Turn& turn, DecisionLog& decisions, BallotBox& ballots, Roster& roster, Agenda& agenda)
        : turn_(turn), decisions_(decisions), state_(decisions.state()), ballots_(ballots), roster_(roster),
          agenda_(agenda), keys_(turn, decisions.state(), roster, agenda) {}

    // The ballot for a new round, and for the end of the one that runs. There is such a ballot; the second may be missing.
    void examine(const BallotKey& key);
    void examine_end(GroupId group);
    void asked_for_holders(const Uuid& member, OpId sync);
    // The members' calls cross: nobody's state is touched.
    void give_up(const BallotKey& key, const std::string& reason);

    KeyComparisons& keys() { return keys_; }
    const KeyComparisons& keys() const { return keys_; }

private:
    std::vector<Candidate> candidates_of(const Ballot& ballot, const std::vector<Uuid>& electors) const;
    void decide(const BallotKey& key, const std::vector<Uuid>& electors);
    void finish(GroupId group, bool commit, const std::string& reason);
    void repeat(GroupId group);
    std::vector<RunningSync::Holder> living_holders(GroupId group) const;

    Turn& turn_;
    DecisionLog& decisions_;
    const RunState& state_;
    BallotBox& ballots_;
    Roster& roster_;
    Agenda& agenda_;
    KeyComparisons keys_;
};

}  // namespace pccl::core
