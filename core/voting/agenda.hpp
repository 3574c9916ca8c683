// Everything that the master must examine before it has finished an event. Parts add to it; MasterCore::settle empties
// it.
#pragma once

#include "core/voting/ballot.hpp"

#include <vector>

namespace pccl::core {

struct Agenda {
    bool topology = true;            // edges, members or newcomers changed
    bool everything = false;         // all ballots, and all operations and synchronizations that run
    std::vector<BallotKey> ballots;  // those that changed
};

}  // namespace pccl::core
