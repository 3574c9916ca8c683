// What the master has to look at before it has handled an event to its end. Parts write it, MasterCore::settle works it off.
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
