// Observes what pcclOptimizeTopology does in a run: the bandwidths that it measured and the rings that it changed, read
// from the master's log lines. Also makes networks whose paths differ, so that the order of the ring matters.
#pragma once

#include "harness/run.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pccl::harness {

// A network of hosts with equal links, and paths between them that may be narrower.
struct PathNetwork {
    std::uint32_t peers = 8;
    std::int64_t host_rate = 0;  // bytes per second, in each direction
    std::vector<std::int64_t>
        paths;  // from peer to peer, row by row; 0: as wide as the hosts' links; empty: all of them
    Duration latency = 10 * core::millisecond;  // one way
    std::int64_t window = 160 << 10;            // bytes in flight per stream
    std::uint32_t elements = 1'000'000;         // of the collective that follows
};

// All peers join, call optimize_topology if `optimize` is set, then do one collective.
Scenario path_scenario(const PathNetwork& network, bool optimize);
// Paths have random rates between `low` and `high`, except one ring through all peers, whose paths have the rate
// `best`.
PathNetwork network_with_good_ring(std::uint32_t peers, std::uint64_t seed, std::int64_t low, std::int64_t high,
                                   std::int64_t best, std::vector<std::uint32_t>& good_ring);

struct RingChange {
    std::vector<std::string> before, after;  // names of peers
    std::map<std::pair<std::string, std::string>, std::uint64_t>
        bandwidths;  // known to the master by then, bytes per second
};
struct TopologyFacts {
    Verdict verdict;
    std::map<std::pair<std::string, std::string>, std::uint64_t> bandwidths;
    std::vector<RingChange> changes;
    std::map<std::string, std::uint32_t> nodes;  // by name
    Duration longest_vote = 0;                   // from the last call of an optimize to its last return
    bool edges_failed = false;                   // the master marked edges, and routed rings around them
};
TopologyFacts watch_topology(const Scenario& scenario, std::uint64_t items_max = RunOptions{}.items_max);

}  // namespace pccl::harness
