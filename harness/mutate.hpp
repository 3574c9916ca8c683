// Changes a scenario as data: its faults, its numbers, parts of another one put in. Never the stream of random draws.
//
// Numbers stay within what the generator draws, and what follows from others is recomputed (settle.hpp), so that a correct
// run can come to its end.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"

#include <array>
#include <cstdint>

namespace pccl::harness {

// How often each effect happened in a run of the scenario: a fault that is tied to an effect then falls into the run.
using EffectCounts = std::array<std::uint64_t, sim::effect_kinds>;

// One to five changes. `donor`: what is spliced in comes from it.
Scenario mutate(const Scenario& parent, const Scenario& donor, const EffectCounts& effects, sim::Draw& draw);

}  // namespace pccl::harness
