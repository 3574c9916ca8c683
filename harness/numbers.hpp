// Numbers that users are told, worked out again beside the core (oracle `numbers`): bytes of reductions and
// synchronizations, statistics of a peer, and what the master tells spectators.
//
// What a completion says is compared with the frames that the driver carried, always and exactly where the core counts whole
// frames; what a success says is compared with the geometry of the ring or the content that changed. Statistics and status
// cost time: they are looked at behind some completions only.
#pragma once

#include "harness/ledger.hpp"
#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::harness {

class Numbers {
public:
    Numbers(sim::World& world, const Scenario& scenario) : world_(world), scenario_(scenario) {
        told_.resize(scenario.peers.size() + 1);
        // Its records are what it tells of.
        for (const Fault& fault : scenario.faults) journal_is_safe_ &= !concerns_the_journal(fault.kind);
    }
    // Of the process that answers, before the application knows.
    void told(std::uint32_t node, const core::Command& command, const core::Completion& completion);

private:
    // What the present process of a node was told.
    struct Told {
        std::uint64_t incarnation = 0;
        std::uint64_t connects = 0, updates = 0;
        std::uint64_t launched = 0, committed = 0, failed = 0, many = 0;
        std::uint64_t sent = 0, received = 0;
        std::uint64_t life_committed = 0;  // of this membership
        bool asked_for_many = false, has_left = false;
        bool syncs_unsure = false;  // since the last connect
    };

    std::string bytes_of_reduction(sim::Carried& carried, const core::Completion& completion);
    std::string bytes_of_many(sim::Carried& carried, const core::Completion& completion, bool all);
    std::string bytes_of_sync(sim::Carried& carried, const core::Completion& completion, bool& unsure);
    std::string statistics(const Told& told, sim::Driver& driver) const;
    std::string status(const Told& told, const core::PeerMachine& peer, core::GroupId group,
                       const core::Command& command, const core::Completion& completion) const;

    sim::World& world_;
    const Scenario& scenario_;
    std::vector<Told> told_;  // per node
    std::uint32_t looks_ = 0;
    bool journal_is_safe_ = true;
};

// Bytes of successes: what the geometry of the ring, or the content that changed, says.
sim::Violation check_numbers(const Scenario& scenario, const Ledger& ledger);

// What the member at each position of a ring receives, and what it sends at least.
struct RingBytes {
    std::uint64_t received = 0;
    std::uint64_t sent = 0;
};
std::vector<RingBytes> ring_bytes(const core::ReduceShape& shape, std::uint32_t world, std::uint32_t slice_bytes);

}  // namespace pccl::harness
