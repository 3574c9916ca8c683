// Scenarios as text that a person can read and edit, and that stays valid when the generator changes.
//
// There is one setting per line, `name value`; two values are a range. Settings with their default value are left out.
// Each peer and each fault has a line: `peer start=1.5ms group=1 stripes=2 turns=4`,
// `fault reset at=20ms after=payload*7 value=3`. Latencies may come from regions instead of a range: `region 1ms 40ms`
// (one line per region, with the latency to each region), `master region=0`, `peer region=1`. `#` begins a comment.
// docs/simulator-faults.md has an example, `sim-run --list-faults` lists the faults.
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

// Returns the scenario, or the position of the first error. Values must lie in ranges in which a run stays bounded.
std::optional<Scenario> parse_scenario(std::string_view text, ScenarioError& error);

// Whether all values fit together, so that a run can begin.
bool sound(const Scenario& scenario);

// The number of settings of the world (network, clocks, disk, memory, limits, time-outs) and of the workload. Reset
// gives one of them its default value. It returns false if nothing is left to reset, if the shrinker reduces this
// setting in steps, or if the scenario would not be sound any more.
std::size_t world_settings();
bool reset_world_setting(Scenario& scenario, std::size_t index);

// What a fault does and what its numbers mean, one line each.
std::string list_faults();

}  // namespace pccl::harness
