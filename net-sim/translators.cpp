#include "net-sim/translators.hpp"

#include "core/base/assert.hpp"
#include "net-sim/draw.hpp"
#include "net-sim/network.hpp"

#include <algorithm>

namespace pccl::sim {

namespace {
constexpr std::uint32_t first_name = 0x4000, sites = 0x1000;
constexpr Duration idle_longest = 60 * core::second;
}  // namespace

void Translators::put_behind(std::uint32_t node, Translator kind, std::uint32_t site, std::uint32_t lan) {
    ASSERT(site < sites && node != 0);
    places_.at(node) = Place{kind, site, lan};
}

Endpoint Translators::forward(std::uint32_t node, std::uint16_t port) {
    ASSERT(behind(node));
    const auto known = std::ranges::find_if(mappings_, [&](const auto& entry) {
        return entry.second.node == node && entry.second.port == port && entry.second.forwarded;
    });
    if (known != mappings_.end()) return outer(places_[node].site, known->first.second);
    const std::uint16_t out = outer_port(node, port);
    Mapping& mapping = mappings_[{places_[node].site, out}];
    mapping.node = node;
    mapping.port = port;
    mapping.forwarded = true;
    return outer(places_[node].site, out);
}

Endpoint Translators::outer(std::uint32_t site, std::uint16_t port) { return endpoint_of(first_name + site, port); }

bool Translators::is_outer(const Endpoint& target) {
    const std::uint32_t name = node_of(target);
    return name >= first_name && name < first_name + sites;
}

// A port that another node of the site uses already is not kept.
std::uint16_t Translators::outer_port(std::uint32_t node, std::uint16_t port) {
    const Place& place = places_[node];
    const auto usable = [&](std::uint16_t candidate) {
        const auto known = mappings_.find({place.site, candidate});
        return known == mappings_.end() || (place.kind != Translator::symmetric && known->second.node == node &&
                                            known->second.port == port);
    };
    std::uint64_t draw = place.kind == Translator::symmetric ? mix(mix(node, port), ++dials_) : 0;
    for (;;) {
        const auto candidate = draw == 0 ? port : static_cast<std::uint16_t>(1024 + draw % 60'000);
        if (usable(candidate)) return candidate;
        draw = mix(mix(node, port), draw + 1) | 1;
    }
}

Endpoint Translators::dials(std::uint32_t node, const Endpoint& own, const Endpoint& target, Instant now) {
    if (!behind(node)) return own;
    const std::uint32_t to = node_of(target);
    if (!is_outer(target) && behind(to) && in_one_network(node, to)) return own;
    const std::uint16_t port = outer_port(node, own.port);
    Mapping& mapping = mappings_[{places_[node].site, port}];
    mapping.node = node;
    mapping.port = own.port;
    mapping.dialled[target] = now;
    return outer(places_[node].site, port);
}

std::optional<std::pair<std::uint32_t, std::uint16_t>> Translators::inward(const Endpoint& source,
                                                                           const Endpoint& target, Instant now) const {
    const std::uint32_t site = node_of(target) - first_name;
    const auto mapping = mappings_.find({site, target.port});
    if (mapping == mappings_.end()) return std::nullopt;
    const auto& [node, port, always, dialled] = mapping->second;
    if (is_outer(source) && node_of(source) == node_of(target)) {
        const auto from = mappings_.find({site, source.port});
        if (from == mappings_.end() || in_one_network(from->second.node, node)) return std::nullopt;
    }
    const bool forwarded = always || (places_[node].kind == Translator::open && port == listen_port);
    const auto at = dialled.find(source);
    if (!forwarded && (at == dialled.end() || now - at->second > idle_longest)) return std::nullopt;
    return std::pair{node, port};
}

std::uint32_t Translators::any_node_of(const Endpoint& target) const {
    const std::uint32_t site = node_of(target) - first_name;
    for (std::uint32_t node = 0; node < places_.size(); ++node) {
        if (places_[node].kind != Translator::none && places_[node].site == site) return node;
    }
    return no_node;
}

bool Translators::in_one_network(std::uint32_t from, std::uint32_t to) const {
    if (!behind(from) || !behind(to)) return !behind(to);
    return places_[from].site == places_[to].site && places_[from].lan == places_[to].lan;
}

}  // namespace pccl::sim
