// After each event of a master, compares its status for spectators (core/master_status.hpp) with what it has promised.
#pragma once

#include "core/master_machine.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace pccl::sim {

class StatusWatch {
public:
    // What is wrong with the status; empty if nothing is.
    std::string look(const core::MasterMachine& machine);
    std::uint64_t looks() const { return looks_; }
    // Committed operations, over all groups and all processes of the master.
    std::uint64_t committed() const { return committed_; }

private:
    // Adds what was committed since the last look. Returns what is wrong with the counters; empty: nothing.
    std::string count(const core::MasterStatus& status);

    std::uint64_t looks_ = 0;
    std::uint64_t committed_ = 0;
    std::map<core::GroupId, std::uint64_t> committed_of_;  // at the last look
};

}  // namespace pccl::sim
