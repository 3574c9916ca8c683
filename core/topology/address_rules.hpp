// Rules about the addresses that one peer may give to another.
#pragma once

#include "core/base/ids.hpp"

namespace pccl::core {

bool is_loopback(const Endpoint& endpoint);
bool is_link_local(const Endpoint& endpoint);

// On each host (loopback) or each network (link-local) the address means another machine.
inline bool is_confined(const Endpoint& endpoint) { return is_loopback(endpoint) || is_link_local(endpoint); }

// A confined address may be given only to peers that are themselves reached at an address of the same kind. Otherwise
// the peer that advertises it could make others dial services of their own host or network.
inline bool may_dial(const Endpoint& dialler, const Endpoint& target) {
    return is_loopback(target) ? is_loopback(dialler) : !is_link_local(target) || is_link_local(dialler);
}

// Where a peer is in its own network, as it says and as the master sees it.
struct Location {
    Endpoint inside;           // its listener in its own network; port 0: not known
    Endpoint outside;          // where its connection to the master comes from
    bool advertises = false;   // it names the address at which others reach it
    bool keeps_ports = false;  // a translator in between kept the port; true too if the master could not see it
    bool is_inside() const { return inside.port != 0 && same_host(inside, outside); }
    // A translator is in between, and the peer advertises no address outside.
    bool is_translated() const { return inside.port != 0 && !advertises && !same_host(inside, outside); }
};

// The local port from which a peer dials stripe 0 to a target that must expect it. Stripe k is dialled from this one
// plus k.
// Peers of one host listen on different ports, and their ranges differ then.
inline std::uint16_t dial_port(std::uint16_t listen_port) {
    constexpr std::uint32_t first = 16'384, ports = 16'384, per_peer = 16;  // below those that systems give out
    return static_cast<std::uint16_t>(first + listen_port * per_peer % ports);
}

// Returns why no other host can connect to this address, as the end of a sentence. Null: perhaps one can.
const char* why_not_a_target(const Endpoint& endpoint);

}  // namespace pccl::core
