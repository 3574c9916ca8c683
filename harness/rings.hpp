// Rings that pcclOptimizeTopology leaves behind (oracle `rings`): among few members none is dearer than the best one, by what
// was measured, by more than the promise. What was measured is heard from the log of the master.
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
    static constexpr std::size_t tried_max = 8;               // members of a ring for which all rings are tried
    static constexpr std::uint64_t whole_search = 1'000'000;  // steps, more than those of an exact one among so many

    Rings(sim::World& world, const Scenario& scenario) : world_(world) {
        // A search that ends early promises less.
        listens_ = scenario.limits.search_answer_steps >= whole_search;
        // Two masters know different measurements.
        for (const Fault& fault : scenario.faults) listens_ &= fault.kind != FaultKind::two_masters;
    }
    // A new process of the master remembers no measurement.
    void master_began() { rates_.clear(); }
    void logged(const std::string& text);
    // When the master's event with the optimize is over, and all that it logs: it may lead the ring around an edge at once.
    void look_at(core::GroupId group);
    void lie() { lies_ = true; }

private:
    void heard_rate(std::string_view text);

    sim::World& world_;
    std::map<std::pair<std::string, std::string>, std::uint64_t> rates_;  // bytes per second, by names
    bool listens_ = true;
    bool lies_ = false;
};

// The sum over the edges of the cheapest ring through all nodes; `costs` row by row.
std::uint64_t cheapest_ring(const std::vector<std::uint64_t>& costs, std::size_t nodes);

}  // namespace pccl::harness
