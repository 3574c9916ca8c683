// Oracle `rings`: after pcclOptimizeTopology, the ring of a small group is at most 1 % more expensive than the best
// one. Costs follow from the bandwidths that the master writes to its log.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pccl::harness {

class Rings {
public:
    static constexpr std::size_t tried_max = 8;               // largest ring for which all orders are tried
    static constexpr std::uint64_t whole_search = 1'000'000;  // search steps; more than an exact search needs

    Rings(sim::World& world, const Scenario& scenario) : world_(world) {
        // A search that may end early promises less.
        listens_ = scenario.limits.search_answer_steps >= whole_search;
        // Two masters have different measurements.
        for (const Fault& fault : scenario.faults) listens_ &= fault.kind != FaultKind::two_masters;
    }
    // A new process of the master has no measurements.
    void master_began() { rates_.clear(); }
    void logged(const std::string& text);
    // Called after the master's event with the optimize, and after all log lines of that event. The master may route
    // the ring around an edge in the same event.
    void look_at(core::GroupId group);
    void lie() { lies_ = true; }

private:
    void heard_rate(std::string_view text);

    sim::World& world_;
    std::map<std::pair<std::string, std::string>, std::uint64_t> rates_;  // bytes per second, by names
    // Members that were removed so far, and how many those were at the optimize of a group: what is left of a ring after a
    // removal at the same instant is nobody's choice.
    std::uint64_t removed_ = 0;
    std::map<core::GroupId, std::uint64_t> removed_before_;
    bool listens_ = true;
    bool lies_ = false;
};

// The cost of the cheapest ring through all nodes. `costs` is a matrix, row by row.
std::uint64_t cheapest_ring(const std::vector<std::uint64_t>& costs, std::size_t nodes);

}  // namespace pccl::harness
