// Names of tables that ought to be empty and are not.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

namespace pccl::core {

inline std::string name_leftovers(std::initializer_list<std::pair<const char*, std::size_t>> tables) {
    std::string text;
    for (const auto& [name, size] : tables) {
        if (size == 0) continue;
        text += (text.empty() ? "" : ", ") + std::to_string(size) + " of " + name;
    }
    return text;
}

}  // namespace pccl::core
