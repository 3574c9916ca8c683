// The two tables of the technical report (arXiv 2505.14065) as simulated networks: the published times of the original
// library, and scenarios that predict the times of this core on the same links. docs/bandwidth-model.md states every
// assumption.
#pragma once

#include "harness/reference_ring.hpp"
#include "harness/scenario.hpp"

#include <string>
#include <vector>

namespace pccl::harness {

struct PaperRow {
    std::string name;               // also of its scenario file
    std::string where;              // shown to people
    sim::NetworkParameters peers;   // the links between the peers, as the reference ring sees them
    ReferenceRing reference;        // number of operations, and the bytes of each
    double published_seconds = 0;   // of all operations together
    std::uint32_t master_near = 0;  // the peer in whose city the master runs
};

inline constexpr std::uint64_t paper_bytes = 1ull << 30;  // 268,435,456 elements of f32: 1.073 GB

std::vector<PaperRow> paper_table_1();
std::vector<PaperRow> paper_table_2();

// One all-reduce of paper_bytes by this core, with symbolic payload. `scratch_bytes`: the limit of this name, which
// bounds the partial sums in flight to a peer.
Scenario paper_scenario(const PaperRow& row, std::uint32_t stripes,
                        std::uint64_t scratch_bytes = core::Limits{}.scratch_bytes);

// 2(w-1)/w * S / t, one way, in bytes per second.
double ring_rate(const PaperRow& row, double seconds);
// Lower bound: no ring can be faster than its slowest link, with this many flows to the neighbour.
double ring_bound_seconds(const PaperRow& row, std::uint32_t flows);

}  // namespace pccl::harness
