// Holds what a master tells spectators (core/master_status.hpp) against what it promised, after each of its events.
#pragma once

#include "core/master_machine.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace pccl::sim {

class StatusWatch {
public:
    // What is wrong with its status; empty: nothing.
    std::string look(const core::MasterMachine& machine);
    std::uint64_t looks() const { return looks_; }
    // Over all groups and all processes of the master.
    std::uint64_t committed() const { return committed_; }

private:
    std::string count(const core::MasterStatus& status);

    std::uint64_t looks_ = 0;
    std::uint64_t committed_ = 0;
    std::map<core::GroupId, std::uint64_t> committed_of_;  // when it was looked at last
};

}  // namespace pccl::sim
