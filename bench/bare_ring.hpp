// The bare streamed ring: the lowest cost of an all-reduce over TCP on loopback on this machine.
//
// One process with one thread per peer, poll, non-blocking sockets with TCP_NODELAY, 256 KiB segments that are added
// while they are in cache and forwarded at once. No control plane, no checksums, no faults: it is a yardstick, not a
// library. pccl-bench prints its times as ratios to this ring, measured in the same run.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pccl::bench {

struct RingMeasurement {
    bool completed = false;
    std::string error;             // why not completed
    std::vector<double> times_ms;  // one per measured iteration, on the first peer, sorted
    double cpu_seconds = 0;        // user and system, all peers, measured iterations only
    std::size_t extra_bytes = 0;   // peak memory beyond the buffers, of the peer with the highest peak
};

struct RingOptions {
    unsigned peers = 2;        // 2..64
    std::size_t bytes = 4096;  // rounded down to whole f32 elements
    unsigned iterations = 10;
    unsigned warmup = 2;
    bool in_place = true;
    // TCP congestion control. Empty: the system's default, which is also kept if this one is not allowed. On loopback
    // bbr takes about 1.5 times as long as cubic, and the yardstick must be the machine's best.
    std::string congestion_control = "cubic";
    unsigned timeout_seconds = 60;  // for the whole measurement
};

// Forks the peers, waits for them and reaps them. The caller must be single-threaded.
RingMeasurement measure_bare_ring(const RingOptions& options);

}  // namespace pccl::bench
