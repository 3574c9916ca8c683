// Who gives way when too many connections have not said who they are.
//
// A listening port is open to everybody, so connections that say nothing must not keep others out. They are bounded, and a
// new one takes the place of an old one: of the address that holds the most, the oldest. So whoever opens many connections
// loses its own. A part of the room is kept for addresses at which peers of the run are.
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace pccl::core {

struct WaitingLink {
    LinkId link = 0;
    Endpoint remote;
    Instant opened = 0;
    bool known = false;  // it comes from an address of a peer of the run
};

inline bool same_host(const Endpoint& a, const Endpoint& b) { return a.is_v6 == b.is_v6 && a.address == b.address; }

// The link to close before one more is taken, 0 when there is room. `known`: of the one that comes.
inline LinkId who_gives_way(const std::vector<WaitingLink>& waiting, bool known, std::size_t room) {
    const std::size_t kept = std::max<std::size_t>(room / 4, 1);
    const std::size_t limit = known ? kept : std::max<std::size_t>(room - std::min(kept, room), 1);
    // A host has all addresses of its network of 64 bits.
    const auto host = [](const Endpoint& remote) {
        std::array<std::uint8_t, 16> address = remote.address;
        if (remote.is_v6) std::fill(address.begin() + 8, address.end(), std::uint8_t{0});
        return std::pair(remote.is_v6, address);
    };
    std::map<std::pair<bool, std::array<std::uint8_t, 16>>, std::size_t> of_host;
    std::size_t count = 0;
    for (const WaitingLink& link : waiting) {
        if (link.known != known) continue;
        ++count;
        ++of_host[host(link.remote)];
    }
    if (count < limit) return 0;
    const WaitingLink* chosen = nullptr;
    const auto weight = [&](const WaitingLink& link) { return of_host.at(host(link.remote)); };
    for (const WaitingLink& link : waiting) {
        if (link.known != known) continue;
        if (chosen == nullptr || weight(link) > weight(*chosen) ||
            (weight(link) == weight(*chosen) && link.opened < chosen->opened))
            chosen = &link;
    }
    return chosen->link;
}

}  // namespace pccl::core
