// Which addresses one peer can give to another.
#pragma once

#include "core/base/ids.hpp"

namespace pccl::core {

bool is_loopback(const Endpoint& endpoint);

// Why nobody can connect to this address from elsewhere, as the end of a sentence; null: perhaps somebody can.
const char* why_not_a_target(const Endpoint& endpoint);

}  // namespace pccl::core
