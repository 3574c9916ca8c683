// Decides the votes on the membership: an update of the topology admits newcomers, and members ask whether any
// newcomers are pending.
//
// It owns no state. Joiners owns the newcomers that wait; RunState and Registry own the members.
//
// Invariants: newcomers are admitted by an update that all members have voted for, or if the run has no member. A
// decision that admits a newcomer contains the world sizes that result from it, and admits all of its gang.
#pragma once

#include "core/journal/decision_log.hpp"
#include "core/membership/registry.hpp"
#include "core/topology/joiners.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

namespace pccl::core {

class Admissions {
public:
    Admissions(Turn& turn, DecisionLog& decisions, BallotBox& ballots, Registry& registry, Joiners& joiners,
               Agenda& agenda)
        : turn_(turn), decisions_(decisions), state_(decisions.state()), ballots_(ballots), registry_(registry),
          joiners_(joiners), agenda_(agenda) {}

    void decide_update(const Ballot& ballot);
    // Precondition: there is a ballot for an update, and it is not complete.
    void answer_early_updates();
    void decide_pending(const Ballot& ballot);
    // If the run has no member, admits all newcomers that wait.
    void admit_orphans();

private:
    void add_admissions(proto::Decision& decision, bool all);

    Turn& turn_;
    DecisionLog& decisions_;
    const RunState& state_;
    BallotBox& ballots_;
    Registry& registry_;
    Joiners& joiners_;
    Agenda& agenda_;
};

}  // namespace pccl::core
