// Events and effects as numbers (for the trace hash) and as one line of text (for people).
#pragma once

#include "core/events.hpp"

#include <cstdint>
#include <string>
#include <variant>

namespace pccl::sim {

std::uint64_t fingerprint(const core::Event& event);
std::string to_text(const core::Event& event);
std::string to_text(const core::Effect& effect);
const char* to_text(core::Result result);

inline constexpr std::size_t effect_kinds = std::variant_size_v<core::Effect>;
const char* effect_name(std::size_t index);  // short, for scenarios and statistics

}  // namespace pccl::sim
