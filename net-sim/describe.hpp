// Events and effects as numbers (for the trace hash) and as one line of text (for people).
#pragma once

#include "core/events.hpp"

#include <cstdint>
#include <string>

namespace pccl::sim {

std::uint64_t fingerprint(const core::Event& event);
std::string to_text(const core::Event& event);
std::string to_text(const core::Effect& effect);
const char* to_text(core::Result result);

}  // namespace pccl::sim
