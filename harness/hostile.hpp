// What a stranger may send: noise, lengths that lie, and valid frames that say what they should not.
#pragma once

#include "net-sim/draw.hpp"

#include <cstdint>
#include <vector>

namespace pccl::harness {

// A few frames (or what looks like some). `own_port` is where the stranger pretends to listen. `joins`: a hello that a
// master accepts as a newcomer's is among them.
std::vector<std::uint8_t> hostile_bytes(sim::Draw& draw, std::uint32_t own_node, bool& joins);

}  // namespace pccl::harness
