// Habits of applications and settings that a scenario has beside its faults: what brings runs to states that faults alone
// seldom reach. Drawn from a stream of their own, so that a new one changes no other draw.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"

namespace pccl::harness {

// `on`: the fault classes of the scenario.
void draw_flavours(Scenario& scenario, sim::Draw& draw, std::uint32_t on, std::uint32_t peers_max);
// A disk of the journal that does not answer, beside the other faults.
void draw_stuck_disk(Scenario& scenario, std::uint32_t on);

}  // namespace pccl::harness
