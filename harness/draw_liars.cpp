// Members that lie. Mostly nothing else happens, so that whatever befalls an honest member is the liar's doing.
#include "harness/draw_faults.hpp"
#include "harness/fault_refs.hpp"
#include "harness/liars.hpp"
#include "harness/settle.hpp"
#include "harness/triggers.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;

namespace {

constexpr std::uint32_t liars_per_million = 100'000;  // of the half of the runs in which the class is on

// A master that comes back with all its records. What a liar says may look as if some were lost.
constexpr bool is_a_restart(FaultKind kind) {
    return kind == FaultKind::crash_master || kind == FaultKind::aimed_master;
}

}  // namespace

void draw_liars(Scenario& s, const GeneratorOptions& options, std::uint32_t on) {
    Draw draw(sim::mix(s.seed, 280));
    const bool alone = options.classes == class_liars;
    if (!(on & class_liars) || s.even || s.world.symbolic || !(draw.chance(liars_per_million) || alone)) return;
    if (s.peers.size() > 9 || options.peers_max < 2) return;
    if (alone) {
        GeneratorOptions plain;
        plain.classes = class_shape | class_sync | class_limits | class_latency | class_segmentation | class_application;
        plain.peers_max = options.peers_max;
        const std::uint64_t seed = s.seed;
        s = generate(sim::mix(seed, 281), plain);
        s.seed = seed;
        if (s.peers.size() > 9 || s.world.symbolic) return;
    }
    while (s.peers.size() < std::min(options.peers_max, draw.number(2, 4))) s.peers.push_back(PeerPlan(s.peers.back()));
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    const bool others = draw.chance(300'000);
    remove_faults(
        s.faults,
        [&](const Fault& f) {
            return !others || (concerns_the_journal(f.kind) && !is_a_restart(f.kind)) ||
                   f.kind == FaultKind::closed_port;
        },
        Followers::go);
    if (!others) s.world.network.stop_faults();
    sim::NetworkParameters& n = s.world.network;
    for (std::int64_t* rate : {&n.rate_low, &n.rate_high, &n.down_low, &n.down_high, &n.flow_rate}) {
        if (*rate != 0) *rate = std::max<std::int64_t>(*rate, 1'000'000);
    }
    n.window_low = std::max<decltype(n.window_low)>(n.window_low, 4'096);
    n.window_high = std::max(n.window_high, n.window_low);
    s.core.clear();
    s.claim = Claim::all_end;
    Workload& w = s.workload;
    Draw collectives(sim::mix(s.seed, 934));
    w.collectives_per_mille = collectives.chance(500'000) ? collectives.number(200, 1000) : 0;
    w.tags = std::max(w.tags, 1u);
    for (PeerPlan& plan : s.peers) {
        if (draw.chance(800'000)) plan.group = 0;
        plan.turns = std::max(plan.turns, 6u);
    }
    // A vote that never comes is a program that makes no call: only the limit on votes ends it.
    const Duration round_trip = 2 * n.latency_high * (1000 + n.jitter_per_mille) / 1000;
    s.timeouts.vote = std::max(draw.log_uniform(2 * second, 6 * second), 4 * round_trip);
    w.compute_max = std::min(w.compute_max, s.timeouts.vote / 10);
    if (draw.chance(300'000)) s.limits.vote_input_bytes_max = 8192;
    Draw claims_work(sim::mix(s.seed, 933));
    Draw stalls(sim::mix(s.seed, 935));
    Draw comes_back(sim::mix(s.seed, 936));
    for (std::uint32_t i = draw.chance(850'000) ? 1 : 2; i-- != 0;) {
        Fault f;
        f.kind = FaultKind::liar;
        f.a = draw.number(1, peers);
        // One thing in half of them, so that each lie gets far; else a few.
        std::uint32_t about = 1u << draw.below(13);
        if (draw.chance(500'000)) about |= static_cast<std::uint32_t>(draw.bits() & draw.bits()) & (lie_works - 1);
        f.value = (draw.bits() & 3) | std::uint64_t{about} << 8;
        f.b = static_cast<std::uint32_t>(draw.log_uniform(10, 1'000));
        f.at = draw.chance(300'000) ? 0 : draw.between(0, std::min(s.chaos_end, busy_time(s)));
        f.duration = draw.log_uniform(100 * millisecond, 20 * second);
        f.forever = draw.chance(400'000) && may_last(s, f);
        // Votes that never come, from a member that says that it works. What else it said falsely would have it removed
        // before anybody waits for long.
        if (claims_work.chance(80'000)) {
            f.value = (f.value & 3) | std::uint64_t{lie_silence | lie_works} << 8;
            f.b = static_cast<std::uint32_t>(claims_work.log_uniform(100, 1'000));
            f.forever = may_last(s, f);
        }
        if (stalls.chance(80'000)) {
            f.value = (f.value & 3) | std::uint64_t{lie_stalls} << 8;
            f.b = static_cast<std::uint32_t>(stalls.log_uniform(300, 1'000));
            f.forever = may_last(s, f);
        }
        // What it claims when all members come back to a restarted master.
        if (comes_back.chance(100'000)) {
            f.value = (f.value & 3) | std::uint64_t{lie_hello} << 8;
            f.b = static_cast<std::uint32_t>(comes_back.log_uniform(100, 1'000));
            Fault death;
            death.kind = FaultKind::crash_master;
            death.at = f.at + comes_back.between(0, std::min(f.duration, busy_time(s)));
            death.duration = comes_back.log_uniform(millisecond, second);
            s.faults.push_back(death);
        }
        s.faults.push_back(f);
    }
    sort_by_time(s.faults);
    fit_liars(s);
    fit_beside(s);
}

}  // namespace pccl::harness
