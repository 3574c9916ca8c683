// Texts with values in them: formatted("peer {} has {} tags", name, count). The syntax is that of {fmt}, checked by the
// compiler. All code of {fmt} is in format.cpp.
#pragma once

#include <fmt/core.h>
#include <string>

namespace pccl::core {

std::string format_arguments(fmt::string_view text, fmt::format_args arguments);

template <class... Arguments>
std::string formatted(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    return format_arguments(text, fmt::make_format_args(arguments...));
}

}  // namespace pccl::core
