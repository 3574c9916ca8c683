#include "harness/vote_warnings.hpp"

#include "core/base/format.hpp"
#include "harness/facts.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace pccl::harness {

using namespace core;

VoteWarnings::VoteWarnings(sim::World& world, const Scenario& scenario, const Ledger& ledger)
    : world_(world), ledger_(ledger) {
    // Two masters warn of the same vote. A clock that jumps makes a vote look old. With threads, a call may wait for
    // another one of its program. A liar votes for what its program does not call.
    listens_ = scenario.workload.beside == 0 && !has_liars(scenario) &&
               std::none_of(scenario.faults.begin(), scenario.faults.end(), [](const Fault& fault) {
                   return fault.kind == FaultKind::two_masters || fault.kind == FaultKind::clock_jump;
               });
    const sim::NetworkParameters& n = scenario.world.network;
    unseen_ = 2 * second + 8 * (n.latency_high * (1000 + n.jitter_per_mille) / 1000 + scenario.world.timer_late_max) +
              4 * scenario.world.disk_high;
    if (n.rate_low < 100'000 || n.flow_rate != 0 || n.tail_per_million != 0) unseen_ += 30 * second;
    master_began();
}

void VoteWarnings::logged(const std::string& text, Instant disturbed_at) {
    if (!listens_ || !text.starts_with("vote '")) return;
    // At any time there is at most one vote of each of these kinds.
    static constexpr std::array<std::pair<std::string_view, CallKind>, 3> kinds{
        {{"vote 'update topology' has waited ", CallKind::update_topology},
         {"vote 'are peers pending' has waited ", CallKind::are_peers_pending},
         {"vote 'optimize topology' has waited ", CallKind::optimize}}};
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        const auto& [begin, kind] = kinds[i];
        if (!text.starts_with(begin)) continue;
        // A clock may be wrong by a thousandth.
        const Duration waited = std::strtoll(text.c_str() + begin.size(), nullptr, 10) * second / 1000 * 998;
        if (warned_[i] != never && warned_[i] > world_.now() - waited)
            return world_.violate("bounded", "the master warned of the same vote a second time: " + text);
        warned_[i] = world_.now();
        if (disturbed_at > world_.now()) look_at_named(text, kind);
    }
}

// No named member may have been in this call for long.
void VoteWarnings::look_at_named(const std::string& text, CallKind kind) {
    for (const VoteFact& fact : ledger_.votes) {
        const Life& life = ledger_.lives[fact.life];
        if (fact.kind != kind || fact.answered != open_end || fact.end != open_end || life.gone_at != open_end ||
            life.lost || life.peer.is_nil() || fact.begin > world_.now() - unseen_)
            continue;
        if (text.find(short_name(life.peer) + " (") != std::string::npos)
            return world_.violate("bounded", formatted("the master waits for {}, which is in this call since {} ms: {}",
                                                       ledger_.name(fact.life), fact.begin / millisecond, text));
    }
}

}  // namespace pccl::harness
