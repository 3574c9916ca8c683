// Checks each vote and casts it. A vote that no correct member can send removes its sender. A vote that is late is
// dropped.
//
// It owns no state. Invariant: each ballot in the box has only votes of members, of known kind, type and size.
#pragma once

#include "core/journal/run_state.hpp"
#include "core/links/roster.hpp"
#include "core/topology/rings.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

namespace pccl::core {

class VoteCheck {
public:
    VoteCheck(Turn& turn, const RunState& state, BallotBox& ballots, Roster& roster, Rings& rings, Agenda& agenda)
        : turn_(turn), state_(state), ballots_(ballots), roster_(roster), rings_(rings), agenda_(agenda) {}

    void cast(const Uuid& member, const proto::Vote& vote);

private:
    bool keeps_inputs(const Ballot& ballot, const Uuid& voter) const;

    Turn& turn_;
    const RunState& state_;
    BallotBox& ballots_;
    Roster& roster_;
    Rings& rings_;
    Agenda& agenda_;
};

}  // namespace pccl::core
