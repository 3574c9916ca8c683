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

// Returns why no other host can connect to this address, as the end of a sentence. Null: perhaps one can.
const char* why_not_a_target(const Endpoint& endpoint);

}  // namespace pccl::core
