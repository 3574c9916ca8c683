// Oracle `numbers`: checks the numbers that the library reports. These are the byte counts of reductions and
// synchronizations, the statistics of a peer, and the status of the master. The expected values do not come from the
// core.
//
// The byte counts of each completion are compared with the frames that the driver carried. They must be equal if the
// core counts whole frames. The byte counts of a success are also compared with the geometry of the ring or with the
// content that changed. Statistics and status are expensive, so they are checked after some completions only.
#pragma once

#include "harness/ledger.hpp"
#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace pccl::harness {

class Numbers {
public:
    Numbers(sim::World& world, const Scenario& scenario) : world_(world), scenario_(scenario) {
        told_.resize(scenario.peers.size() + 1);
        // The status follows from the journal, so it is checked only if no fault concerns the journal.
        for (const Fault& fault : scenario.faults) {
            journal_is_safe_ &= !concerns_the_journal(fault.kind);
            epochs_differ_ &= !concerns_the_journal(fault.kind) || fault.kind == FaultKind::crash_master ||
                              fault.kind == FaultKind::aimed_master;
        }
    }
    // For the canary: no operation of the status has a beginning.
    void lie() { lies_ = true; }
    // Called for each completion of a peer, before the application gets it.
    void told(std::uint32_t node, const core::Command& command, const core::Completion& completion);

private:
    // What completions have reported to the current process of a node.
    struct Told {
        std::uint64_t incarnation = 0;
        std::uint64_t connects = 0, updates = 0;
        std::uint64_t launched = 0, committed = 0, failed = 0, many = 0;
        std::uint64_t sent = 0, received = 0;
        std::uint64_t life_committed = 0;  // in this membership
        bool asked_for_many = false, has_left = false;
        bool syncs_unsure = false;  // since the last connect
        // Inputs of other collectives than an all-reduce, which votes may have carried. The driver does not see it.
        std::multiset<std::uint64_t> vote_inputs;
        std::uint64_t vote_inputs_sum = 0;
        std::map<core::Tag, std::uint64_t> open;  // bytes of the launches that are not awaited, by tag
        // Tags that were awaited, or not awaited any more, when this peer had left the run. The master keeps the seat of
        // a member that it does not hear for a while, or is frozen, so it may still have their operations.
        std::set<core::Tag> left_behind;
        std::uint64_t failed_bytes = 0;           // of failed awaits since the last success in this membership
    };

    static std::string bytes_of_reduction(sim::Carried& carried, const core::Completion& completion, const Told& told);
    std::string bytes_of_many(sim::Carried& carried, const core::Completion& completion, bool all);
    std::string bytes_of_sync(sim::Carried& carried, const core::Completion& completion, bool& unsure);
    std::string statistics(const Told& told, sim::Driver& driver) const;
    void count_reduced(Told& told, bool in_run, core::GroupId group, const core::Command& command,
                       const core::Completion& completion);
    std::string sizes(const core::Completion& completion);
    std::string status_of(const Told& told, const core::MasterStatus::Operation& operation, bool may_be_own,
                          bool by_this) const;
    std::string status(const Told& told, const core::PeerMachine& peer, core::GroupId group,
                       const core::Command& command, const core::Completion& completion) const;

    sim::World& world_;
    const Scenario& scenario_;
    std::vector<Told> told_;  // per node
    std::uint32_t looks_ = 0;
    bool lies_ = false;
    bool journal_is_safe_ = true;
    bool epochs_differ_ = true;                        // no two epochs have the same number
    std::map<std::uint64_t, core::Attributes> sizes_;  // by epoch
    std::map<core::GroupId, std::uint64_t> reduced_;   // twice the bytes that may have been committed, at most
};

// Compares the byte counts of successes with the geometry of the ring, or with the content that changed.
sim::Violation check_numbers(const Scenario& scenario, const Ledger& ledger);

// The bytes that the member at each position of a ring receives, and the least that it sends.
struct RingBytes {
    std::uint64_t received = 0;
    std::uint64_t sent = 0;
};
std::vector<RingBytes> ring_bytes(const core::ReduceShape& shape, std::uint32_t world, std::uint32_t slice_bytes);

}  // namespace pccl::harness
