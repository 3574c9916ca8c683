// Members that share hosts.
#include "harness/draw_faults.hpp"
#include "harness/settle.hpp"

#include <algorithm>

namespace pccl::harness {

using core::Limits;
using sim::Draw;
using sim::mix;

namespace {
constexpr std::uint64_t hosts_per_million = 120'000;
}  // namespace

void draw_hosts(Scenario& s, std::uint32_t on) {
    Draw draw(mix(s.seed, 320));
    const bool drawn = (on & class_shape) && draw.chance(only_impairs_edges(s) ? 400'000 : hosts_per_million);
    if (!(drawn || (on & class_hosts)) || s.peers.size() < 3) return;
    const std::uint32_t hosts =
        draw.number(1, std::min<std::uint32_t>(static_cast<std::uint32_t>(s.peers.size()) - 1, 4));
    // Peers of one host start one after another, or as they come.
    const bool apart = draw.chance(600'000);
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    for (std::uint32_t i = 0; i < peers; ++i) {
        s.peers[i].host = apart ? draw.number(1, hosts) : 1 + i * hosts / peers;
        if (apart && i < hosts) s.peers[i].host = 1 + i;
    }
    // The two ends of an edge on which bytes are lost share a host.
    Draw within(mix(s.seed, 321));
    // A gang may have taken the place of more peers, so the numbers wrap around, as they do in the injector.
    const auto peer = [&](std::uint32_t number) -> PeerPlan& { return s.peers[(number - 1) % peers]; };
    for (const Fault& fault : s.faults) {
        if (impairs_an_edge(fault.kind) && within.chance(500'000)) peer(fault.b).host = peer(fault.a).host;
    }
    // One that does not know its host.
    if (draw.chance(100'000)) s.peers[draw.below(peers)].host = 0;
    // Only all-reduces that might be cut into unequal parts are hierarchical.
    if (draw.chance(850'000)) {
        Limits& l = s.limits;
        l.unequal_parts_bytes_min =
            std::min(l.unequal_parts_bytes_min, static_cast<std::uint64_t>(draw.log_uniform(1, 512)));
        if (draw.chance(500'000)) l.vote_input_bytes_max = std::min(l.vote_input_bytes_max, draw.number(0, 64));
    }
}

}  // namespace pccl::harness
