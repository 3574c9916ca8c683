// What votes on the membership decide: an update of the topology lets newcomers in, and members ask whether any are pending.
//
// It owns nothing: who waits is the matter of Joiners, who is a member that of RunState and of the Registry.
//
// Invariants: newcomers come in by an update that all members have voted for, or when the run has no member. A decision that
// admits somebody tells the sizes of the world that it leaves.
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
    // There is a ballot for an update, and it is not complete.
    void answer_early_updates();
    void decide_pending(const Ballot& ballot);
    // The run has no member: whoever waits comes in.
    void admit_orphans();

private:
    void add_admissions(proto::TopologyDecision& topology, bool all);

    Turn& turn_;
    DecisionLog& decisions_;
    const RunState& state_;
    BallotBox& ballots_;
    Registry& registry_;
    Joiners& joiners_;
    Agenda& agenda_;
};

}  // namespace pccl::core
