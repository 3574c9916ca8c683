// A small model of the ring of the library that this one replaces, on simulated links. Its times are compared with the
// published figures. It uses no core, no machines and no payload.
//
// An operation has one connection per neighbour and runs 2(w-1) steps. In each step a peer sends one of w parts to its
// successor and receives one from its predecessor. It begins the next step when it has received the whole part and has
// handed its own part to the connection. Several operations run side by side, each on its own connections.
#pragma once

#include "net-sim/network.hpp"

#include <cstdint>

namespace pccl::harness {

struct ReferenceRing {
    std::uint32_t peers = 2;  // nodes 0 .. peers-1, a ring in this order
    std::uint32_t operations = 1;
    std::uint64_t bytes = 0;  // of each operation
};

// The time from the moment when all connections are open to the end of the last operation.
sim::Duration reference_ring_time(const sim::NetworkParameters& network, const ReferenceRing& ring);

}  // namespace pccl::harness
