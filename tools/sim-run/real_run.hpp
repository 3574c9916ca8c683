// sim-run --real: plays a scenario with real processes.
#pragma once

#include "harness/scenario.hpp"

namespace pccl {

// Prints the verdict and returns the exit code of sim-run.
int run_for_real(const harness::Scenario& scenario, bool skip_unplayable);

}  // namespace pccl
