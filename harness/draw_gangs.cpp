// Gangs: peers that join and leave the run together.
#include "core/base/format.hpp"
#include "harness/draw_faults.hpp"
#include "harness/draw_units.hpp"
#include "harness/fault_refs.hpp"
#include "harness/settle.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;
using sim::mix;

namespace {

constexpr std::uint32_t gangs_per_million = 250'000;  // of scenarios that draw shapes

// A part of a gang is missing in a third of the scenarios. Two parts may look like a complete gang together.
void leave_places_out(Scenario& s, Draw& draw) {
    if (!draw.chance(350'000)) return;
    for (std::uint32_t i = draw.number(1, 2); i-- != 0 && s.peers.size() > 2;)
        s.peers.erase(s.peers.begin() + static_cast<std::ptrdiff_t>(draw.below(s.peers.size())));
}

// Peers that declare what does not fit: another size, a place or a name that others have, or a gang that cannot be.
void misdeclare(Scenario& s, Draw& draw) {
    PeerPlan& plan = s.peers[draw.below(s.peers.size())];
    const PeerPlan& other = s.peers[draw.below(s.peers.size())];
    switch (draw.below(6)) {
    case 0: ++plan.gang.size; break;
    case 1: plan.gang = other.gang; break;
    case 2: plan.gang.place = plan.gang.size; break;
    case 3:
    case 4: {  // two gangs of one name
        const std::string name = plan.gang.name;
        for (PeerPlan& each : s.peers) {
            if (!name.empty() && each.gang.name == name) each.gang.name = other.gang.name;
        }
        break;
    }
    default:
        if (!plan.gang.none()) plan.gang.name.resize(s.limits.gang_name_bytes_max + draw.number(0, 1), 'x');
    }
}

void kill_members(Scenario& s, Draw& draw) {
    for (std::uint32_t i = draw.number(1, 3); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::crash_peer;
        f.at = draw.between(0, s.chaos_end);
        f.a = draw.number(1, static_cast<std::uint32_t>(s.peers.size()));
        // Mostly it is started again, under the same name and at the same place; its host may fall silent meanwhile.
        f.value = (draw.chance(700'000) ? 2u : 0u) | (draw.chance(500'000) ? 1u : 0u);
        f.duration = draw.chance(500'000) ? draw.log_uniform(millisecond, 100 * millisecond)
                                          : draw.log_uniform(100 * millisecond, 2 * s.timeouts.peer);
        s.faults.push_back(f);
    }
}

// A gang is complete and waits for members that make no update for long. Then the master loses one of its peers.
void let_one_wait(Scenario& s, Draw& draw) {
    const std::string name = s.peers.back().gang.name;
    if (name == s.peers.front().gang.name) return;
    s.workload.compute_max = std::max(s.workload.compute_max, draw.log_uniform(300 * millisecond, 3 * second));
    const Instant begin = draw.log_uniform(50 * millisecond, 500 * millisecond);
    const Duration patience = draw.log_uniform(20 * millisecond, 300 * millisecond);
    for (std::uint32_t node = 1; node <= s.peers.size(); ++node) {
        PeerPlan& plan = s.peers[node - 1];
        if (plan.gang.name != name) {
            plan.start = std::min(plan.start, begin / 4);
            continue;
        }
        plan.start = begin + draw.below(patience / 2);
        plan.gang_patience = patience;
        if (!draw.chance(500'000)) continue;
        Fault f;
        f.a = node;
        f.at = begin + patience + draw.log_uniform(millisecond, 400 * millisecond);
        if (draw.chance(400'000)) {
            f.kind = FaultKind::reset;
            f.b = aim_control | aim_named;
        } else {
            f.kind = FaultKind::crash_peer;
            f.value = 3;
            f.duration = draw.log_uniform(100 * millisecond, 2 * second);
        }
        s.faults.push_back(f);
    }
}

// All processes of a gang die at once and silently, and are started again before the master knows it. Some masters sleep
// shortly after that.
void restart_gang(Scenario& s, Draw& draw) {
    const std::string name = s.peers[draw.below(s.peers.size())].gang.name;
    const Instant at = draw.between(0, s.chaos_end);
    for (std::uint32_t node = 1; node <= s.peers.size(); ++node) {
        if (s.peers[node - 1].gang.name != name) continue;
        Fault f;
        f.kind = FaultKind::crash_peer;
        f.at = at + draw.log_uniform(microsecond, 10 * millisecond);
        f.a = node;
        f.value = 2;
        f.duration = draw.log_uniform(millisecond, s.timeouts.peer / 2);
        s.faults.push_back(f);
    }
    Draw sleeps(mix(s.seed, 319));
    if (!sleeps.chance(400'000)) return;
    Fault f;
    f.kind = FaultKind::pause;
    f.at = at + sleeps.log_uniform(10 * millisecond, s.timeouts.peer / 2 + 100 * millisecond);
    f.duration = sleeps.between(s.timeouts.peer / 2, 2 * s.timeouts.peer);
    s.faults.push_back(f);
    s.chaos_end = std::max(s.chaos_end, f.at + f.duration);
}

}  // namespace

void draw_gangs(Scenario& s, const GeneratorOptions& options, std::uint32_t on) {
    Draw draw(mix(s.seed, 310));
    const bool fits = s.core.empty() && !s.even && !s.world.symbolic && s.world.network.regions.empty() &&
                      s.peers.size() <= 9 && !is_huge(s) && !only_impairs_edges(s) && s.workload.visit_per_mille == 0;
    const bool drawn = (on & class_shape) && draw.chance(gangs_per_million);
    if (!(drawn || (on & class_gangs)) || !fits || options.peers_max < 3) return;
    const std::uint32_t size = draw.chance(700'000) ? 2 : draw.number(1, 4);
    const std::uint32_t most = std::min(options.peers_max, 9u);
    const std::uint32_t gangs = std::max(std::min(draw.number(1, 3), most / size), 1u);
    const std::uint32_t singles = std::min(draw.chance(400'000) ? draw.number(1, 2) : 0u, most - gangs * size);
    const bool one_group = draw.chance(200'000);
    const bool all_rejoin = draw.chance(700'000);
    const bool patient = draw.chance(600'000);
    // So that a gang which is complete may wait for longer than its patience before it is admitted.
    const bool hasty = Draw(mix(s.seed, 317)).chance(500'000);
    while (s.peers.size() < gangs * size + singles) s.peers.push_back(PeerPlan(s.peers.back()));
    s.peers.resize(gangs * size + singles);
    for (std::uint32_t i = 0; i < gangs * size; ++i) {
        PeerPlan& plan = s.peers[i];
        plan.gang = {formatted("g{}", i / size), size, i % size};
        plan.group = one_group ? 0 : i % size;
        plan.turns = s.peers[i - i % size].turns;
        plan.rejoins = plan.rejoins || all_rejoin;
        if (!patient) plan.gang_patience = draw.log_uniform(hasty ? 5 * millisecond : 200 * millisecond, 5 * second);
        if (draw.chance(150'000)) plan.start = draw.log_uniform(millisecond, 3 * second);
    }
    leave_places_out(s, draw);
    if (draw.chance(200'000)) misdeclare(s, draw);
    if (draw.chance(300'000)) s.workload.gang_wait_max = draw.log_uniform(100 * millisecond, 10 * second);
    if ((on & class_crash) || draw.chance(500'000)) kill_members(s, draw);
    if (draw.chance(200'000)) restart_gang(s, draw);
    if (Draw waits(mix(s.seed, 318)); waits.chance(150'000)) let_one_wait(s, waits);
    sort_by_time(s.faults);
    Limits& l = s.limits;
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    l.removed_kept = std::max(l.removed_kept, peers);  // one that comes back learns why it was removed
    s.chaos_end = std::max(s.chaos_end, busy_time(s));
    if (!(on & class_limits)) return;
    if (draw.chance(100'000)) l.gang_waiting_max = draw.number(1, 4);
    if (draw.chance(100'000)) l.gang_size_max = draw.number(1, 4);
    if (draw.chance(100'000)) l.gang_name_bytes_max = draw.number(1, 16);
}

}  // namespace pccl::harness
