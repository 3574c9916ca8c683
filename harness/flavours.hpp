// Draws habits of applications and settings of a scenario, beside its faults. They bring runs to states that faults
// alone seldom reach. They are drawn from streams of their own, so that a new one changes no other draw.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"

namespace pccl::harness {

// `on`: the fault classes of the scenario.
void draw_flavours(Scenario& scenario, sim::Draw& draw, std::uint32_t on, std::uint32_t peers_max);
// Adds faults in which the disk of the journal does not answer, beside the other faults or in their place.
void draw_stuck_disk(Scenario& scenario, std::uint32_t on);

}  // namespace pccl::harness
