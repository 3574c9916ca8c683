// The way of the library that this one replaces, as a small model on the simulated links: what the published figures are
// compared with. No core, no machines, no payload.
//
// An operation has one connection per neighbour. It runs 2(w-1) steps; in each a peer sends one part of w to its successor
// and receives one from its predecessor, and begins the next step when it has received the whole part and handed the whole
// of its own to the connection. Several operations run side by side, each on connections of its own.
#pragma once

#include "net-sim/network.hpp"

#include <cstdint>

namespace pccl::harness {

struct ReferenceRing {
    std::uint32_t peers = 2;  // nodes 0 .. peers-1, a ring in this order
    std::uint32_t operations = 1;
    std::uint64_t bytes = 0;  // of each operation
};

// From the moment when all connections are open to the end of the last operation.
sim::Duration reference_ring_time(const sim::NetworkParameters& network, const ReferenceRing& ring);

}  // namespace pccl::harness
