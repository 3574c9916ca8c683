// What follows from other numbers of a scenario: times, windows and sizes that let a correct run come to its end, and
// which faults may last for ever. The generator draws by these rules; settle() applies them to a scenario that was changed.
#pragma once

#include "harness/scenario.hpp"

namespace pccl::harness {

// A guess at how long the workload takes without faults.
Duration busy_time(const Scenario& scenario);

// Whether the core and the master stay whole among themselves although the fault never heals.
bool may_last(const Scenario& scenario, const Fault& fault);

// With the copies and the memory that slices of this size need at least.
void set_slices(Scenario& scenario, std::uint32_t bytes);

// Slices large enough that the largest operation has some hundreds of them at most.
void raise_slices(Scenario& scenario);

// Windows and chunks large enough that a turn takes seconds at most: what is slower is not stuck, but looks like it.
void widen_windows(Scenario& scenario);

// How long everybody may take to come to an end when the faults have stopped.
Duration patience_of(const Scenario& scenario);

// Makes everything follow from the rest again. Leaves what generate() draws as it is.
void settle(Scenario& scenario);

}  // namespace pccl::harness
