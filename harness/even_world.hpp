// Worlds in which nothing is left to chance: an even network, quick disks, no fault. A call waits for bytes and for the calls
// of others there, and for nothing else, so time-outs a hundred times as long change no instant. A lost wake-up that a tick,
// a resend or a redial heals shows as a call that returns later then.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

namespace pccl::harness {

struct Ledger;

void draw_even_world(Scenario& scenario, const GeneratorOptions& options, std::uint32_t on);

// Marked so, and still so: a shrunk or mutated scenario may not be.
bool is_even(const Scenario& scenario);

// The same with time-outs a hundred times as long.
Scenario with_more_patience(const Scenario& scenario);

// `patient` is what was seen in the run of the other scenario.
sim::Violation check_waiting(const Ledger& ledger, const Ledger& patient);

}  // namespace pccl::harness
