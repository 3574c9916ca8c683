// Scenarios as text that a person reads and edits, and that survives changes of the generator.
//
// One setting a line, `name value`; two values stand for a range. What has its default is not written. Peers and faults
// are lines of their own: `peer start=1.5ms group=1 stripes=2 turns=4`, `fault reset at=20ms after=payload*7 value=3`.
// Latencies may come from regions instead of a range: `region 1ms 40ms` (one line per region: from it to each of them),
// `master region=0`, `peer region=1`. `#` begins a comment. docs/simulator-faults.md has an example,
// `sim-run --list-faults` lists the faults.
#pragma once

#include "harness/scenario.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pccl::harness {

inline constexpr std::size_t scenario_bytes_max = 1 << 20;

struct ScenarioError {
    std::uint32_t line = 0;
    std::uint32_t column = 0;
    std::string expected;  // what should have been there, and what was found
};

std::string to_text(const Scenario& scenario);

// The scenario, or where the text stops making sense. Values are held to ranges in which a run stays bounded.
std::optional<Scenario> parse_scenario(std::string_view text, ScenarioError& error);

// Whether everything fits together so that a run can begin.
bool sound(const Scenario& scenario);

// The settings of the world (network, clocks, disk, memory, limits, time-outs) and of the workload's odds, by number.
// reset: gives it its default value; false when it had it already or when the scenario would make no sense with it.
std::size_t world_settings();
bool reset_world_setting(Scenario& scenario, std::size_t index);

// What a fault does and what its numbers mean, one line each.
std::string list_faults();

}  // namespace pccl::harness
