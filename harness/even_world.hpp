// Even worlds: the network is even, disks are quick, and there is no fault, so nothing is left to chance.
//
// There a call waits only for bytes and for the calls of others. Time-outs that are a hundred times as long must not
// change when it returns. A lost wake-up that a tick, a resend or a redial heals shows in that second run: the call
// returns later.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

namespace pccl::harness {

struct Ledger;
struct Verdict;

void draw_even_world(Scenario& scenario, const GeneratorOptions& options, std::uint32_t on);

// Whether the scenario is marked even and still is: shrinking or mutation may have changed it.
bool is_even(const Scenario& scenario);

// Whether the paths between all nodes have the same latency. Else the moment of a tick decides which of two newcomers is the
// first, and two runs cannot be compared.
bool has_equal_paths(const Scenario& scenario);

// Nothing may be sent again because of a clock. For even worlds without a fault whose paths are not equal.
sim::Violation check_healing(const Verdict& verdict);

// The same scenario with time-outs a hundred times as long.
Scenario with_more_patience(const Scenario& scenario);

// Compares the calls of both runs. `patient`: the ledger of the run with the longer time-outs.
sim::Violation check_waiting(const Ledger& ledger, const Ledger& patient);

}  // namespace pccl::harness
