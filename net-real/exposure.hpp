// Whether strangers can reach a listener.
#pragma once

#include "core/base/ids.hpp"

#include <optional>
#include <vector>

namespace pccl::real {

// False for loopback, link-local and private addresses (RFC 1918, fc00::/7), those that no router of the
// internet forwards (RFC 6598, RFC 5737, RFC 3849), and the unspecified one.
bool is_public(const core::Endpoint& endpoint);
// RFC 1918, fc00::/7, and the addresses between a provider and its customers (RFC 6598).
bool is_private(const core::Endpoint& endpoint);
// A public address of this host at which a listener on `local` can be reached. `local` none or unspecified: every
// address of the host counts. If the system does not tell its addresses, `local` itself.
std::optional<core::Endpoint> public_address_of(const std::optional<core::Endpoint>& local);
// The address of this host that others most likely reach: a public one, else a private one, else loopback. IPv4 first.
core::Endpoint address_for_others();

}  // namespace pccl::real
