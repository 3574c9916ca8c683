// The fault of a revoked certificate.
#include "core/base/format.hpp"
#include "harness/injector.hpp"

#include <algorithm>
#include <numeric>

namespace pccl::harness {

using namespace core;

namespace {

// Whoever is connected with the revoked peer closes the connection within this time and four times the longest way.
constexpr Duration closed_within = second;

Uuid name_of(sim::World& world, std::uint32_t node) {
    const sim::Driver* driver = world.driver(node);
    const PeerMachine* peer = driver == nullptr ? nullptr : driver->machine().peer();
    return peer == nullptr ? Uuid{} : peer->uuid();
}

}  // namespace

// A master that was overtaken by another one is asked by nobody.
bool Injector::revoke(const Fault& fault, std::uint64_t index) {
    const std::uint32_t node = peer_of(fault), master = world_.master();
    if (!world_.alive(node) || !world_.alive(master) || world_.paused(master)) return false;
    const Uuid peer = name_of(world_, node);
    if (peer.is_nil()) return false;
    world_.revoke(peer);
    revocations_.push_back({peer, node, world_.now(), {}});
    names_then_.clear();
    for (std::uint32_t other = 0; other < nodes(); ++other) names_then_.push_back(name_of(world_, other));
    told_.clear();
    // There is none while a master begins or ends.
    if (const MasterMachine* machine = world_.master_machine(); machine != nullptr) {
        for (const MasterStatus::Peer& known : machine->status().peers) told_.insert(known.uuid);
    }
    const sim::NetworkParameters& n = scenario_.world.network;
    Duration latency = n.latency_high;
    for (const Duration of_region : n.region_latency) latency = std::max(latency, of_region);
    world_.schedule_script(world_.now() + closed_within + 4 * (latency + latency * n.jitter_per_mille / 1000),
                           fault_goes_on, index);
    return true;
}

// Only if nothing else has happened, except that the revoked process itself stopped. A full path may hold up the message
// for longer.
void Injector::revoked_a_while_ago(std::uint64_t index) {
    const Fault& fault = faults_[index];
    const std::uint32_t node = peer_of(fault);
    if (revocations_.size() != 1 || !world_.network().delays().empty()) return;
    const std::uint64_t injected = std::accumulate(injected_.begin(), injected_.end(), std::uint64_t{0}) - 1;
    std::uint64_t others = injected;
    for (const Fault& other : faults_) {
        if (other.kind == FaultKind::pause && (other.b & 1) == 0 && other.a % nodes() == node && other.again == 0 &&
            progress_[index_of(other)].happened)
            --others;
    }
    // A process that stopped does not empty a window, and what was said to it before may fill a small one.
    if (injected != 0 && scenario_.world.network.window_low < 4'096) return;
    Ledger::Revocation& revoked = revocations_.front();
    if (others != 0 || !world_.alive(node) || name_of(world_, node) != revoked.peer) return;
    // Who is removed with the gang of the revoked one is not told who was revoked, and comes back under another name. A
    // dial that was on its way to the earlier name opens there, but it has no pass for the new name. It is closed when
    // it says hello, or when the time for that is over.
    const auto came_back = [&](std::uint32_t other) {
        return other < names_then_.size() && name_of(world_, other) != names_then_[other];
    };
    // Others may dial a process that stands still, perhaps under an earlier name of it. It has not heard of them, or not
    // what they said, and so has said nothing. They wait for that, and for no longer than a handshake takes. Or it had
    // dialled somebody whom the master did not know yet, and so told nothing, and has not said who it is.
    const bool stands_still = world_.paused(node);
    const sim::Network& network = world_.network();
    for (const std::uint32_t connection : network.established()) {
        for (const std::uint32_t side : {0u, 1u}) {
            const std::uint32_t other = network.peer_of(connection, side ^ 1);
            if (network.peer_of(connection, side) == node && network.open_end(connection, side ^ 1) &&
                world_.alive(other) && !world_.paused(other) && !came_back(other) &&
                !(stands_still && (side == 0 || !told_.contains(name_of(world_, other))) &&
                  !world_.driver(node)->has_spoken_on(connection)))
                revoked.open_to += formatted(" {}", sim::Trace::name(other));
        }
    }
}

void Injector::tell_of_revocations(Ledger& ledger) const { ledger.revocations = revocations_; }

}  // namespace pccl::harness
