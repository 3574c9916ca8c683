// Which connection gives way when too many have not sent a hello yet.
//
// A listening port is open to everybody, so connections that send nothing must not keep others out. Their number is limited,
// and a part of the room is kept for addresses at which peers of the run are.
//
// A host that holds more connections than the new one's host loses its oldest one at once: a flood pushes out only itself.
// Otherwise a connection keeps its place for `patience`, which exceeds a round trip. With a shorter time, a crowd that dials
// together over a long path would push out each connection just before its hello arrives, and nobody would get in.
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

struct Place {
    bool free = true;      // false: the caller closes the new connection; its peer dials again later
    LinkId gives_way = 0;  // the connection to close for it; 0: none
};

// `members`: how many peers of the run may dial together, for example after a restart of the master.
struct Room {
    std::size_t places = 0;
    std::size_t members = 0;
    Duration patience = 0;
};

// `known`: whether the new connection comes from an address of a peer of the run.
inline Place place_for(const Endpoint& remote, bool known, const std::vector<WaitingLink>& waiting, const Room& room,
                       Instant now) {
    const std::size_t kept = std::max<std::size_t>(room.places / 4, 1);
    const std::size_t limit =
        known ? std::max(kept, room.members) : std::max<std::size_t>(room.places - std::min(kept, room.places), 1);
    // A host may use all addresses of its IPv6 network of 64 bits, so they count as one host.
    const auto host = [](const Endpoint& end) {
        std::array<std::uint8_t, 16> address = end.address;
        if (end.is_v6) std::fill(address.begin() + 8, address.end(), std::uint8_t{0});
        return std::pair(end.is_v6, address);
    };
    std::map<std::pair<bool, std::array<std::uint8_t, 16>>, std::size_t> of_host;
    std::size_t count = 0;
    for (const WaitingLink& link : waiting) {
        if (link.known != known) continue;
        ++count;
        ++of_host[host(link.remote)];
    }
    if (count < limit) return {};
    const auto weight = [&](const WaitingLink& link) { return of_host.at(host(link.remote)); };
    const WaitingLink* heaviest = nullptr;  // the oldest of the host with the most
    const WaitingLink* oldest = nullptr;
    for (const WaitingLink& link : waiting) {
        if (link.known != known) continue;
        if (oldest == nullptr || link.opened < oldest->opened) oldest = &link;
        if (heaviest == nullptr || weight(link) > weight(*heaviest) ||
            (weight(link) == weight(*heaviest) && link.opened < heaviest->opened))
            heaviest = &link;
    }
    if (weight(*heaviest) > of_host[host(remote)] + 1) return {true, heaviest->link};
    if (now - oldest->opened >= room.patience) return {true, oldest->link};
    return {false, 0};
}

}  // namespace pccl::core
