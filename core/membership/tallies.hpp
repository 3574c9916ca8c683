// The master's counters for spectators only, since its process began. They are not in the journal, and no decision
// depends on them.
//
// It reads each record before the record changes the state, so it sees what an operation was that ends there.
//
// Invariants: each operation in it is running. It lists at most Limits::removals_listed removals.
#pragma once

#include "core/journal/run_state.hpp"
#include "core/master_status.hpp"
#include "core/turn.hpp"
#include "core/voting/ballot.hpp"

#include <cstdint>
#include <deque>
#include <map>

namespace pccl::core {

class Tallies {
public:
    struct Begun {
        Instant at = 0;
        std::uint64_t bytes = 0;  // of one member's input
    };

    Tallies(Turn& turn, const RunState& state) : turn_(turn), state_(state) {}

    // Call this before `record` changes the state: an operation that it ends is still there.
    void recording(const proto::Record& record);
    void started(OpId id, const Ballot& ballot);

    std::uint64_t admitted() const { return admitted_; }
    std::uint64_t removed() const { return removed_; }
    const std::deque<MasterStatus::Removal>& removals() const { return removals_; }
    MasterStatus::Tally of_group(GroupId group) const {
        const auto tally = groups_.find(group);
        return tally == groups_.end() ? MasterStatus::Tally{} : tally->second;
    }
    // Null: an earlier process of the master has started it.
    const Begun* of_operation(OpId id) const {
        const auto begun = operations_.find(id);
        return begun == operations_.end() ? nullptr : &begun->second;
    }

    void check() const;

private:
    void note_removal(const Uuid& member, const Cause& cause);
    void end_if_empty(const proto::RingRecord& ring);

    Turn& turn_;
    const RunState& state_;
    std::uint64_t admitted_ = 0;
    std::uint64_t removed_ = 0;
    std::map<GroupId, MasterStatus::Tally> groups_;
    std::map<OpId, Begun> operations_;            // the running ones
    std::deque<MasterStatus::Removal> removals_;  // the last ones, at most Limits::removals_listed
};

}  // namespace pccl::core
