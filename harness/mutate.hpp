// Mutates a scenario: its faults, its numbers, or parts taken from another scenario (the donor).
//
// It edits the scenario as data, never the stream of random draws. Numbers stay within the generator's ranges. Values
// that depend on others are recomputed (settle.hpp), so that a correct run can still come to its end.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"

#include <array>
#include <cstdint>

namespace pccl::harness {

// How often each effect happened in a run of the scenario. A fault tied to an effect waits for a count up to this one,
// so it begins during the run.
using EffectCounts = std::array<std::uint64_t, sim::effect_kinds>;

// Makes one to five changes. Parts from another scenario are taken from `donor`.
Scenario mutate(const Scenario& parent, const Scenario& donor, const EffectCounts& effects, sim::Draw& draw);

}  // namespace pccl::harness
