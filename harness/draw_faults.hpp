// Draws the faults of a scenario from its seed: what happens to nodes, networks, disks and machines, and when.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"

namespace pccl::harness {

// `on`: the fault classes of the scenario. Also sets the core and the claim, because they follow from the faults.
void draw_faults(Scenario& scenario, sim::Draw& draw, std::uint32_t on);
// Draws many members, some pairs of which never reach each other. Enough pairs do, so a ring of all members exists.
void draw_bad_pairs(Scenario& scenario, const GeneratorOptions& options, std::uint32_t on);

// Draws settings and faults that belong together, so that runs meet races which independent draws seldom meet.
void draw_races(Scenario& s, std::uint32_t on, std::uint32_t peers_max);

// Puts most peers into gangs: complete ones, parts of gangs, and some that no gang can be like. Draws deaths of their
// members.
void draw_gangs(Scenario& s, const GeneratorOptions& options, std::uint32_t on);
// Draws faults that come back at the same stage, in a world without others. Among the last draws, too.
void draw_stages(Scenario& scenario, std::uint32_t on);
// Draws a member that is away for a while and must not be removed, where nothing else was drawn. After all others.
void draw_away(Scenario& scenario, std::uint32_t on);
// Draws several faults at once that a run survives without a loss, in a world of its own, in place of what was drawn.
void draw_mild(Scenario& scenario, const GeneratorOptions& options, std::uint32_t on);
// Draws which peers share hosts.
void draw_hosts(Scenario& s, std::uint32_t on);
// Draws certificates that the operator revokes.
void draw_revocations(Scenario& scenario, std::uint32_t on);
// Draws members that lie. The last draw: it changes what other draws have chosen.
void draw_liars(Scenario& scenario, const GeneratorOptions& options, std::uint32_t on);

// Whether a fault of this kind may end a connection with the master.
bool parts_from_master(FaultKind kind);
// Both run after nearly everything else of the scenario is drawn. draw_followers adds faults that follow another fault
// or a phase of the protocol, draw_repeated adds faults that repeat. `allowed`: the fault classes that may happen at
// all.
void draw_followers(Scenario& s, std::uint32_t allowed);
void draw_repeated(Scenario& s, std::uint32_t on);

}  // namespace pccl::harness
