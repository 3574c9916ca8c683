// Oracle `rings`: after pcclOptimizeTopology, the ring of a small group is at most 1 % more expensive than the best
// one. Costs follow from the bandwidths that the master writes to its log. An optimize that ends before the first fault has
// an outcome of each measurement that it announced, unless a member left meanwhile or it took long.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
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
        // In less time, neither the survey nor one of its tests can have timed out. Half of it, because clocks drift.
        survey_time_ = std::min(scenario.timeouts.survey, scenario.timeouts.dial + 2 * scenario.timeouts.test) / 2;
        // A search that may end early promises less.
        listens_ = scenario.limits.search_answer_steps >= whole_search;
        // Two masters have different measurements.
        for (const Fault& fault : scenario.faults) {
            listens_ &= fault.kind != FaultKind::two_masters;
            // One that follows another fault begins later than that one.
            if (fault.follows == 0) first_fault_ = std::min(first_fault_, fault.trigger == 0 ? fault.at : 0);
        }
    }
    // A new process of the master has no measurements.
    void master_began() { rates_.clear(); }
    void logged(const std::string& text);
    // Called after the master's event with the optimize, and after all log lines of that event. The master may route
    // the ring around an edge in the same event.
    // `liars` may have said that their edges are down, so that the master avoids these without a word.
    void look_at(core::GroupId group, const std::vector<core::Uuid>& liars);
    void lie() { lies_ = true; }

private:
    void heard_rate(std::string_view text);
    // Follows the measurements of one optimize, from the log of the master.
    void follow_survey(std::string_view text);

    sim::World& world_;
    std::map<std::pair<std::string, std::string>, std::uint64_t> rates_;  // bytes per second, by names
    // Members that were admitted or removed so far, and how many those were at the optimize of a group: a ring that has
    // changed with its members at the same instant is nobody's choice.
    std::uint64_t changes_ = 0;
    std::map<core::GroupId, std::uint64_t> changes_before_;
    // The measurements of the optimize that runs.
    struct Survey {
        core::Instant began = 0;
        std::uint64_t edges = 0;     // announced
        std::uint64_t outcomes = 0;  // measured, or the master knows that they could not be measured
        std::uint64_t changes = 0;   // changes_ at its begin
    };
    std::optional<Survey> survey_;
    core::Duration survey_time_ = 0;
    core::Instant first_fault_ = core::never;  // 0: it may begin at any time
    bool listens_ = true;
    bool lies_ = false;
};

// The cost of the cheapest ring through all nodes. `costs` is a matrix, row by row.
std::uint64_t cheapest_ring(const std::vector<std::uint64_t>& costs, std::size_t nodes);

}  // namespace pccl::harness
