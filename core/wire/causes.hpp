// Causes as they are in messages and records.
#pragma once

#include "core/base/cause.hpp"
#include "core/wire/control.pb.h"

#include <cstddef>

namespace pccl::core {

void write(const Cause& cause, proto::Cause& to);

// Never fails and is never empty: what the other end left out, wrote in another way, or wrote in a version that this one
// does not know, is of the kind `unknown`.
Cause cause_of(const proto::Cause& from);

namespace wire {

// Cuts the texts of a cause and of those behind it to `bytes_max` bytes together (see bound_text).
void bound_cause(proto::Cause& cause, std::size_t bytes_max);

}  // namespace wire

}  // namespace pccl::core
