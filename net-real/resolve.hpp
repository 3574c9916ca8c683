// Addresses as people write them: numeric, or a name that the system resolves within a bounded time.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pccl::real {

inline constexpr core::Duration resolve_time = 5 * core::second;

// "HOST", "HOST:PORT", "V6" or "[V6]:PORT"; HOST is an IPv4 address or a name. Without a port `default_port` is used.
// Gives all addresses of a name, at most 16, in the system's order; try them in this order. Blocks only for a name, and
// at most for `limit`; a look-up that takes longer is abandoned. False: `error` names the text, the cause and the
// remedy. Thread-safe.
bool resolve(std::string_view text, std::uint16_t default_port, std::vector<core::Endpoint>& endpoints,
             std::string& error, core::Duration limit = resolve_time);

}  // namespace pccl::real
