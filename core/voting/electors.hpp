// The members whose votes a ballot needs, according to the decisions so far.
#pragma once

#include "core/journal/run_state.hpp"
#include "core/voting/ballot.hpp"

#include <vector>

namespace pccl::core {

// The members of the run or the group; for the start of a send its ends, if they are members of the group; for an end
// the members of the operation or synchronization that are still there. Empty: there is no such thing, or nobody left.
std::vector<Uuid> electors_of(const RunState& state, const BallotKey& key);

// Adds the voters of a ballot to the seats of a decision.
void add_seats(const Ballot& ballot, google::protobuf::RepeatedPtrField<proto::Seat>& seats);

}  // namespace pccl::core
