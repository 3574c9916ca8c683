#include "core/base/format.hpp"
// Texts and counts for tables that should be empty but are not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>

namespace pccl::core {

inline std::string name_leftovers(std::initializer_list<std::pair<const char*, std::size_t>> tables) {
    std::string text;
    for (const auto& [name, size] : tables) {
        if (size == 0) continue;
        text += formatted("{}{} of {}", text.empty() ? "" : ", ", size, name);
    }
    return text;
}

// Counts the entries of a map with edges as keys that have an end for which `known` is false.
template <class Edges, class Known>
std::size_t count_strange(const Edges& edges, const Known& known) {
    return static_cast<std::size_t>(std::count_if(edges.begin(), edges.end(), [&](const auto& entry) {
        return !known(entry.first.first) || !known(entry.first.second);
    }));
}

}  // namespace pccl::core
