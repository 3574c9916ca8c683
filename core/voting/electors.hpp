// Whose votes a ballot needs, as the log of decisions says it now.
#pragma once

#include "core/journal/run_state.hpp"
#include "core/voting/ballot.hpp"

#include <vector>

namespace pccl::core {

// Members of the run, of the group, or of the operation or synchronization that it ends. Empty: there is no such thing any more.
std::vector<Uuid> electors_of(const RunState& state, const BallotKey& key);

// The voters of a ballot, as a decision names them.
void add_seats(const Ballot& ballot, google::protobuf::RepeatedPtrField<proto::Seat>& seats);

}  // namespace pccl::core
