// What faults of a scenario refer to: nodes, and other faults. Who takes a fault away or changes their order does it here,
// so that those that follow it still name the right one.
#pragma once

#include "harness/scenario.hpp"

#include <functional>
#include <vector>

namespace pccl::harness {

bool names_a_node(FaultKind kind);  // Fault::a is one
bool names_two(FaultKind kind);     // and Fault::b another
bool chooses_a_connection(FaultKind kind);

// What becomes of those that follow a fault which is taken away.
enum class Followers : std::uint8_t {
    go,    // with it, and who follows them
    stay,  // at about the time at which they would have begun
};
void remove_faults(std::vector<Fault>& faults, const std::function<bool(const Fault&)>& gone, Followers followers);
// The fault without the one that it follows, at about the same time.
Fault untied(const std::vector<Fault>& faults, Fault fault);
void sort_by_time(std::vector<Fault>& faults);
// Each names another one of them, and nobody waits for itself.
bool references_hold(const std::vector<Fault>& faults);

}  // namespace pccl::harness
