// What a run looked like from outside of the machines, for reports: the recording, the faults that really happened, and
// what applications saw. Filled by run() when RunOptions names one; the run itself does not depend on it.
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
    // The nodes concerned. Where the fault separates two sides, the second one is in `others`.
    std::vector<std::uint32_t> nodes;
    std::vector<std::uint32_t> others;
};

struct Observation {
    sim::Recorder recorder;
    std::vector<FaultSpan> faults;
    Ledger ledger;
    std::vector<std::string> nodes;  // their names; peers and the master first
};

}  // namespace pccl::harness
