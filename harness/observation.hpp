// What a run looked like from outside the machines, for reports: the recording, the faults that took effect, and what
// applications saw. run() fills it if RunOptions::observation is set. The run itself does not depend on it.
#pragma once

#include "harness/ledger.hpp"
#include "harness/scenario.hpp"
#include "net-sim/recorder.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::harness {

struct FaultSpan {
    std::size_t index = 0;  // in Scenario::faults
    FaultKind kind = FaultKind::partition;
    Instant begin = 0;
    Instant end = 0;
    // The affected nodes. If the fault separates two sides, `others` is the second one.
    std::vector<std::uint32_t> nodes;
    std::vector<std::uint32_t> others;
};

struct Observation {
    sim::Recorder recorder;
    std::vector<FaultSpan> faults;
    Ledger ledger;
    std::vector<std::string> nodes;  // names of all nodes; the master and the peers come first
};

}  // namespace pccl::harness
