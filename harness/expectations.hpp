// What a kept scenario says of its run beside the promises that every run keeps: how often something happens in it.
//
//     expect removed 0 0          nobody is removed
//     expect committed 128        at least so many collectives succeed
//     expect sync_no_memory_in_time 1
//
// A long run breaks no promise by itself, and a member that a fault touched may be lost. Whoever wrote the scenario
// knows what must happen in this one. Expectations hold for the scenario's own seed. A scenario that is changed has
// none.
#pragma once

#include "harness/run.hpp"
#include "harness/scenario_reader.hpp"

#include <string>

namespace pccl::harness {

// Reads the rest of a line that begins with `expect`: what is counted, at least and at most how often (any number if it is
// left out). What is counted: committed, aborted, removed (members, without those that left), removed-early (until
// the programs are told to end), removed-ms (when the last
// one was), simulated-ms, and each probe and effect (harness/triggers.hpp).
void read_expectation(ScenarioReader& reader, Scenario& scenario);
std::string to_text(const Expectation& expected);
Expectation nobody_removed();
Expectation removals(std::uint64_t members);  // exactly so many, until the programs are told to end
Expectation no_aborts();
Expectation ends_until(Instant latest);

// Oracle `expect`. Empty: the run was as the scenario says.
sim::Violation check_expectations(const Scenario& scenario, const Verdict& verdict);

}  // namespace pccl::harness
