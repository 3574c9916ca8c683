#include "harness/flavours.hpp"

#include "harness/settle.hpp"
#include "harness/triggers.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;

namespace {

constexpr std::uint32_t interrupted_per_million = 150'000;
constexpr std::uint32_t left_twice_per_million = 300'000;
constexpr std::uint32_t beside_per_million = 200'000;

void draw_patience(Scenario& s, Draw& draw, std::uint32_t on) {
    const sim::NetworkParameters& n = s.world.network;
    // Short enough that a second loss of the master falls into the time-out of the first one.
    if ((on & (class_master | class_connection)) && s.timeouts.master != 0 && draw.chance(250'000))
        s.timeouts.master = draw.log_uniform(second, 5 * second);
    if ((on & class_connection) && draw.chance(300'000)) {
        const Duration slow = n.latency_high + n.latency_high * n.jitter_per_mille / 1000 + s.world.timer_late_max +
                              (n.tail_per_million != 0 ? n.tail_max : 0);
        s.timeouts.handshake = draw.log_uniform(std::min(300 * millisecond + 4 * slow, 5 * second), 5 * second);
    }
}

// Peers are so far apart that connecting takes longer than the grace of an edge in a changed ring
// (Timeouts::edge_grace), but less than the peer time-out. The ring is long and loses some of its members.
void draw_far_peers(Scenario& s, std::uint32_t on, std::uint32_t peers_max) {
    Draw draw(sim::mix(s.seed, 112));
    if (!(on & class_crash) || !draw.chance(40'000)) return;
    sim::NetworkParameters& n = s.world.network;
    const Duration grace = std::min(2 * second, s.timeouts.peer / 4);
    n.latency_low = n.latency_high = draw.between(grace / 4, grace / 2);
    n.jitter_per_mille = 0;
    n.tail_per_million = n.loss_per_million = 0;
    for (std::uint32_t i = draw.number(2, 8); i-- != 0 && s.peers.size() < peers_max;)
        s.peers.push_back(s.peers.back());
    for (PeerPlan& plan : s.peers) {
        plan.group = 0;
        plan.turns = draw.number(4, 8);
    }
    for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::crash_peer;
        f.a = draw.number(1, static_cast<std::uint32_t>(s.peers.size()));
        f.value = draw.bits() | 2;  // started again
        f.duration = draw.log_uniform(millisecond, second);
        f.at = draw.between(0, 40 * n.latency_high);
        s.faults.push_back(f);
    }
}

// A large state on a slow network: synchronizations take long, so holders and receivers vanish in the middle of them.
void draw_large_state(Scenario& s, Draw& draw, std::uint32_t on) {
    if (!s.workload.sync || !draw.chance(120'000)) return;
    Workload& w = s.workload;
    w.state_elements_max = draw.number(300, 1'500);
    w.entries = draw.number(2, 4);
    if (draw.chance(700'000)) w.own_entries_per_mille = 500;
    w.tags = std::min(w.tags, 2u);
    w.drift_per_mille = std::max(w.drift_per_mille, draw.number(0, 400));
    s.limits.chunk_bytes = draw.number(4, 64) * 8;
    s.limits.chunks_in_flight = draw.number(1, 8);
    s.world.network.rate_low = draw.log_uniform(20'000, 400'000);
    s.world.network.rate_high = 2 * s.world.network.rate_low;
    s.world.compute_max = draw.log_uniform(microsecond, 20 * millisecond);
    for (PeerPlan& plan : s.peers) {
        plan.turns = std::min(plan.turns, 6u);
        plan.rejoins = true;
    }
    if (!(on & class_crash)) return;
    for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::crash_peer;
        f.a = draw.number(1, static_cast<std::uint32_t>(s.peers.size()));
        f.value = draw.bits() | 2;  // started again
        f.duration = draw.log_uniform(millisecond, second);
        f.trigger = static_cast<std::uint32_t>(sim::effect_index<SendPayload>() + 1);
        f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, 300));
        f.at = draw.log_uniform(microsecond, 50 * millisecond);
        if (draw.chance(700'000)) {
            // The peer dies while it sends: kind 1 of the injector's list is SendPayload.
            f.kind = FaultKind::aimed_peer;
            f.value = (6 * draw.below(1000) + 1) << 8 | 2 | draw.below(2);
            f.b = static_cast<std::uint32_t>(draw.log_uniform(1, 200));
            f.trigger = f.trigger_count = 0;
            f.at = draw.between(0, 500 * millisecond);
        }
        s.faults.push_back(f);
    }
}

// Shared state moves through narrow windows, so many requested chunks still wait at their sender. Then a member drops
// out, and the synchronization ends while the live members still serve each other.
void draw_interrupted_sync(Scenario& s, std::uint32_t on, std::uint32_t peers_max) {
    Draw draw(sim::mix(s.seed, 115));
    if (!s.workload.sync || !draw.chance(70'000)) return;
    Workload& w = s.workload;
    for (std::uint32_t i = draw.number(1, 3); i-- != 0 && s.peers.size() < std::min(peers_max, 5u);)
        s.peers.push_back(s.peers.back());
    for (PeerPlan& plan : s.peers) {
        plan.group = 0;
        plan.stripes = draw.chance(500'000) ? 1 : plan.stripes;
        plan.turns = draw.number(3, 6);
        plan.rejoins = true;
    }
    w.tags = std::min(w.tags, 1u);
    w.entries = draw.number(1, 4);
    w.state_elements_min = 100;
    w.state_elements_max = draw.number(300, 1'500);
    w.drift_per_mille = std::max(w.drift_per_mille, draw.number(100, 600));
    s.limits.chunk_bytes = draw.number(8, 64) * 8;
    s.limits.chunks_in_flight = draw.number(4, 16);
    sim::NetworkParameters& n = s.world.network;
    n.window_low = draw.log_uniform(100, 2'000);
    n.window_high = 2 * n.window_low;
    n.rate_low = draw.log_uniform(50'000, 1'000'000);
    n.rate_high = 2 * n.rate_low;
    if (n.latency_high < 50 * millisecond && n.tail_per_million == 0)
        s.timeouts.peer = draw.log_uniform(second, 2 * second);
    if ((on & class_limits) && draw.chance(600'000))
        s.world.allocation_fails_per_million = static_cast<std::uint32_t>(draw.log_uniform(20'000, 300'000));
    if (!(on & class_connection)) return;
    for (std::uint32_t i = draw.number(1, 4); i-- != 0;) {
        // Resets two connections of a receiver: its control link and a link that a neighbour dialled. The links to its
        // senders stay.
        Fault f;
        f.kind = FaultKind::reset;
        f.trigger = static_cast<std::uint32_t>(sim::effect_index<ReceivePayload>() + 1);
        f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, 300));
        for (const std::uint32_t aim : {aim_control, aim_accepted}) {
            f.b = aim_there | aim;
            f.value = draw.bits();
            f.at = draw.log_uniform(microsecond, millisecond);
            s.faults.push_back(f);
        }
    }
}

// Slow reductions and sudden losses: an operation is aborted while some members still compute with its slices and
// others do not. In calls for many tags, one tag fails for good while another is retried.
void draw_given_up_midway(Scenario& s, std::uint32_t on, std::uint32_t peers_max) {
    Draw draw(sim::mix(s.seed, 116));
    if (!(on & class_crash) || !draw.chance(150'000)) return;
    Workload& w = s.workload;
    for (std::uint32_t i = draw.number(1, 3); i-- != 0 && s.peers.size() < std::min(peers_max, 5u);)
        s.peers.push_back(s.peers.back());
    for (PeerPlan& plan : s.peers) {
        plan.group = 0;
        plan.rejoins = true;
    }
    s.world.compute_max = draw.log_uniform(5 * millisecond, 50 * millisecond);
    w.compute_max = draw.log_uniform(10 * microsecond, 10 * millisecond);
    if (draw.chance(600'000)) w.sync = false;
    s.chaos_end = std::max(s.chaos_end, draw.between(2 * second, 8 * second));
    w.tags = draw.number(3, 8);
    w.elements_max = std::clamp(w.elements_max, 20u, 400u);
    if (draw.chance(800'000)) w.many_window = draw.number(1, 2);
    if ((on & class_application) || draw.chance(300'000)) w.mismatch_per_mille = draw.number(20, 80);
    for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::slow_compute;
        f.a = draw.number(1, static_cast<std::uint32_t>(s.peers.size()));
        f.value = static_cast<std::uint64_t>(draw.log_uniform(5, 100)) - 1;
        f.duration = 20 * second;
        s.faults.push_back(f);
    }
    for (std::uint32_t i = draw.number(2, 6); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::crash_peer;
        f.a = draw.number(1, static_cast<std::uint32_t>(s.peers.size()));
        f.value = draw.bits() | 3;  // its links are reset, so others notice at once; started again
        f.duration = draw.log_uniform(millisecond, second);
        f.trigger = static_cast<std::uint32_t>(sim::effect_index<ReceivePayload>() + 1);
        f.trigger_count = draw.number(1, 120);
        f.at = draw.log_uniform(microsecond, millisecond);
        s.faults.push_back(f);
    }
}

// Programs optimize now and then. Tests are short, so that many fit into a run. The time-out of the survey cuts some of
// them off.
void draw_optimize(Scenario& s, std::uint32_t on, std::uint32_t peers_max) {
    Draw draw(sim::mix(s.seed, 140));
    if (!draw.chance(200'000)) return;
    // Two members have only one ring.
    for (std::uint32_t i = draw.number(1, 3); i-- != 0 && s.peers.size() < std::min(peers_max, 5u);)
        s.peers.push_back(s.peers.back());
    s.workload.optimize_per_mille = draw.number(100, 1000);
    s.limits.test_connections = draw.number(1, 4);
    if (Draw few(sim::mix(s.seed, 141)); few.chance(500'000)) s.limits.test_connections_first = few.number(1, 3);
    s.limits.test_bytes = static_cast<std::uint64_t>(draw.log_uniform(256, 32'768));
    s.limits.search_steps = static_cast<std::uint32_t>(draw.log_uniform(200, 100'000));
    // A search that takes many events, so that much else happens meanwhile.
    if (Draw pieces(sim::mix(s.seed, 143)); pieces.chance(300'000))
        s.limits.search_steps = static_cast<std::uint32_t>(pieces.log_uniform(1, 200));
    s.timeouts.test = draw.log_uniform(10 * millisecond, second);
    s.timeouts.survey = draw.log_uniform(20 * millisecond, 10 * second);
    s.timeouts.edge_age = draw.log_uniform(100 * millisecond, 100 * second);
    // Tests that are long enough for the sender to find out that it needs more connections.
    if (Draw longer(sim::mix(s.seed, 142)); longer.chance(150'000)) {
        s.limits.test_connections_first = longer.number(1, 2);
        s.limits.test_connections = s.limits.test_connections_first * longer.number(2, 5);
        s.limits.test_bytes = static_cast<std::uint64_t>(longer.log_uniform(1 << 20, 8 << 20));
        s.timeouts.test = std::max(s.timeouts.test, 300 * millisecond);
        s.timeouts.survey = std::max(s.timeouts.survey, second);
    }
    // A member dies while the master searches for a ring. Its links are reset, so it is removed at once.
    if (Draw dies(sim::mix(s.seed, 144)); (on & class_crash) && peers_max >= 6 && dies.chance(150'000)) {
        while (s.peers.size() < 6) s.peers.push_back(s.peers.back());
        Fault f;
        f.kind = FaultKind::crash_peer;
        f.a = dies.number(1, static_cast<std::uint32_t>(s.peers.size()));
        f.value = dies.bits() | 3;
        f.duration = dies.log_uniform(millisecond, second);
        f.trigger = trigger_of(core::Probe::ring_searched_in_pieces);
        f.trigger_count = static_cast<std::uint32_t>(dies.log_uniform(1, 30));
        f.at = dies.log_uniform(microsecond, 3 * millisecond);
        s.faults.push_back(f);
        s.limits.search_steps = dies.number(1, 6);
    }
    if (!draw.chance(700'000)) return;
    // Bandwidths that are measured early, on uneven paths, cut most collectives of the run.
    s.limits.unequal_parts_bytes_min = static_cast<std::uint64_t>(draw.log_uniform(1, 4'096));
    s.workload.optimize_per_mille = 1000;
    s.timeouts.survey = std::max(s.timeouts.survey, 2 * second);
    s.timeouts.edge_age = 100 * second;
    sim::NetworkParameters& n = s.world.network;
    n.latency_high = std::max(n.latency_high, std::min(10 * n.latency_low, 3 * millisecond));
    for (PeerPlan& plan : s.peers) {
        plan.start = std::min(plan.start, draw.log_uniform(millisecond, 200 * millisecond));
        plan.group = s.peers.front().group;
    }
}

// The strategies of members in synchronizations, senders with wrong data in memory, and holders that die together.
void draw_strategies(Scenario& s, std::uint32_t on) {
    if (!s.workload.sync) return;
    Draw draw(sim::mix(s.seed, 109));
    s.workload.async_sync = draw.chance(250'000);
    if ((on & class_application) && draw.chance(150'000)) s.workload.odd_strategy_per_mille = draw.number(1, 300);
    if ((on & class_corrupt) && draw.chance(200'000))
        s.world.wrong_chunks_per_million = static_cast<std::uint32_t>(draw.log_uniform(1'000, 300'000));
    if ((on & class_crash) && s.peers.size() > 2 && draw.chance(100'000)) {
        // Veterans die one after the other while a late newcomer receives from them.
        s.peers.back().start = std::max(s.peers.back().start, draw.log_uniform(10 * millisecond, 2 * second));
        s.peers.back().turns = std::max(s.peers.back().turns, 4u);
        const auto victims = draw.number(1, static_cast<std::uint32_t>(s.peers.size()) - 1);
        for (std::uint32_t i = 0; i < victims; ++i) {
            Fault f;
            f.kind = FaultKind::crash_peer;
            f.a = i + 1;
            f.value = draw.bits() | 2;
            f.duration = draw.log_uniform(millisecond, second);
            f.trigger = static_cast<std::uint32_t>(sim::effect_index<ReceivePayload>() + 1);
            f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, 400));
            f.at = draw.log_uniform(microsecond, 50 * millisecond);
            s.faults.push_back(f);
        }
    }
}

// Messages at the limits of their size: control frames so small that lists need several pages, keys and texts of the
// greatest length, many entries, and ids that run out.
void draw_small_frames(Scenario& s, std::uint32_t on) {
    Draw draw(sim::mix(s.seed, 170));
    Limits& l = s.limits;
    Workload& w = s.workload;
    if (draw.chance(500'000)) {
        l.control_bytes_max =
            draw.chance(400'000) ? control_bytes_least : static_cast<std::uint32_t>(draw.log_uniform(4'096, 16'384));
    }
    l.key_bytes_max = std::min(l.key_bytes_max, l.control_bytes_max - key_overhead);
    if (draw.chance(250'000)) {
        // If limits are uneven: no longer than the machine with the smallest ones accepts.
        const std::uint32_t least = std::max(control_bytes_least, l.control_bytes_max / (s.uneven_limits ? 2 : 1));
        w.key_bytes =
            draw.chance(300'000)
                ? std::min(l.key_bytes_max, least - key_overhead)
                : static_cast<std::uint32_t>(draw.log_uniform(1, std::min(l.key_bytes_max, least - key_overhead)));
    }
    if (draw.chance(60'000)) {
        w.entries = static_cast<std::uint32_t>(draw.log_uniform(20, 400));
        w.state_elements_max = draw.number(1, 8);
        w.state_elements_min = std::min(w.state_elements_min, w.state_elements_max);
        w.drift_per_mille = std::max(w.drift_per_mille, draw.number(50, 500));
        for (PeerPlan& plan : s.peers) plan.turns = std::min(plan.turns, 5u);
        // Key lists are read page by page. Their length is bounded, so that this does not take minutes.
        w.entries = std::min(w.entries, 40 * l.control_bytes_max / (w.key_bytes + key_overhead));
        if ((on & class_application) && draw.chance(500'000)) w.schema_per_mille = draw.number(100, 600);
    }
    if (w.tags != 0 && draw.chance(15'000)) {
        w.tags = draw.number(40, 150);
        w.elements_max = std::min(w.elements_max, 8u);
        for (PeerPlan& plan : s.peers) plan.turns = std::min(plan.turns, 4u);
    }
    // Not if a text as long as a frame takes seconds.
    if (draw.chance(300'000) && l.control_bytes_max <= 8'192 && s.world.network.rate_low >= 100'000 &&
        s.world.network.window_low >= 2'000)
        s.world.long_texts_per_million = static_cast<std::uint32_t>(draw.log_uniform(10'000, 1'000'000));
    if (draw.chance(300'000)) l.ids_per_incarnation = static_cast<std::uint32_t>(draw.log_uniform(1, 200));
    if (draw.chance(500'000)) l.untold_max = 64 + 8 * w.tags;
    if (Draw own(sim::mix(s.seed, 941)); own.chance(500'000))
        l.kept_bytes_max = static_cast<std::uint64_t>(own.log_uniform(1'000, 1'000'000'000));
}

// Another thread leaves the run during a call, or collectives run beside updates of the topology.
void draw_threads(Scenario& s, std::uint32_t on) {
    if (!(on & class_application)) return;
    Workload& w = s.workload;
    Draw interrupts(sim::mix(s.seed, 180));
    if (interrupts.chance(interrupted_per_million)) w.interrupt_per_mille = interrupts.number(2, 60);
    if (interrupts.chance(left_twice_per_million)) w.leave_twice_per_mille = 500;
    Draw draw(sim::mix(s.seed, 181));
    if (!draw.chance(beside_per_million)) return;
    w.beside = draw.number(1, 3);
    w.beside_asks = draw.number(0, 2);
    w.beside_queued = draw.chance(500'000);
    Draw crossed(sim::mix(s.seed, 182));
    w.beside_crossed = w.beside_queued && w.beside_asks == 1 && crossed.chance(700'000);
    if (w.sync && (w.tags == 0 || draw.chance(400'000)))
        w.tags = 0;
    else
        w.sync = false;
    if (!w.sync) w.tags = std::clamp(w.tags, 1u, 8u);
    s.timeouts.vote = 0;
    // No other call of any member: if a vote is forgotten that has come behind another one, no later one wakes it.
    if (Draw bare(sim::mix(s.seed, 183)); w.beside_queued && w.beside_asks != 0 && bare.chance(300'000)) {
        w.tags = 0;
        w.sync = false;
        w.beside_asks = 1;
        w.beside_crossed = false;
        if (bare.chance(600'000)) w.optimize_per_mille = 1000;
    }
    fit_beside(s);
    for (PeerPlan& plan : s.peers) plan.turns = std::min(plan.turns, 6u);
}

}  // namespace

void draw_flavours(Scenario& s, Draw& draw, std::uint32_t on, std::uint32_t peers_max) {
    draw_far_peers(s, on, peers_max);
    draw_patience(s, draw, on);
    s.timeouts.vote_warn = draw.log_uniform(100 * millisecond, 30 * second);
    Workload& w = s.workload;
    w.checkpoints = draw.chance(500'000);
    if (on & class_limits) s.uneven_limits = draw.chance(200'000);
    if (on & class_application) {
        if (draw.chance(300'000)) w.hasty_revision_per_mille = draw.number(1, 500);
        if (draw.chance(150'000)) w.schema_per_mille = draw.number(1, 300);
    }
    draw_large_state(s, draw, on);
    Draw own(sim::mix(s.seed, 107));
    if (own.chance(250'000)) {
        // One call for all tags. Some scenarios have so many tags that windows and limits matter.
        w.many_window = static_cast<std::uint32_t>(own.log_uniform(1, 16));
        if (own.chance(200'000) && w.tags != 0 && w.elements_max < 600) w.tags = own.number(4, 24);
    }
    if ((on & class_limits) && own.chance(200'000)) {
        // Often one operation fits into the limit, and a few at a time do not.
        const std::uint64_t array = 8 * std::uint64_t{w.elements_max} * w.elements_times;
        s.limits.operation_bytes_max = own.log_uniform(array / 4 + 1, 2 * array + 8 * s.limits.slice_bytes);
    }
    if ((on & (class_slow | class_application)) && own.chance(120'000)) {
        s.timeouts.vote = own.log_uniform(usual_vote_limit(s), 60 * second);
        if (own.chance(500'000)) w.cross_per_mille = own.number(1, 100);
    }
    draw_optimize(s, on, peers_max);
    draw_strategies(s, on);
    // Not with programs that decide from the last common update (when to optimize, who sends): an early update returns
    // to one peer alone.
    Draw first_turns(sim::mix(s.seed, 117));
    if (w.optimize_per_mille == 0 && !w.async_sync && first_turns.chance(200'000))
        w.early_update_per_mille = first_turns.number(100, 1000);
    Draw staging(sim::mix(s.seed, 119));
    if (w.sync && (on & class_slow) && staging.chance(250'000))
        s.world.staging_max = staging.log_uniform(10 * millisecond, staging_time_outs * s.timeouts.peer);
    draw_interrupted_sync(s, on, peers_max);
    draw_given_up_midway(s, on, peers_max);
    draw_small_frames(s, on);
    draw_threads(s, on);
}

// The disk hangs long enough that the master reports it, or stops itself if it has a limit. Some masters pause
// meanwhile, which the disk is not to blame for. Some are killed, and the next master finds the same disk.
void draw_stuck_disk(Scenario& s, std::uint32_t on) {
    Draw draw(sim::mix(s.seed, 166));
    if (!(on & class_journal) || !draw.chance(100'000)) return;
    if (draw.chance(600'000)) s.timeouts.journal = draw.log_uniform(2 * second, 8 * second);
    if (draw.chance(500'000)) s.faults.clear();
    if (s.timeouts.journal != 0 && draw.chance(400'000)) {
        // Each record may take most of the limit, and others queue behind it. But the disk keeps answering.
        Fault f;
        f.kind = FaultKind::slow_disk;
        f.at = draw.between(0, second);
        f.duration = draw.between(5 * second, 15 * second);
        f.value = static_cast<std::uint64_t>(s.timeouts.journal * draw.number(3, 8) / 10 / millisecond);
        s.faults.push_back(f);
        s.chaos_end = std::max(s.chaos_end, f.at + f.duration);
    }
    // The disk hangs from the start, and no peer starts for a while.
    const bool early = draw.chance(150'000);
    if (early) {
        const Duration later = draw.between(6 * second, 10 * second);
        for (PeerPlan& peer : s.peers) peer.start += later;
        s.chaos_end += later;
    }
    const auto persists = static_cast<std::uint32_t>(sim::effect_index<Persist>() + 1);
    for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
        Fault f;
        f.kind = FaultKind::stuck_disk;
        f.trigger = persists;
        f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, 200));
        f.at = draw.chance(300'000) ? 0 : draw.log_uniform(microsecond, 30 * millisecond);
        f.duration = draw.log_uniform(300 * millisecond, 15 * second);
        f.b = static_cast<std::uint32_t>(draw.log_uniform(1, 3'000));
        f.value = draw.bits();
        if (early) {
            f.trigger = f.trigger_count = 0;
            f.at = 0;
            f.duration = std::max(f.duration, 6 * second);
        }
        s.faults.push_back(f);
        s.chaos_end = std::max(s.chaos_end, f.duration + 3 * second);
        if (early) break;
        if (!draw.chance(300'000)) continue;
        const Duration patience = s.timeouts.journal != 0 ? s.timeouts.journal : 5 * second;
        f.kind = draw.chance(600'000) ? FaultKind::pause : FaultKind::crash_master;
        f.at += draw.between(0, f.duration);
        f.duration = draw.log_uniform(100 * millisecond, f.kind == FaultKind::pause ? 2 * patience : 2 * second);
        f.a = f.b = 0;
        s.faults.push_back(f);
        s.chaos_end = std::max(s.chaos_end, f.duration + 6 * second);
    }
}

}  // namespace pccl::harness
