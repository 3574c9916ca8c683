// The members whose votes a ballot needs, according to the decisions so far.
#pragma once

#include "core/journal/run_state.hpp"
#include "core/voting/ballot.hpp"

#include <vector>

namespace pccl::core {

// The members of the run or of the group; for the start of a send its two ends, if they are members of the group; or, for
// an end, those of the operation or synchronization that are still members. Empty: there is no such group, operation or synchronization (any more), or none of its members is left.
std::vector<Uuid> electors_of(const RunState& state, const BallotKey& key);

// Adds the voters of a ballot to the seats of a decision.
void add_seats(const Ballot& ballot, google::protobuf::RepeatedPtrField<proto::Seat>& seats);

}  // namespace pccl::core
