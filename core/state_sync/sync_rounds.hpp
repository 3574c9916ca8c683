// The master's half of a synchronization. It compares the votes of the members, elects the state that all of them will
// have, and decides the end. It never gets the content, only digests, revisions and names of keys.
//
// A round begins when all members of a group have voted. If a member has to receive content, the members get a plan
// with the holders, and the round runs until all have voted for its end. If no holder of the missing content is left,
// the living members elect again. RunState owns the round, because the round is promised; this part owns only the
// comparison of keys, and the recall of a round that has lost its holders.
//
// Invariants: a group has at most one round at a time. A round ends by one decision that names all of its votes. The
// members elect again only when each one without a vote has said that it lacks a part of the content.
#pragma once

#include "core/base/sleep.hpp"
#include "core/journal/decision_log.hpp"
#include "core/links/roster.hpp"
#include "core/state_sync/election.hpp"
#include "core/state_sync/key_comparisons.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <map>
#include <string>
#include <vector>

namespace pccl::core {

class SyncRounds {
public:
    SyncRounds(Turn& turn, DecisionLog& decisions, BallotBox& ballots, Roster& roster, Agenda& agenda)
        : turn_(turn), decisions_(decisions), state_(decisions.state()), ballots_(ballots), roster_(roster),
          agenda_(agenda), keys_(turn, decisions.state(), roster, agenda) {}

    // examine(): the ballot for a new round, which must exist. examine_end(): the end of the round that runs; its
    // ballot may be missing.
    void examine(const BallotKey& key);
    void examine_end(GroupId group);
    // Returns the holders that the member was told.
    std::vector<Uuid> asked_for_holders(const Uuid& member, OpId sync);
    // The calls of the members cross. The synchronization fails, and no member's state changes.
    void give_up(const BallotKey& key, const Cause& cause);

    // A member lives and never votes for the end of the round that runs.
    void give_up_waiting(GroupId group, const Uuid& member);

    // A member votes for the end of a round.
    void end_vote_comes(const Uuid& member, const proto::Vote& vote) const;
    // A recalled member lacks a part of the state, and fetches nothing more.
    void lacks(const Uuid& member, OpId sync, std::uint64_t recall);
    void tick() {
        keys_.end_late();
        if (!lost_.empty()) agenda_.everything = true;
    }
    void slept(const Sleep& sleep);
    // The last member of the group is gone.
    void forget(GroupId group);
    void forget_run();
    std::size_t recalls_of_no_group() const;

    KeyComparisons& keys() { return keys_; }
    const KeyComparisons& keys() const { return keys_; }

private:
    std::vector<Candidate> candidates_of(const Ballot& ballot, const std::vector<Uuid>& electors) const;
    void decide(const BallotKey& key, const std::vector<Uuid>& electors);
    void finish(GroupId group, bool commit, const Cause& cause);
    void repeat(GroupId group);
    // A round that has lost its last holder. Its members are told to fetch nothing more.
    struct Recall {
        struct Told {
            LinkId link = 0;  // on which it was told last; 0: not yet
            Instant first = 0;
            bool lacks = false;  // its answer; it keeps to it until holders are named
        };
        std::uint64_t number = 0;
        std::map<Uuid, Told> members;
    };
    bool nobody_completes(GroupId group, const std::vector<Uuid>& without_vote);
    void tell_recall(const Uuid& member, OpId sync, std::uint64_t number);
    std::vector<RunningSync::Holder> living_holders(GroupId group) const;

    Turn& turn_;
    DecisionLog& decisions_;
    const RunState& state_;
    BallotBox& ballots_;
    Roster& roster_;
    Agenda& agenda_;
    KeyComparisons keys_;
    std::map<GroupId, Recall> lost_;
    std::map<GroupId, OpId> withdrawn_;  // the last round whose members elected again
    std::uint64_t recalls_ = 0;
};

}  // namespace pccl::core
