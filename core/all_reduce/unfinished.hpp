// Operations and synchronizations that wait for the end vote of a member that lives and does not cast it.
//
// Each machine casts its end vote by itself, and votes against an operation that gets no input. So a missing vote has a
// cause that ends: a slow path, a slow compute, an absence. A member that lies has none, and nobody else would ever learn
// of it: all of them have their results. The master cannot see what moves between members. Its predecessor in the ring can:
// if the member has acknowledged everything that it needs, the predecessor votes against the operation when it is asked.
//
// Over direct edges a member votes for the end when its neighbours have acknowledged everything. So if one member alone
// owes its vote, it has all that it needs, and the master itself gives the operation up. If several do, nobody else sees
// what they exchange: then it gives up when none of them has reported for long that it computes or that something moves.
//
// Nobody knows that of a synchronization, whose chunks may come from anywhere, on slow paths. A member that receives
// computes a hash for each chunk, and says so. Without a compute for far longer than a path takes, the synchronization
// fails for all, but only if the program has set a limit on votes.
//
// It owns only clocks. An operation that is asked about too early goes on.
//
// Invariant: only members have a clock.
#pragma once

#include "core/journal/run_state.hpp"
#include "core/links/roster.hpp"
#include "core/turn.hpp"
#include "core/voting/ballot.hpp"

#include <map>
#include <utility>
#include <vector>

namespace pccl::core {

class Unfinished {
public:
    Unfinished(const Turn& turn, const RunState& state, const BallotBox& ballots, Roster& roster)
        : turn_(turn), state_(state), ballots_(ballots), roster_(roster) {}

    // The member completed a compute, or a collective over direct edges moved there.
    void works(const Uuid& member) { worked_[member] = turn_.now; }
    void removed(const Uuid& member) { worked_.erase(member); }
    void forget_run() { worked_.clear(); }
    // Asks the neighbours of members that are late, once in a peer time-out. Not in a grace.
    void tick();
    // Operations over direct edges that fail, and a member that each of them waits for.
    std::vector<std::pair<OpId, Uuid>> operations_given_up() const;
    // Synchronizations that fail, and the member that each of them waits for.
    std::vector<std::pair<GroupId, Uuid>> syncs_given_up() const;

    template <class Known>
    std::size_t strange(const Known& known) const {
        return static_cast<std::size_t>(
            std::count_if(worked_.begin(), worked_.end(), [&](const auto& entry) { return !known(entry.first); }));
    }

private:
    static const Uuid* sends_within_host(const RunningOp& op, std::size_t place);
    bool late(const Uuid& member, Instant changed) const;
    Instant worked(const Uuid& member) const;

    const Turn& turn_;
    const RunState& state_;
    const BallotBox& ballots_;
    Roster& roster_;
    std::map<Uuid, Instant> worked_;
    Instant asked_at_ = 0;
};

}  // namespace pccl::core
