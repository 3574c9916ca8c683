// Which pairs of nodes a network fault separates. The simulator and the bridge to real processes share these rules.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"

namespace pccl::harness {

// A mask has 32 bits. From node 31 on, the side of a node is drawn from the mask.
inline bool in_mask(std::uint64_t mask, std::uint32_t node) {
    return node < 31 ? ((mask >> node) & 1) != 0 : (sim::mix(mask, node) & 1) != 0;
}

// Whether the fault blocks everything from one node to the other. `nodes` counts the master too.
inline bool separates(const Fault& fault, std::uint32_t nodes, std::uint32_t from, std::uint32_t to) {
    const std::uint32_t a = fault.a % nodes;
    const std::uint32_t b = fault.b % nodes;
    if (from == to) return false;
    switch (fault.kind) {
    case FaultKind::partition: return in_mask(fault.a, from) != in_mask(fault.a, to);
    case FaultKind::one_way: return from == a && to == b;
    case FaultKind::cut_pair: return (from == a && to == b) || (from == b && to == a);
    case FaultKind::clog: return from == a;
    case FaultKind::interface: return (from == a || to == a) && ((from == a ? to : from) == 0) == ((fault.b & 1) != 0);
    default: return false;
    }
}

// The nodes that a swizzle silences, in that order.
inline std::vector<std::uint32_t> swizzled_nodes(const Fault& fault, std::uint32_t nodes) {
    std::vector<std::uint32_t> chosen;
    for (std::uint32_t node = 0; node < nodes; ++node) {
        if ((sim::mix(fault.value, node) & 1) != 0) chosen.push_back(node);
    }
    return chosen;
}

}  // namespace pccl::harness
