// Faults that come back. A fault at one stage of the protocol, each time that it is reached; crowds that never go. And what
// must not be held against a member that is away for a while.
//
// Nothing else happens, so that what befalls a member is the doing of this fault. The last draws: they change what others
// have chosen.
#include "harness/draw_faults.hpp"
#include "harness/expectations.hpp"
#include "harness/fault_refs.hpp"
#include "harness/settle.hpp"
#include "harness/triggers.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;

namespace {

constexpr std::uint32_t stages_per_million = 15'000;
constexpr std::uint32_t lasting_crowds_per_million = 4'000;
constexpr std::uint32_t aways_per_million = 10'000;

bool is_plain(const Scenario& s) {
    return !s.even && !s.world.symbolic && s.peers.size() > 1 && s.peers.size() < 10 && s.workload.tags != 0;
}

// No fault, no loss, and no path on which something takes long.
void calm(Scenario& s) {
    s.faults.clear();
    s.core.clear();
    s.claim = Claim::all_end;
    s.expectations.clear();
    sim::NetworkParameters& n = s.world.network;
    n.stop_faults();
    n.tail_per_million = n.loss_per_million = 0;
    for (std::int64_t* rate : {&n.rate_low, &n.rate_high, &n.down_low, &n.down_high, &n.flow_rate}) {
        if (*rate != 0) *rate = std::max<std::int64_t>(*rate, 1'000'000);
    }
    n.window_low = std::max<decltype(n.window_low)>(n.window_low, 4'096);
    n.window_high = std::max(n.window_high, n.window_low);
    s.world.allocation_fails_per_million = 0;
    s.world.staging_max = 0;
    s.world.wrong_chunks_per_million = s.world.long_texts_per_million = 0;
    s.timeouts.vote = 0;
    s.timeouts.master = std::max(s.timeouts.master, 10 * second);
    for (PeerPlan& plan : s.peers) plan.turns = std::max(plan.turns, 8u);
}

// A connection breaks at the same stage, again and again: what begins anew each time must not be lost, counted twice or
// held against anybody for good.
void draw_same_stage(Scenario& s, std::uint32_t on) {
    Draw draw(sim::mix(s.seed, 282));
    if (!(on & class_connection) || !is_plain(s) || !draw.chance(stages_per_million)) return;
    calm(s);
    static constexpr Phase stages[] = {
        Phase::resume,      Phase::takes_up,      Phase::takes_up,      Phase::welcome,      Phase::dial_plan,
        Phase::start_told,  Phase::outcome_told,  Phase::end_vote,      Phase::start_vote,   Phase::sync_vote,
        Phase::sync_plan,   Phase::sync_end_vote, Phase::chunk_request, Phase::chunk,        Phase::edge_lost,
        Phase::update_vote, Phase::list_request,  Phase::hashes,        Phase::hash_request, Phase::declared,
        Phase::edge_up};
    Fault f;
    f.trigger = trigger_of(stages[draw.below(std::size(stages))]);
    f.trigger_count = draw.number(1, 4);
    f.again = static_cast<std::uint32_t>(draw.log_uniform(3, 24));
    f.each = true;
    f.place = draw.chance(500'000) ? FaultPlace::here : FaultPlace::there;
    f.at = draw.chance(400'000) ? 0 : draw.log_uniform(10 * microsecond, 4 * s.world.network.latency_high);
    f.value = draw.bits();
    const std::uint64_t kind = draw.below(10);
    f.kind = kind < 6 ? FaultKind::reset : kind < 8 ? FaultKind::half_open : FaultKind::end_early;
    f.b = draw.chance(700'000) ? std::uint32_t{aim_control} : 0;
    s.faults.push_back(f);
    // Something has to break first where the stage is that of a member which comes back.
    Fault first;
    first.kind = FaultKind::reset;
    first.a = draw.number(1, static_cast<std::uint32_t>(s.peers.size()));
    first.b = aim_control | aim_named;
    first.value = draw.bits();
    first.at = draw.between(0, busy_time(s));
    first.again = draw.number(4, 30);
    first.every = draw.log_uniform(20 * millisecond, s.timeouts.peer);
    s.faults.push_back(first);
    s.chaos_end = std::max(s.chaos_end, first.at + first.again * first.every + second);
}

// Strangers on many hosts keep all places for connections that have not said hello, for ever. Newcomers come in all the
// same.
void draw_lasting_crowd(Scenario& s, std::uint32_t on) {
    Draw draw(sim::mix(s.seed, 284));
    if (!(on & class_hostile) || !is_plain(s) || !draw.chance(lasting_crowds_per_million)) return;
    calm(s);
    sim::NetworkParameters& n = s.world.network;
    n.latency_high = std::min<Duration>(n.latency_high, 40 * millisecond);
    n.latency_low = std::min(n.latency_low, n.latency_high);
    s.timeouts.handshake = draw.between(2 * second, 5 * second);
    s.limits.unregistered_links_max = draw.number(6, 10);
    while (s.peers.size() < 3) s.peers.push_back(PeerPlan(s.peers.back()));
    for (PeerPlan& plan : s.peers) {
        plan.group = 0;
        plan.stripes = 1;
        plan.rejoins = true;
        plan.masters = {MasterAddress::right};
        plan.advertises = plan.two_interfaces = false;
    }
    s.peers.back().start = draw.between(2 * second, 4 * second);
    for (std::uint32_t i = draw.number(8, 11); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::hostile;
        f.at = draw.between(0, second);
        f.b = 1;
        f.value = draw.bits() & ~(std::uint64_t{3} << 50);  // a crowd
        f.forever = true;
        s.faults.push_back(f);
    }
    for (std::uint32_t node = 1; node <= s.peers.size(); ++node) s.core.push_back(node);
    s.claim = Claim::core;
    s.chaos_end = std::max(s.chaos_end, draw.between(5 * second, 10 * second));
    sort_by_time(s.faults);
}

}  // namespace

// A member is away from the master for less time than it may be, not counting that in which the master sleeps. Meanwhile
// something happens that proves nothing: the master sleeps, connections to a neighbour break, others pause. All stay.
void draw_away(Scenario& s, std::uint32_t on) {
    Draw draw(sim::mix(s.seed, 285));
    const auto is_single = [](const PeerPlan& plan) { return plan.gang.none() && plan.translator == sim::Translator::none; };
    if (!(on & class_connection) || !(on & class_partition) || !is_plain(s) || s.peers.size() < 3 ||
        !std::all_of(s.peers.begin(), s.peers.end(), is_single) || !draw.chance(aways_per_million))
        return;
    calm(s);
    sim::NetworkParameters& n = s.world.network;
    n.latency_high = std::min<Duration>(n.latency_high, 100 * millisecond);
    n.latency_low = std::min(n.latency_low, n.latency_high);
    s.timeouts.peer = draw.between(8 * second, 16 * second);
    s.timeouts.dial = std::min<Duration>(s.timeouts.dial, second);
    s.timeouts.master = std::max(s.timeouts.master, 8 * s.timeouts.peer);
    for (PeerPlan& plan : s.peers) {
        plan.start = std::min<Duration>(plan.start, 200 * millisecond);
        plan.turns = std::max(plan.turns, 20u);
        plan.masters = {MasterAddress::right};
        plan.two_interfaces = false;
    }
    Workload& w = s.workload;
    // Programs without mistakes, that do not leave before the end.
    w.mismatch_per_mille = w.twice_per_mille = w.leave_in_flight_per_mille = w.interrupt_per_mille = 0;
    w.hasty_revision_per_mille = w.odd_strategy_per_mille = w.schema_per_mille = 0;
    w.async_sync = false;
    w.compute_max = s.timeouts.peer / 4;
    const std::uint32_t away = draw.number(1, static_cast<std::uint32_t>(s.peers.size()));
    const Instant begin = draw.between(500 * millisecond, 3 * second) + 12 * n.latency_high;
    constexpr Duration later = 1500 * millisecond;  // connections that close together are those of a dead process
    Fault lost;
    lost.kind = FaultKind::reset;
    lost.a = away;
    lost.b = aim_control | aim_named;
    lost.value = draw.bits();
    lost.at = begin;
    Fault cut;
    cut.kind = FaultKind::cut_pair;
    cut.b = away;
    cut.at = begin;
    cut.duration = s.timeouts.peer * draw.between(100, 400) / 1000;
    s.faults = {lost, cut};
    if (draw.chance(600'000)) {
        Fault sleep;
        sleep.kind = FaultKind::pause;
        sleep.at = begin + draw.log_uniform(millisecond, cut.duration);
        sleep.duration = s.timeouts.peer * draw.between(100, 3'000) / 1000;
        s.faults[1].duration += sleep.duration;
        s.faults.push_back(sleep);
    }
    for (std::uint32_t i = cut.duration > later ? draw.number(0, 3) : 0; i-- != 0;) {
        Fault data;
        data.kind = FaultKind::reset;
        data.a = away;
        data.b = aim_named;
        data.value = draw.bits();
        data.at = begin + draw.between(later, cut.duration);
        s.faults.push_back(data);
    }
    sort_by_time(s.faults);
    s.chaos_end = std::max(s.chaos_end, begin + s.faults[1].duration + 2 * s.timeouts.peer);
    s.expectations.push_back(nobody_removed());
}

void draw_stages(Scenario& s, std::uint32_t on) {
    draw_same_stage(s, on);
    draw_lasting_crowd(s, on);
}

}  // namespace pccl::harness
