// Oracle: what never comes to pass in a run without liars. Machines note it with a probe, because no application sees it.
#pragma once

#include "harness/run.hpp"
#include "harness/scenario.hpp"

namespace pccl::harness {

sim::Violation check_never(const Scenario& scenario, const Verdict& verdict);

}  // namespace pccl::harness
