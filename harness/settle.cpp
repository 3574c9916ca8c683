#include "harness/settle.hpp"

#include "core/wire/frame.hpp"
#include "harness/draw_units.hpp"
#include "harness/fault_refs.hpp"
#include "harness/liars.hpp"
#include "harness/scenario_text.hpp"
#include "harness/slow_world.hpp"

#include <algorithm>
#include <set>

namespace pccl::harness {

using namespace core;

namespace {

// Payload of usual scenarios never takes that long.
constexpr Duration long_payload = 30 * second;

Duration round_trip_of(const Scenario& s) {
    return 2 * s.world.network.latency_high * (1000 + s.world.network.jitter_per_mille) / 1000;
}

bool in_core(const Scenario& s, std::uint32_t node) {
    return std::find(s.core.begin(), s.core.end(), node) != s.core.end();
}

// True if all peers are in the core, only pairs of them are cut for ever, and each peer still reaches half of the
// peers, even without any one of them. Then there is a ring of all peers, and also of all but one (Dirac's theorem).
bool leaves_rings(const Scenario& s, const Fault& added) {
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    if (peers < 5 || s.core.size() != peers) return false;
    std::set<std::pair<std::uint32_t, std::uint32_t>> cut;
    const auto add = [&](const Fault& f) {
        const std::uint32_t a = f.a % (peers + 1), b = f.b % (peers + 1);
        if (f.kind != FaultKind::cut_pair || a == 0 || b == 0) return false;
        if (a != b) cut.insert({std::min(a, b), std::max(a, b)});
        return true;
    };
    if (!add(added)) return false;
    for (const Fault& f : s.faults) {
        if (f.forever && !add(f)) return false;
    }
    std::vector<std::uint32_t> bad(peers + 1);
    for (const auto& [a, b] : cut) {
        ++bad[a];
        ++bad[b];
    }
    return 2 * (peers - 2 - *std::max_element(bad.begin(), bad.end())) >= peers - 1;
}

void raise_rates(Scenario& s, std::int64_t least) {
    sim::NetworkParameters& n = s.world.network;
    for (std::int64_t* rate : {&n.rate_low, &n.rate_high, &n.down_low, &n.down_high, &n.flow_rate}) {
        if (*rate != 0) *rate = std::max(*rate, least);
    }
}

void fit_limits(Scenario& s) {
    Limits& l = s.limits;
    set_slices(s, std::min(l.slice_bytes, l.payload_bytes_max / 8 * 8));
    l.chunk_bytes = std::min(l.chunk_bytes, l.payload_bytes_max / 8 * 8);
    l.key_bytes_max = std::min(l.key_bytes_max, l.control_bytes_max - key_overhead);
    // With uneven limits, names must also fit the machine with the smallest limit.
    const std::uint32_t least = std::max(control_bytes_least, l.control_bytes_max / (s.uneven_limits ? 2 : 1));
    s.workload.key_bytes = std::min({s.workload.key_bytes, l.key_bytes_max, least - key_overhead});
    fit_kept(s);
    // Each machine must be able to take what the run asks for.
    l.peers_max = std::max(l.peers_max, static_cast<std::uint32_t>(s.peers.size()));
    l.tags_max = std::max(l.tags_max, s.workload.tags);
    l.entries_max = std::max(l.entries_max, s.workload.entries);
    for (const PeerPlan& plan : s.peers) l.stripes_max = std::max(l.stripes_max, plan.stripes);
}

void fit_workload(Scenario& s) {
    Workload& w = s.workload;
    fit_beside(s);
    fit_collectives(s);
    w.elements_min = std::min(w.elements_min, w.elements_max);
    w.state_elements_min = std::min(w.state_elements_min, w.state_elements_max);
    // Key lists are read page after page. With too many entries this would take minutes.
    if (w.entries > 4)
        w.entries = std::max(std::min(w.entries, 40 * s.limits.control_bytes_max / (w.key_bytes + key_overhead)), 1u);
    // An early update is answered for one peer alone. It does not fit programs that decide by the last update of all
    // members.
    if (w.optimize_per_mille != 0 || w.async_sync) w.early_update_per_mille = 0;
    // Without a vote limit, members in different calls would wait for each other for ever.
    if (s.timeouts.vote == 0) w.cross_per_mille = 0;
    if (w.visit_per_mille != 0) {
        for (PeerPlan& plan : s.peers) {
            plan.group = 0;
            plan.rejoins = true;
        }
        raise_rates(s, 1'000'000);
    }
}

void fit_core(Scenario& s) {
    // Without memory for ever, no collective completes.
    if (s.world.allocation_fails_per_million == 1'000'000) s.core.clear();
    // A peer whose gang is not complete never becomes a member.
    std::erase_if(s.core, [&](std::uint32_t node) {
        return node == 0 || node > s.peers.size() || !s.peers[node - 1].gang.none();
    });
    if (!s.core.empty()) {
        const GroupId group = s.peers[s.core.front() - 1].group;
        std::erase_if(s.core, [&](std::uint32_t node) { return s.peers[node - 1].group != group; });
    }
    if (s.core.size() < 2 || s.workload.tags == 0) s.core.clear();
    s.claim = s.core.empty() ? Claim::all_end : Claim::core;
}

void fit_timeouts(Scenario& s) {
    const sim::NetworkParameters& n = s.world.network;
    const Duration slow = n.latency_high + n.latency_high * n.jitter_per_mille / 1000 + s.world.timer_late_max +
                          (n.tail_per_million != 0 ? n.tail_max : 0);
    s.timeouts.handshake = std::max(s.timeouts.handshake, std::min(300 * millisecond + 4 * slow, 5 * second));
    // A distant peer must be able to answer in time.
    if (n.latency_high > 300 * millisecond) s.timeouts.peer = std::max(s.timeouts.peer, 8 * n.latency_high);
    // A text as long as a frame must not take seconds.
    if (s.limits.control_bytes_max > 8'192 || n.rate_low < 100'000 || n.window_low < 2'000)
        s.world.long_texts_per_million = 0;
    // A dial must have the time for a round trip.
    s.timeouts.dial = std::max(s.timeouts.dial, 2 * round_trip_of(s) + 4 * s.world.timer_late_max);
    // A short vote limit is kept only if nothing but the master delays anybody.
    const Duration usual = usual_vote_limit(s);
    if (s.timeouts.vote == 0 || s.timeouts.vote >= usual) return;
    const bool others = std::any_of(s.faults.begin(), s.faults.end(), [](const Fault& f) {
        return f.kind != FaultKind::crash_master && (f.kind != FaultKind::pause || (f.a != 0 && (f.b & 1) == 0));
    });
    if (others || n.tail_per_million != 0 || n.fails_dials()) s.timeouts.vote = std::max(usual, 4 * round_trip_of(s));
}

void fit_faults(Scenario& s) {
    const auto nodes = static_cast<std::uint32_t>(s.peers.size() + 1);
    for (Fault& f : s.faults) {
        // A fault that begins by the clock must begin while there are faults. A triggered one may begin late or never.
        if (f.trigger == 0 && f.follows == 0) f.at = std::min(f.at, s.chaos_end);
        if (f.kind == FaultKind::partition && nodes < 31) {
            f.a &= (1u << nodes) - 1;
            if (f.a == 0 || f.a == (1u << nodes) - 1) f.a = 1;
        }
        if (f.forever) f.forever = may_last(s, f);
    }
    if (only_impairs_edges(s)) {
        // Patience is short here, so nothing else may delay anybody.
        sim::NetworkParameters& n = s.world.network;
        n.stop_faults();
        s.core.clear();
        s.claim = Claim::all_end;
    }
    sort_by_time(s.faults);
}

// A node that roams does not stay reachable at its advertised address. A second master does not move.
void fit_addresses(Scenario& s) {
    const auto has = [&](FaultKind kind) {
        return std::any_of(s.faults.begin(), s.faults.end(), [kind](const Fault& f) { return f.kind == kind; });
    };
    const bool roams = has(FaultKind::roam), two_masters = has(FaultKind::two_masters);
    for (PeerPlan& plan : s.peers) {
        if (roams) plan.advertises = plan.two_interfaces = false;
        if (roams) plan.translator = sim::Translator::none;
        if (two_masters) std::erase(plan.masters, MasterAddress::spare);
    }
}

}  // namespace

Duration usual_vote_limit(const Scenario& s) { return 5 * second + 2 * s.workload.compute_max; }

Duration rounds_time(const Scenario& s, std::uint32_t window) {
    const Duration latency = (s.world.network.latency_low + s.world.network.latency_high) / 2 *
                             (2000 + s.world.network.jitter_per_mille) / 2000;
    const auto hops = 2 * static_cast<Duration>(s.peers.size()) + 4;
    std::uint32_t at_once = std::max(s.limits.concurrent_ops, 1u);
    if (s.workload.many_window != 0) at_once = std::min(at_once, window);
    const Duration waves = s.workload.tags / at_once + 1;
    return waves * hops * latency;
}

// How long a reduction takes if only a few slices can be in flight on a long path, and each waits for the slots of all
// members behind it.
static Duration slots_time(const Scenario& s) {
    const Limits& l = s.limits;
    const std::uint64_t at_once = std::uint64_t{l.slice_bytes} * std::max(l.concurrent_ops, 1u);
    const auto slots = static_cast<std::int64_t>(std::max<std::uint64_t>(l.scratch_bytes / at_once, 1));
    const std::int64_t slices = 8ll * s.workload.elements_max / l.slice_bytes + 1;
    return static_cast<Duration>(s.peers.size() - 1) * (slices / slots) * round_trip_of(s);
}

bool only_impairs_edges(const Scenario& scenario) {
    return !scenario.faults.empty() && std::all_of(scenario.faults.begin(), scenario.faults.end(),
                                                   [](const Fault& fault) { return impairs_an_edge(fault.kind); });
}

Duration parts_of_chunks_time(const Scenario& s) {
    const bool for_ever = std::any_of(s.faults.begin(), s.faults.end(), [](const Fault& f) { return f.forever; });
    return s.workload.sync && for_ever ? 3 * (8 * s.timeouts.peer + s.timeouts.grace()) : 0;
}

// Whether another node than that of `f` does.
static bool lies_for_ever(const Scenario& s, const Fault& f) {
    return std::any_of(s.faults.begin(), s.faults.end(), [&](const Fault& other) {
        return other.kind == FaultKind::liar && other.forever && other.a != f.a;
    });
}

Duration stalled_time(const Scenario& s) {
    return 40 * s.timeouts.peer * std::count_if(s.faults.begin(), s.faults.end(), [](const Fault& f) {
               return f.kind == FaultKind::liar && ((f.value >> 8) & lie_stalls) != 0;
           });
}

static bool may_claim_work(const Fault& f) {
    const std::uint64_t about = f.value >> 8;
    return f.kind == FaultKind::liar && (about == 0 || (about & (lie_heard | lie_works)) != 0);
}

Duration claimed_work_time(const Scenario& s) {
    return std::any_of(s.faults.begin(), s.faults.end(), may_claim_work) ? s.timeouts.works_for_good() : 0;
}

Duration busy_time(const Scenario& s) {
    const Duration latency = (s.world.network.latency_low + s.world.network.latency_high) / 2;
    Instant start = 0;
    for (const PeerPlan& plan : s.peers) start = std::max(start, plan.start);
    return start + 5 * (s.workload.compute_max + 12 * latency + static_cast<Duration>(s.workload.tags) * 4 * latency);
}

bool may_last(const Scenario& s, const Fault& f) {
    // The nodes are chosen when the fault begins, so they may be in the core.
    if (f.place != FaultPlace::named && !s.core.empty()) return false;
    const auto nodes = static_cast<std::uint32_t>(s.peers.size() + 1);
    // Without a core, every program must come to its end.
    const auto needed = [&](std::uint32_t node) { return node == 0 || s.core.empty() || in_core(s, node); };
    switch (f.kind) {
    case FaultKind::pause:
    case FaultKind::clog:
    case FaultKind::interface:
    case FaultKind::closed_port: return !needed(f.a % nodes);
    case FaultKind::hang:
        return s.timeouts.vote != 0 && s.workload.tags != 0 && !s.core.empty() &&
               !in_core(s, 1 + (f.a - 1) % (nodes - 1));
    case FaultKind::liar:
        // Only the limit on votes ends a vote that never comes. A synchronization waits for a member that always says
        // that it works (SECURITY.md).
        // Two liars may keep up the operations of their group.
        return s.timeouts.vote != 0 && (!s.workload.sync || !may_claim_work(f)) && !lies_for_ever(s, f) &&
               (s.core.empty() || !in_core(s, 1 + (f.a - 1) % (nodes - 1)));
    case FaultKind::one_way: return !needed(f.a % nodes) || !needed(f.b % nodes);
    case FaultKind::cut_pair: return !needed(f.a % nodes) || !needed(f.b % nodes) || leaves_rings(s, f);
    case FaultKind::partition: {
        bool whole = nodes < 31;
        for (std::uint32_t node = 1; node < nodes; ++node) {
            if (needed(node) && ((f.a >> node) & 1) != (f.a & 1)) whole = false;
        }
        return whole;
    }
    // Not for a member of the core: if it cannot be in a ring with another member, it may be removed again and again.
    case FaultKind::swallow:
    case FaultKind::garble:
    case FaultKind::snap: {
        const std::uint32_t peers = std::max(nodes - 1, 1u);
        return s.core.empty() || (!in_core(s, 1 + (f.a - 1) % peers) && !in_core(s, 1 + (f.b - 1) % peers));
    }
    case FaultKind::flap: {
        // Between the master and a peer outside the core, or between two such peers.
        const std::uint32_t a = f.a % nodes, b = f.b % nodes;
        const auto outside = [&](std::uint32_t node) { return node == 0 || !in_core(s, node); };
        return !s.core.empty() && a != b && outside(a) && outside(b);
    }
    default: return false;
    }
}

void set_slices(Scenario& s, std::uint32_t bytes) {
    Limits& l = s.limits;
    l.slice_bytes = bytes;
    l.eager_bytes = std::max(l.eager_bytes, bytes);
    l.scratch_bytes = std::max<std::uint64_t>(l.scratch_bytes, std::uint64_t{bytes} * l.min_slots);
}

void raise_slices(Scenario& s) {
    const std::uint32_t least = s.workload.elements_max * 8 / 100 / 8 * 8;
    if (s.limits.slice_bytes >= least) return;
    set_slices(s, least);
}

void widen_windows(Scenario& s) {
    // One turn over the narrowest stream must take some seconds at most.
    const std::int64_t turn_bytes =
        16ll * s.workload.tags * s.workload.elements_max +
        (s.workload.sync ? s.workload.entries * (8ll * s.workload.state_elements_max + s.workload.key_bytes) : 0);
    const Duration round_trip = round_trip_of(s);
    const std::int64_t narrowest = turn_bytes * (round_trip / microsecond) / (15 * second / microsecond);
    // A dial plan that names every peer must arrive within a quarter of the peer time-out, because its receiver is
    // expected to dial.
    const std::int64_t plan_bytes = 75 * static_cast<std::int64_t>(s.peers.size());
    // So must a slice of each running operation, with its frame and its two flow words, over the last stripe that is
    // left. The ring is routed around an edge whose slices take longer.
    const std::int64_t at_once = std::min(s.limits.concurrent_ops, s.workload.tags);
    const std::int64_t slices_bytes =
        at_once * static_cast<std::int64_t>(wire::prefix_bytes + wire::bulk_header_bytes + wire::trailer_bytes +
                                            2 * (wire::prefix_bytes + wire::flow_word_bytes));
    const std::int64_t trips = std::max<std::int64_t>(s.timeouts.peer / 4 / std::max<Duration>(round_trip, 1), 1);
    s.world.network.window_low =
        std::max({s.world.network.window_low, narrowest, plan_bytes / trips, slices_bytes / trips});
    s.world.network.window_high = std::max(s.world.network.window_high, s.world.network.window_low);
    if (!s.workload.sync) return;
    // A state must not take minutes either, if only a few chunks are requested at a time over a long path.
    const std::int64_t round_trips = std::max<std::int64_t>(30 * second / std::max<Duration>(round_trip, 1), 1);
    const std::int64_t state_bytes = 8ll * s.workload.entries * s.workload.state_elements_max;
    const auto chunk = static_cast<std::uint32_t>(state_bytes / (round_trips * s.limits.chunks_in_flight) / 8 * 8 + 8);
    s.limits.chunk_bytes = std::max(s.limits.chunk_bytes, std::min(chunk, s.limits.payload_bytes_max));
}

Duration patience_of(const Scenario& s) {
    Duration patience = 4 * s.timeouts.peer + 2 * s.timeouts.master + 10 * second + 4 * busy_time(s) + 60 * second +
                        4 * s.timeouts.vote;
    // If all faults are edges that lose data for ever, a call is bounded in peer time-outs: three for each such edge,
    // until a reduction is routed around it; eight and a grace for a synchronization without progress.
    const auto edges = static_cast<Duration>(s.faults.size());
    if (only_impairs_edges(s)) {
        patience = (12 + 4 * edges) * s.timeouts.peer + s.timeouts.grace() + 10 * second + 4 * busy_time(s) +
                   4 * s.timeouts.vote;
        // A call for many tags goes on as long as each tag gets through, perhaps after one or two new connections.
        if (s.workload.many_window != 0)
            patience += s.workload.tags / s.workload.many_window * edges * 2 * s.timeouts.redial_longest();
    }
    // Operations over slow streams take long, also those that fail.
    if (s.world.network.flow_rate != 0)
        patience += 40 * s.workload.tags * s.workload.elements_max * second / s.world.network.flow_rate;
    // A ring among many bad pairs is found by trying: one or two time-outs for each pair and direction. Some marks
    // expire meanwhile.
    patience += 4 * s.timeouts.peer * std::count_if(s.faults.begin(), s.faults.end(), [](const Fault& f) {
                    return f.forever && f.kind == FaultKind::cut_pair;
                });
    // With bad pairs, each turn may wait for a survey until it times out.
    if (s.workload.optimize_per_mille != 0) patience += 16 * s.timeouts.survey;
    patience += parts_of_chunks_time(s) + 2 * claimed_work_time(s);
    // A synchronization waits for the end vote of a liar for twenty peer time-outs. A call for many tags gives a tag up
    // when it has failed sixteen times, and each time some peer time-outs pass.
    const Duration many = s.workload.many_window == 0 ? 0 : 70 * static_cast<Duration>(s.workload.tags);
    patience += (25 + many) * s.timeouts.peer * std::count_if(s.faults.begin(), s.faults.end(), [](const Fault& f) {
                    return f.kind == FaultKind::liar;
                });
    // One that lies for ever may make each operation fail on its own, and only so many run at once.
    patience += 5 * s.timeouts.peer * (s.workload.tags / s.limits.concurrent_ops) *
                std::count_if(s.faults.begin(), s.faults.end(),
                              [](const Fault& f) { return f.kind == FaultKind::liar && f.forever; });
    // A tag of a call for many is given up when it has failed 16 times. The smallest window of a member may be 1.
    const Duration each = 16 * static_cast<Duration>(s.workload.tags);
    patience += stalled_time(s) * (s.workload.many_window == 0 ? 1 : each);
    patience += s.world.staging_max;
    // If the payload takes long, each turn may also wait for the payload of others.
    if (const Duration time = payload_time(s); time > long_payload) patience += 4 * time;
    // The same holds for many tags that go around a large ring one after another. Newcomers that reach few members may
    // need several turns to be admitted.
    if (const Duration time = rounds_time(s, s.workload.many_window); time > long_payload) patience += 8 * time;
    if (const Duration time = slots_time(s); time > long_payload) patience += 8 * time;
    // A dial to an address of the master that does not answer lasts until the dial time-out.
    for (const PeerPlan& plan : s.peers) {
        patience += 4 * s.timeouts.dial *
                    static_cast<Duration>(std::count(plan.masters.begin(), plan.masters.end(), MasterAddress::silent));
    }
    // If only a few newcomers can be connected at a time, each update admits only that few. Until the next one, members
    // may find out again which edges lose data.
    const auto together = std::max<std::size_t>(s.limits.newcomer_links_max / 2, 1);
    const Duration between = busy_time(s) + (only_impairs_edges(s) ? (12 + 4 * edges) * s.timeouts.peer : 0);
    return patience + static_cast<Duration>(s.peers.size() / together) * between;
}

// One compute must not take as long as the limit on votes: a member says that it works when one has ended. All those of
// a content must not take as long as such a member is believed.
void fit_computes(Scenario& s) {
    if (s.timeouts.vote == 0 || s.world.compute_max == 0) return;
    const Duration of_a_content = s.workload.sync ? 4 * static_cast<Duration>(s.workload.entries) : 0;
    const Duration most =
        std::max<Duration>(s.timeouts.vote / std::max<Duration>(2, of_a_content / 10) / s.world.compute_max, 1);
    for (Fault& f : s.faults) {
        if (f.kind == FaultKind::slow_compute)
            f.value = std::min<std::uint64_t>(f.value % 1000, static_cast<std::uint64_t>(most - 1));
    }
}

void fit_kept(Scenario& s) {
    Limits& l = s.limits;
    const std::uint32_t untold = 64 + 8 * s.workload.tags;
    const std::uint64_t decision = 1'000 + 40 * s.peers.size() + 2 * l.vote_input_bytes_max;
    l.untold_max = std::max(l.untold_max, untold);
    l.kept_bytes_max = std::max(l.kept_bytes_max, decision * untold);
}

void fit_disks(Scenario& s) {
    s.world.staging_max = std::min({s.world.staging_max, staging_time_outs * s.timeouts.peer, 60 * second});
}

void fit_search(Scenario& s) {
    Limits& l = s.limits;
    if (s.peers.size() <= 6) return;
    const auto least = std::min<std::uint64_t>(l.search_answer_steps / 10'000, 100'000);
    l.search_steps = std::max(l.search_steps, static_cast<std::uint32_t>(least));
}

void fit_beside(Scenario& s) {
    Workload& w = s.workload;
    // Its calls come at any time, so a short limit would take them for calls that cross.
    if (s.timeouts.vote != 0 && s.timeouts.vote < usual_vote_limit(s)) w.beside = 0;
    if (w.beside == 0) return;
    // A fault may hold up the collectives of one thread for long, while the others wait with an update.
    if (s.timeouts.vote != 0 && !s.faults.empty())
        s.timeouts.vote =
            std::max(s.timeouts.vote, usual_vote_limit(s) + s.timeouts.starved_for_good() + s.timeouts.grace());
    if (w.tags != 0) w.sync = false;
    w.async_sync = false;
    if (!w.beside_queued || w.beside_asks == 0 || w.beside_crossed) w.optimize_per_mille = 0;
    w.many_window = w.cross_per_mille = w.early_update_per_mille = w.visit_per_mille = 0;
}

void fit_liars(Scenario& s) {
    if (!has_liars(s)) return;
    Workload& w = s.workload;
    w.mismatch_per_mille = w.schema_per_mille = w.hasty_revision_per_mille = 0;
    w.odd_strategy_per_mille = w.cross_per_mille = 0;
    w.checkpoints = false;
    if (s.timeouts.vote != 0) w.beside = 0;  // a liar may hold up collectives for longer than the limit
    s.world.wrong_chunks_per_million = s.world.long_texts_per_million = 0;
    for (PeerPlan& plan : s.peers) plan.gang = {};
}

// Symbolic payload has no pieces to compare. A call for many tags does not tell who took part.
void fit_collectives(Scenario& s) {
    Workload& w = s.workload;
    if (s.world.symbolic || w.many_window != 0 || is_huge(s)) w.collectives_per_mille = 0;
    if (w.collectives_per_mille == 0) w.pieces_per_mille = 0;
    // The members that are named send to each other. If the journal is lost, one of them may know of no success. A
    // visitor goes in the middle of a turn. Collectives beside updates have no turns.
    const bool forgets =
        std::any_of(s.faults.begin(), s.faults.end(), [](const Fault& f) { return concerns_the_journal(f.kind); });
    if (w.collectives_per_mille == 0 || w.beside != 0 || w.visit_per_mille != 0 || forgets) w.sends_per_mille = 0;
}

void settle(Scenario& s) {
    s.world.network.latency_high = std::max(s.world.network.latency_high, s.world.network.latency_low);
    s.world.network.rate_high = std::max(s.world.network.rate_high, s.world.network.rate_low);
    if (!s.world.symbolic) {
        Workload& w = s.workload;
        w.elements_max = std::min(w.elements_max, 1u << 20);
        w.elements_min = std::min(w.elements_min, w.elements_max);
        w.elements_times = 1;
    }
    raise_slices(s);
    fit_limits(s);
    fit_liars(s);
    fit_workload(s);
    widen_windows(s);
    fit_units(s);
    s.chaos_end = std::max(s.chaos_end, busy_time(s));
    fit_search(s);
    fit_core(s);
    fit_faults(s);
    fit_addresses(s);
    fit_timeouts(s);
    fit_computes(s);
    fit_disks(s);
    s.patience = patience_of(s);
}

}  // namespace pccl::harness
