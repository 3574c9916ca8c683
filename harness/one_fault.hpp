// Even worlds with exactly one fault, and the check that no call waits longer for it than necessary (oracle `waiting`).
//
// The cost of such a fault is known: each time-out that detects it, once, and some round trips. A longer wait is no
// failure that a program sees. It means that some event restarts a clock that it must not restart.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"
#include "net-sim/world.hpp"

namespace pccl::harness {

struct Ledger;

// Adds one random fault to an even world.
void draw_one_fault(Scenario& scenario, sim::Draw& draw);

// True for an even world with one fault whose cost is known.
bool has_one_fault(const Scenario& scenario);

Scenario without_faults(const Scenario& scenario);

// How much longer a call may wait than in the run without the fault.
Duration delay_of_fault(const Scenario& scenario);

// `without`: the ledger of the run without the fault.
sim::Violation check_delay(const Scenario& scenario, const Ledger& ledger, const Ledger& without);

}  // namespace pccl::harness
