// An even world in which one thing goes wrong. How long a call may wait for that is known: the time-outs that notice it, once,
// and some round trips. Waiting for longer is no failure that a program sees, only a clock that the wrong thing renews.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"
#include "net-sim/world.hpp"

namespace pccl::harness {

struct Ledger;

// Adds the fault to an even world.
void draw_one_fault(Scenario& scenario, sim::Draw& draw);

// An even world with a fault of which it is known what it may cost.
bool has_one_fault(const Scenario& scenario);

Scenario without_faults(const Scenario& scenario);

// How much longer than in the run without it a call may wait.
Duration delay_of_fault(const Scenario& scenario);

// `without` is what was seen in the run without the fault.
sim::Violation check_delay(const Scenario& scenario, const Ledger& ledger, const Ledger& without);

}  // namespace pccl::harness
