// Which addresses one peer can give to another.
#pragma once

#include "core/base/ids.hpp"

namespace pccl::core {

bool is_loopback(const Endpoint& endpoint);
bool is_link_local(const Endpoint& endpoint);

// The address means another host to each host that dials it, or to each network.
inline bool is_confined(const Endpoint& endpoint) { return is_loopback(endpoint) || is_link_local(endpoint); }

// A confined address may only be given to peers that are themselves reached at one of the same kind. Otherwise whoever
// advertises it makes them dial services of their own host or network.
inline bool may_dial(const Endpoint& dialler, const Endpoint& target) {
    return is_loopback(target) ? is_loopback(dialler) : !is_link_local(target) || is_link_local(dialler);
}

// Why nobody can connect to this address from elsewhere, as the end of a sentence; null: perhaps somebody can.
const char* why_not_a_target(const Endpoint& endpoint);

}  // namespace pccl::core
