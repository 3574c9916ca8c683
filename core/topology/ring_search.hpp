// Finds a ring that uses only edges that may work.
#pragma once

#include "core/base/ids.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace pccl::core {

// Finds a cycle through all `nodes` nodes, from node 0 on, along edges for which `allowed` is true. It is as close to
// the order of their numbers as a bounded search finds. Returns nothing if no cycle exists, or if the search found none
// within its budget of steps.
std::optional<std::vector<std::size_t>> find_ring(std::size_t nodes,
                                                  const std::function<bool(std::size_t, std::size_t)>& allowed);

// The same for the peers in `order`, without edges for which `forbidden` is true. One peer alone is a ring.
template <class Forbidden>
std::optional<std::vector<Uuid>> choose_ring(const std::vector<Uuid>& order, const Forbidden& forbidden) {
    const auto found =
        find_ring(order.size(), [&](std::size_t from, std::size_t to) { return !forbidden(order[from], order[to]); });
    if (!found) return std::nullopt;
    std::vector<Uuid> ring;
    for (const std::size_t at : *found) ring.push_back(order[at]);
    return ring;
}

}  // namespace pccl::core
