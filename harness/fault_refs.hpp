// References of faults: to nodes, and to other faults. Code that removes faults or changes their order has to use these
// functions, so that followers still refer to the right fault.
#pragma once

#include "harness/scenario.hpp"

#include <functional>
#include <vector>

namespace pccl::harness {

bool names_a_node(FaultKind kind);  // Fault::a names a node
bool names_two(FaultKind kind);     // and Fault::b another
bool chooses_a_connection(FaultKind kind);

// What happens to the followers of a fault that is removed.
enum class Followers : std::uint8_t {
    go,    // removed too, with their own followers
    stay,  // kept, at about the time at which they would have begun
};
void remove_faults(std::vector<Fault>& faults, const std::function<bool(const Fault&)>& gone, Followers followers);
// The fault without its reference to another one, at about the same time.
Fault untied(const std::vector<Fault>& faults, Fault fault);
void sort_by_time(std::vector<Fault>& faults);
// Whether each reference names a fault of the list, without cycles, and no fault that follows another has a trigger
// too.
bool references_hold(const std::vector<Fault>& faults);

}  // namespace pccl::harness
