// Members of a ring that follow each other and share a host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace pccl::core {

// Consecutive positions, which may go past the last one of the ring.
struct HostSpan {
    std::uint32_t number = 0;  // among the hosts, in the order of their ends
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::uint32_t size = 0;
};

// The host of the member at `position`. `host_ends`: the positions of the last members of the hosts, ascending.
inline HostSpan host_of(std::uint32_t position, std::uint32_t world, std::span<const std::uint32_t> host_ends) {
    const auto found = std::lower_bound(host_ends.begin(), host_ends.end(), position);
    const auto end = found == host_ends.end() ? host_ends.begin() : found;
    const std::uint32_t before = end == host_ends.begin() ? host_ends.back() : *(end - 1);
    const std::uint32_t size = (*end + world - before) % world;
    return {static_cast<std::uint32_t>(end - host_ends.begin()), (before + 1) % world, *end, size == 0 ? world : size};
}

}  // namespace pccl::core
