// What a kept scenario says of its run beside the promises that every run keeps: how often something happens in it.
//
//     expect removed 0 0          nobody is removed
//     expect committed 128        at least so many collectives succeed
//     expect sync_no_memory_in_time 1
//
// A long run breaks no promise by itself, and a member that a fault touched may be lost. Whoever wrote the scenario knows
// what must happen in this one. Expectations hold for the scenario's own seed. A scenario that is changed has none.
#pragma once

#include "harness/run.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pccl::harness {

// Names of what is counted: committed, aborted, removed (members, without those that left), removed-ms (when the last one
// was), simulated-ms, and each probe and effect (harness/triggers.hpp).
std::string expectation_name(std::uint32_t what);
std::optional<std::uint32_t> expectation_named(std::string_view name);

// Oracle `expect`. Empty: the run was as the scenario says.
sim::Violation check_expectations(const Scenario& scenario, const Verdict& verdict);

}  // namespace pccl::harness
