// Draws second faults: those that begin some milliseconds after another fault or a phase of the protocol, and those
// that repeat.
#include "harness/draw_faults.hpp"
#include "harness/fault_refs.hpp"
#include "harness/settle.hpp"
#include "harness/triggers.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;
using sim::mix;

namespace {

constexpr std::uint32_t followed_per_million = 250'000;
constexpr std::uint32_t end_of_grace_per_million = 80'000;
constexpr std::uint32_t flap_per_million = 40'000;
constexpr std::uint32_t stutter_per_million = 40'000;
constexpr std::uint32_t jump_per_million = 60'000;

// One of the protocol's own waiting times.
Duration protocol_time(const Scenario& s, Draw& draw) {
    const Timeouts& t = s.timeouts;
    const Duration times[] = {t.peer,       t.grace(),      t.grace() - t.peer, t.handshake, t.redial_min,
                              t.redial_max, t.peer * 4 / 5, t.peer / 5,         t.dial,      t.tick()};
    return times[draw.below(std::size(times))];
}

// The delay after the first fault, or after the phase.
Duration gap(const Scenario& s, Draw& draw) {
    if (draw.chance(150'000)) return draw.log_uniform(50 * millisecond, s.timeouts.peer);
    if (!draw.chance(180'000)) return draw.log_uniform(2 * millisecond, 50 * millisecond);
    const Duration aside = draw.log_uniform(millisecond, 60 * millisecond);
    return std::max<Duration>(protocol_time(s, draw) + (draw.chance(500'000) ? aside : -aside), 0);
}

FaultClass class_of(FaultKind kind) {
    switch (kind) {
    case FaultKind::crash_peer:
    case FaultKind::aimed_peer: return class_crash;
    case FaultKind::crash_master:
    case FaultKind::aimed_master: return class_master;
    case FaultKind::pause: return class_pause;
    case FaultKind::cut_pair: return class_partition;
    case FaultKind::clock_jump: return class_clock;
    default: return class_connection;
    }
}

// A second fault, mostly of a kind that breaks error handling at the node where something has just happened.
Fault second_fault(const Scenario& s, Draw& draw) {
    static constexpr FaultKind kinds[] = {FaultKind::crash_peer,   FaultKind::crash_peer,   FaultKind::crash_peer,
                                          FaultKind::reset,        FaultKind::reset,        FaultKind::reset,
                                          FaultKind::reset,        FaultKind::pause,        FaultKind::pause,
                                          FaultKind::half_open,    FaultKind::half_open,    FaultKind::cut_pair,
                                          FaultKind::stall,        FaultKind::stall,        FaultKind::crash_master,
                                          FaultKind::crash_master, FaultKind::crash_master, FaultKind::aimed_peer,
                                          FaultKind::aimed_master, FaultKind::end_early,    FaultKind::clock_jump};
    Fault f;
    f.kind = kinds[draw.below(std::size(kinds))];
    f.a = draw.number(0, static_cast<std::uint32_t>(s.peers.size()));
    f.b = draw.number(0, static_cast<std::uint32_t>(s.peers.size()));
    f.value = draw.bits();
    f.duration = draw.log_uniform(millisecond, 3 * second);
    const std::uint64_t place = draw.below(10);
    f.place = place < 5 ? FaultPlace::here : place < 8 ? FaultPlace::there : FaultPlace::named;
    if (chooses_a_connection(f.kind)) f.b = draw.chance(600'000) ? std::uint32_t{aim_control} : 0;
    if (f.kind == FaultKind::pause) f.b = 0;
    if (f.kind == FaultKind::pause && draw.chance(300'000))
        f.duration = draw.between(s.timeouts.peer / 4, 2 * s.timeouts.peer);
    if (f.kind == FaultKind::clock_jump) f.duration = draw.log_uniform(10 * millisecond, 30 * second);
    if (f.kind == FaultKind::aimed_peer || f.kind == FaultKind::aimed_master)
        f.b = static_cast<std::uint32_t>(draw.log_uniform(1, 8));
    // A cut pair needs two different nodes. Both may be peers.
    if (f.kind == FaultKind::cut_pair && f.a == f.b) f.b = (f.a + 1) % static_cast<std::uint32_t>(s.peers.size() + 1);
    return f;
}

void tie_to_phase(Fault& f, const Scenario& s, Draw& draw) {
    const auto phase = static_cast<Phase>(draw.below(static_cast<std::uint64_t>(Phase::count)));
    const bool rare = phase >= Phase::list_request || phase == Phase::refusal || phase == Phase::resume ||
                      phase == Phase::takes_up || phase == Phase::edge_lost;
    f.trigger = trigger_of(phase);
    f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, rare ? 3 : 30));
    // Or to any marked state of the protocol. About a third of them are reached in a run.
    if (draw.chance(350'000)) {
        f.trigger = trigger_of(static_cast<Probe>(draw.below(probe_count)));
        f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, 8));
    }
    f.at = draw.chance(350'000)   ? 0
           : draw.chance(500'000) ? draw.log_uniform(10 * microsecond, 2 * s.world.network.latency_high)
                                  : gap(s, draw);
}

// The master restarts and one member does not come back. Near the end of the grace, another member loses its link or
// pauses once more.
void draw_end_of_grace(Scenario& s, Draw& draw) {
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    Fault death;
    death.kind = FaultKind::crash_master;
    death.at = draw.between(0, std::min(s.chaos_end, busy_time(s)));
    death.duration = draw.log_uniform(millisecond, 300 * millisecond);
    death.value = draw.bits();
    s.faults.push_back(death);
    const auto master = static_cast<std::uint32_t>(s.faults.size());
    Fault f;
    f.kind = FaultKind::crash_peer;
    f.follows = master;
    f.at = draw.log_uniform(millisecond, 30 * millisecond);
    f.a = draw.number(1, peers);
    f.value = draw.bits();
    f.duration = draw.log_uniform(second, 40 * second);
    s.faults.push_back(f);
    f.kind = draw.chance(700'000) ? FaultKind::reset : FaultKind::pause;
    f.behind_its_end = true;
    f.at = s.timeouts.grace() + draw.between(-60 * millisecond, s.timeouts.tick());
    if (f.kind == FaultKind::reset && draw.chance(500'000)) {
        f.again = draw.number(1, 8);
        f.every = draw.log_uniform(5 * millisecond, 40 * millisecond);
    }
    f.a = 1 + f.a % peers;
    f.b = f.kind == FaultKind::reset ? std::uint32_t{aim_control | aim_named} : 0;
    f.duration = draw.log_uniform(millisecond, s.timeouts.peer);
    s.faults.push_back(f);
    s.chaos_end = std::max(s.chaos_end, death.at + death.duration + f.at + second);
}

}  // namespace

void draw_followers(Scenario& s, std::uint32_t allowed) {
    if (s.faults.empty()) return;
    Draw draw(mix(s.seed, 190));
    // Adds nothing to scenarios with short waits, in which one cause must explain everything that happens: those with
    // impaired edges only, or with a short limit on votes.
    if (only_impairs_edges(s) || (s.timeouts.vote != 0 && s.timeouts.vote < usual_vote_limit(s))) return;
    if (draw.chance(followed_per_million)) {
        if (s.peers.size() > 1 && (allowed & class_master) != 0 && (allowed & class_crash) != 0 &&
            draw.chance(end_of_grace_per_million))
            return draw_end_of_grace(s, draw);
        const std::size_t first_ones = s.faults.size();
        for (std::uint32_t i = draw.number(1, 3); i-- != 0;) {
            Fault f = second_fault(s, draw);
            if ((class_of(f.kind) & allowed) == 0) continue;
            if (draw.chance(550'000)) {
                // Mostly after one of the first faults; now and then a third fault after a second one.
                const bool third = s.faults.size() > first_ones && draw.chance(400'000);
                f.follows = third ? static_cast<std::uint32_t>(s.faults.size())
                                  : static_cast<std::uint32_t>(draw.below(first_ones)) + 1;
                f.behind_its_end = draw.chance(300'000);
                f.at = gap(s, draw);
            } else {
                tie_to_phase(f, s, draw);
            }
            s.faults.push_back(f);
        }
    }
}

void draw_repeated(Scenario& s, std::uint32_t on) {
    Draw draw(mix(s.seed, 191));
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    if (s.faults.empty() || only_impairs_edges(s) || (s.timeouts.vote != 0 && s.timeouts.vote < usual_vote_limit(s)))
        return;
    if ((on & class_connection) && draw.chance(flap_per_million)) {
        Fault f;
        f.at = draw.between(0, s.chaos_end);
        f.a = draw.number(1, peers);
        // A link to the master or to another peer breaks again and again, by bytes or by the clock.
        if (draw.chance(500'000)) {
            f.kind = FaultKind::flap;
            f.b = draw.chance(600'000) ? 0 : draw.number(0, peers);
            f.value = static_cast<std::uint64_t>(draw.log_uniform(1, 4 * s.limits.slice_bytes + 200));
            f.duration = draw.log_uniform(10 * millisecond, 2 * s.timeouts.peer);
        } else {
            f.kind = draw.chance(700'000) ? FaultKind::reset : FaultKind::half_open;
            f.b = aim_named | (draw.chance(700'000) ? std::uint32_t{aim_control} : 0);
            f.value = draw.bits();
            f.again = draw.number(1, 12);
            f.every = draw.log_uniform(millisecond, 300 * millisecond);
        }
        s.faults.push_back(f);
    }
    // A node that pauses again and again.
    Draw stutters(mix(s.seed, 192));
    if ((on & class_pause) && stutters.chance(stutter_per_million)) {
        Fault f;
        f.kind = FaultKind::pause;
        f.at = stutters.between(0, s.chaos_end);
        f.a = stutters.chance(600'000) ? 0 : stutters.number(1, peers);
        f.duration = stutters.log_uniform(s.timeouts.peer / 8, 2 * s.timeouts.peer);
        f.again = stutters.number(2, 20);
        f.every = stutters.log_uniform(s.timeouts.tick(), 4 * s.timeouts.peer);
        s.faults.push_back(f);
    }
    if ((on & class_clock) && draw.chance(jump_per_million)) {
        for (std::uint32_t i = draw.number(1, 3); i-- != 0;) {
            Fault f;
            f.kind = FaultKind::clock_jump;
            f.at = draw.between(0, s.chaos_end);
            f.a = draw.number(0, peers);
            f.duration = draw.log_uniform(10 * millisecond, 10 * second);
            if (draw.chance(300'000)) tie_to_phase(f, s, draw);
            s.faults.push_back(f);
        }
    }
}

}  // namespace pccl::harness
