// The faults of a seed: what happens to nodes, networks, disks and machines, and when.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"

namespace pccl::harness {

// `on`: the fault classes of the scenario. Sets the core and the claim too, which follow from the faults.
void draw_faults(Scenario& scenario, sim::Draw& draw, std::uint32_t on);
// Many members of which some pairs never reach each other, and enough others do: a ring of all of them exists.
void draw_bad_pairs(Scenario& scenario, const GeneratorOptions& options, std::uint32_t on);

// Whether it may end a connection with the master.
bool parts_from_master(FaultKind kind);
// Behind everything else of the scenario: faults that follow others or a phase of the protocol, and that come again.
// `allowed`: the fault classes that may happen at all.
void draw_followers(Scenario& s, std::uint32_t allowed);
void draw_repeated(Scenario& s, std::uint32_t on);

}  // namespace pccl::harness
