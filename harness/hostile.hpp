// Draws what a stranger may send: noise, wrong lengths, and valid frames with false content.
#pragma once

#include "core/wire/frame.hpp"
#include "net-sim/draw.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::harness {

// What a stranger may have learned as a waiting newcomer, or from peers that dialled it. No secret is part of it.
struct Knowledge {
    std::string run_id;                            // empty: nothing is known
    std::string from, to;                          // two members; the first one dialled the second one
    std::vector<core::wire::BulkHeader> payloads;  // of frames that were sent to the target
};
// Reads it from the first bytes of a connection between two peers.
Knowledge learn(const std::vector<std::uint8_t>& greeting);

// Messages to the master from a newcomer that reports false connections with members and keeps waiting. `newcomer`: the
// name under which it registers; empty if it has `registered` already.
std::vector<std::uint8_t> newcomer_lies(sim::Draw& draw, std::uint32_t own_node, const Knowledge& known,
                                        bool registered, std::string& newcomer);

// A few frames, or bytes that look like frames. `own_node`: where the stranger pretends to listen. `newcomer`: the name
// in a hello that a master may accept as a newcomer's; empty: there is none.
std::vector<std::uint8_t> hostile_bytes(sim::Draw& draw, std::uint32_t own_node, bool to_master, const Knowledge& known,
                                        std::string& newcomer);

}  // namespace pccl::harness
