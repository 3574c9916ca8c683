// Which pairs of nodes a fault of the network separates: the same in both worlds.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"

namespace pccl::harness {

// Masks have 32 bits; of larger runs each node's side is drawn from the mask.
inline bool in_mask(std::uint64_t mask, std::uint32_t node) {
    return node < 31 ? ((mask >> node) & 1) != 0 : (sim::mix(mask, node) & 1) != 0;
}

// Whether nothing gets from one node to the other, in a scenario of so many nodes (with the master).
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

// The nodes that a swizzle silences, in the order in which it does.
inline std::vector<std::uint32_t> swizzled_nodes(const Fault& fault, std::uint32_t nodes) {
    std::vector<std::uint32_t> chosen;
    for (std::uint32_t node = 0; node < nodes; ++node) {
        if ((sim::mix(fault.value, node) & 1) != 0) chosen.push_back(node);
    }
    return chosen;
}

}  // namespace pccl::harness
