// Address translators (NAT) between nodes and the rest of the network.
//
// A site is a private network behind one translator. Its nodes reach each other at their own addresses; other nodes see
// only the address of the translator. It leads no connection of the site back into it. A dial from inside gets an outer
// port, and lets connections in that come from its target to this port, until it is idle for too long.
//
// A site may have several networks, as behind the translator of a provider. Their nodes do not reach each other at
// their own addresses, and the translator leads their connections back in.
//
// The network asks where a dial comes from and whom it reaches. Established connections pass as long as they live.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace pccl::sim {

using core::Duration;
using core::Endpoint;
using core::Instant;

enum class Translator : std::uint8_t {
    none,
    open,      // forwards the listener's port to the node; keeps ports
    cone,      // keeps ports; lets in what comes from an address and port that was dialled from this port
    symmetric  // the same, with another outer port for each dial
};

class Translators {
public:
    void start(std::uint32_t nodes) { places_.assign(nodes, Place{}); }
    // `site`: at most 4095. `lan`: its network there.
    void put_behind(std::uint32_t node, Translator kind, std::uint32_t site, std::uint32_t lan = 0);
    // Leads everybody in who dials the returned address: to this port of the node.
    Endpoint forward(std::uint32_t node, std::uint16_t port);
    bool behind(std::uint32_t node) const {
        return node < places_.size() && places_[node].kind != Translator::none;
    }
    // The node dials from this local port. Returns the address that the target sees. `own`: the address in its network.
    Endpoint dials(std::uint32_t node, const Endpoint& own, const Endpoint& target, Instant now);
    // True: the address is a translator's.
    static bool is_outer(const Endpoint& target);
    // Which node a dial to a translator reaches, and at which of its ports; none: it gets no answer.
    std::optional<std::pair<std::uint32_t, std::uint16_t>> inward(const Endpoint& source, const Endpoint& target,
                                                                  Instant now) const;
    // A node of the site, for the way to it.
    std::uint32_t any_node_of(const Endpoint& target) const;
    // Whether a dial to the own address of `to` gets there.
    bool in_one_network(std::uint32_t from, std::uint32_t to) const;

private:
    struct Place {
        Translator kind = Translator::none;
        std::uint32_t site = 0;
        std::uint32_t lan = 0;
    };
    struct Mapping {
        std::uint32_t node = 0;
        std::uint16_t port = 0;               // of the node
        bool forwarded = false;
        std::map<Endpoint, Instant> dialled;  // and when last
    };

    static Endpoint outer(std::uint32_t site, std::uint16_t port);
    std::uint16_t outer_port(std::uint32_t node, std::uint16_t port);

    std::vector<Place> places_;  // by node
    std::map<std::pair<std::uint32_t, std::uint16_t>, Mapping> mappings_;  // by site and outer port
    std::uint64_t dials_ = 0;
};

}  // namespace pccl::sim
