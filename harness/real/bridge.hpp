// The bridge: plays a scenario with real processes over loopback, and judges it with the oracles of the simulator.
//
// The master is pccl-master. Each peer is a bridge-peer: the program of training.cpp over libpccl. All connections pass
// through a Proxy. Times are real, so two runs differ, but what the applications saw must keep the same promises.
#pragma once

#include "harness/process.hpp"
#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace pccl::harness {

struct BridgeOptions {
    std::string programs;   // the directory of pccl-master and bridge-peer
    bool progress = false;  // one line per second on standard error
};

struct BridgeVerdict {
    sim::Violation violation;   // empty oracle: all held
    std::string machine_error;  // the run could not be made: no verdict
    int interrupted_by = 0;     // a signal: no verdict
    std::string logs;           // folder with the files of all processes; empty: it was removed
    Duration took = 0;
    Counters counters;
    std::array<std::uint64_t, fault_kinds> faults{};
    std::uint32_t processes = 0;
    std::uint64_t bytes_forwarded = 0;
    bool held() const { return violation.oracle.empty() && machine_error.empty() && interrupted_by == 0; }
};

// The lines of the scenario that real processes cannot play, each with the reason.
std::vector<std::string> unplayable(const Scenario& scenario);
// The scenario without these lines.
Scenario playable_part(Scenario scenario);

BridgeVerdict run_real(const Scenario& scenario, const BridgeOptions& options);

}  // namespace pccl::harness
