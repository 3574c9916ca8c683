// Names of tables that ought to be empty and are not.
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
        text += (text.empty() ? "" : ", ") + std::to_string(size) + " of " + name;
    }
    return text;
}

// Entries of a map from edges of which an end is nobody that `known` knows.
template <class Edges, class Known>
std::size_t count_strange(const Edges& edges, const Known& known) {
    return static_cast<std::size_t>(std::count_if(edges.begin(), edges.end(), [&](const auto& entry) {
        return !known(entry.first.first) || !known(entry.first.second);
    }));
}

}  // namespace pccl::core
