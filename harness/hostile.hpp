// What a stranger may send: noise, lengths that lie, and valid frames that say what they should not.
#pragma once

#include "core/wire/frame.hpp"
#include "net-sim/draw.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::harness {

// What a stranger may have learned: as a newcomer that waits, or from peers that dialled it. No secret is among it.
struct Knowledge {
    std::string run_id;                            // empty: nothing is known
    std::string from, to;                          // two members; the first one dialled the second one
    std::vector<core::wire::BulkHeader> payloads;  // of frames that the target got
};
// From the first bytes of a connection between two peers.
Knowledge learn(const std::vector<std::uint8_t>& greeting);

// What a newcomer says to the master that lies about its connections with members and goes on waiting. `newcomer`: the name
// under which it registers; empty: it does not.
std::vector<std::uint8_t> newcomer_lies(sim::Draw& draw, std::uint32_t own_node, const Knowledge& known,
                                        bool registered, std::string& newcomer);

// A few frames (or what looks like some). `own_node` is where the stranger pretends to listen. `newcomer`: the name
// of a hello among them that a master may accept as a newcomer's; empty: none.
std::vector<std::uint8_t> hostile_bytes(sim::Draw& draw, std::uint32_t own_node, bool to_master, const Knowledge& known,
                                        std::string& newcomer);

}  // namespace pccl::harness
