#include "harness/slow_world.hpp"

#include "core/base/format.hpp"
#include "harness/oracles.hpp"
#include "harness/settle.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;

namespace {

constexpr std::uint32_t slow_per_million = 5'000;  // such a run takes as long as many others
constexpr std::uint32_t resets_per_million = 400'000;
constexpr std::uint32_t resets_most = 12;
constexpr std::uint32_t bursts_per_million = 500'000;
// The least time between two breaks. A connection that breaks more often is flapping.
constexpr Duration resets_apart = 2;  // peer time-outs
constexpr std::uint32_t resets_at_once_most = 24;
constexpr std::int64_t slowest = 20'000, fastest = 1'000'000;
constexpr std::int64_t state_bytes_max = 8 << 20;

std::int64_t stripes_most(const Scenario& s) {
    std::uint32_t stripes = 1;
    for (const PeerPlan& plan : s.peers) stripes = std::max(stripes, plan.stripes);
    return stripes;
}

// Streams that share the uplink of a member: to its neighbour, or to all that receive a state from it.
std::int64_t streams_most(const Scenario& s) {
    const auto others = static_cast<std::int64_t>(s.peers.size()) - 1;
    return stripes_most(s) * (s.workload.sync ? std::max<std::int64_t>(others, 1) : 1);
}

std::int64_t narrowest(const Scenario& s) {
    const sim::NetworkParameters& n = s.world.network;
    std::int64_t rate = n.rate_least();
    for (const std::int64_t path : n.region_rate) {
        if (path != 0) rate = std::min(rate, path);
    }
    return rate;
}

Duration latency_most(const Scenario& s) {
    const sim::NetworkParameters& n = s.world.network;
    Duration most = n.regions.empty() ? n.latency_high : 0;
    for (const Duration latency : n.region_latency) most = std::max(most, latency);
    return most * (1000 + n.jitter_per_mille) / 1000;
}

// Bytes per second of a member with all its stripes, over the narrowest path.
std::int64_t rate_of_member(const Scenario& s) {
    const Duration round_trip = std::max<Duration>(2 * latency_most(s), 1);
    return std::min(narrowest(s), stripes_most(s) * s.world.network.window_low * second / round_trip);
}

// The longest burst. An edge must recover well within the time that it may be down. 0 if a handshake takes as long.
Duration burst_most(const Scenario& s) {
    const Duration grace = s.timeouts.edge_grace();
    return 32 * latency_most(s) <= grace ? grace / 4 : 0;
}

std::int64_t payload_bytes(const Scenario& s) {
    const Workload& w = s.workload;
    // A member sends all parts of an operation but one twice.
    const std::int64_t reduced = 2 * 8ll * w.tags * w.elements_max * w.elements_times;
    const auto receivers = static_cast<std::int64_t>(s.peers.size());
    return reduced + (w.sync ? receivers * w.entries * 8ll * w.state_elements_max : 0);
}

void draw_paths(Scenario& s, Draw& draw) {
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = n.latency_high = draw.log_uniform(millisecond, 100 * millisecond);
    const std::int64_t streams = streams_most(s);
    // The queue of the narrowest path must not delay heartbeats for long.
    const std::int64_t rate =
        std::max(draw.log_uniform(slowest, fastest), 8 * streams * 2'048 / (s.timeouts.peer / second));
    const std::int64_t window = rate * (s.timeouts.peer / second) / 8 / streams;
    n.window_low = n.window_high = std::clamp<std::int64_t>(window, 2'048, 65'536);
    n.rate_low = n.rate_high = rate;
    if (!draw.chance(500'000)) return;
    // Only some paths are slow: from some members to all, or between some members and the others in both directions.
    n.rate_low = n.rate_high = 12'500'000;
    n.region_latency.assign(4, n.latency_high);
    n.region_rate.assign(4, 0);
    n.region_rate[2] = rate;
    n.region_rate[draw.chance(500'000) ? 3 : 1] = rate;
    n.regions.assign(s.peers.size() + 1, 0);
    for (std::uint32_t i = draw.number(1, static_cast<std::uint32_t>(s.peers.size() + 1) / 2); i-- != 0;)
        n.regions[draw.number(1, static_cast<std::uint32_t>(s.peers.size()))] = 1;
}

// The least time between two breaks in which a unit that is resent as a whole gets through. Units are chunks, and also
// slices if all connections of an edge break together.
Duration time_of_units(const Scenario& s, bool slices) {
    const std::uint64_t whole =
        std::max<std::uint64_t>(slices ? s.limits.slice_bytes : 0, s.workload.sync ? s.limits.chunk_bytes : 0);
    return 2 * static_cast<std::int64_t>(whole) * streams_most(s) * millisecond / (rate_of_member(s) / 1000);
}

// Resets connections. Data in flight is resent, which costs time and nothing else.
void draw_resets(Scenario& s) {
    Draw draw(sim::mix(s.seed, 241));
    if (!draw.chance(resets_per_million)) return;
    Fault f;
    f.kind = FaultKind::reset;
    f.at = draw.between(0, 2 * second + payload_time(s));
    f.value = draw.bits();
    // Most connections at once, as when a router forgets them. Each then lasts long enough for what it carries.
    const bool many = draw.chance(300'000);
    if (draw.chance(500'000)) {
        f.again = draw.number(1, resets_most);
        f.every = draw.between(resets_apart, 4 * resets_apart) * s.timeouts.peer;
        f.every = std::max(f.every, time_of_units(s, many));
    }
    s.faults.push_back(f);
    s.chaos_end = std::max(s.chaos_end, f.at + f.again * f.every + second);
    if (!many) return;
    for (std::uint32_t left = std::min(4 * s.peers.front().stripes, resets_at_once_most); left > 1; --left) {
        f.value = draw.bits();
        s.faults.push_back(f);
    }
}

// An edge that breaks several times within a short burst, and then works for a long time until the next burst. A path
// whose routes sometimes change behaves like this.
void draw_bursts(Scenario& s) {
    Draw draw(sim::mix(s.seed, 243));
    if (!s.faults.empty() || burst_most(s) == 0 || !draw.chance(bursts_per_million)) return;
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    Fault f;
    f.kind = FaultKind::flap;
    f.a = draw.number(1, peers);
    f.b = 1 + f.a % peers;
    f.value = draw.log_uniform(100, 20'000);  // after the handshake
    f.duration = burst_most(s);
    f.at = draw.between(0, 2 * second);
    f.every = std::max(draw.between(resets_apart, 2 * resets_apart) * s.timeouts.peer, time_of_units(s, true));
    f.again = static_cast<std::uint32_t>(std::clamp<Duration>(payload_time(s) / f.every, 1, 20));
    s.faults.push_back(f);
    s.chaos_end = std::max(s.chaos_end, f.at + f.again * (f.every + f.duration) + second);
}

// Units that take several peer time-outs each, and members that die in the middle of one. The rest of a frame that
// nobody needs any more still fills the path.
void draw_large_units(Scenario& s) {
    Draw draw(sim::mix(s.seed, 242));
    if (!draw.chance(200'000)) return;
    const std::int64_t bytes = narrowest(s) * s.timeouts.peer / second * draw.number(1, 8) / 2;
    const auto unit = static_cast<std::uint32_t>(std::clamp<std::int64_t>(bytes / 8 * 8, 4'096, 1 << 20));
    s.limits.min_slots = 2;
    s.limits.chunk_bytes = unit;
    set_slices(s, unit);
    if (unit < narrowest(s) * s.timeouts.peer / second || s.peers.size() < 3 || !draw.chance(700'000)) return;
    s.workload.world_min = 2;
    for (PeerPlan& peer : s.peers) peer.turns = std::max(peer.turns, 4u);
    Fault f;
    f.kind = FaultKind::crash_peer;
    f.a = draw.number(1, static_cast<std::uint32_t>(s.peers.size()));
    f.value = 1;
    f.at = 2 * second + draw.between(0, payload_time(s));
    s.faults.push_back(f);
    s.chaos_end = std::max(s.chaos_end, f.at + second);
    s.stop_after = 10 * second + 4 * payload_time(s);
}

}  // namespace

void draw_slow_world(Scenario& s, const GeneratorOptions& options, std::uint32_t on) {
    Draw draw(sim::mix(s.seed, 240));
    const bool alone = options.classes == class_steady;
    if (!(on & class_steady) || options.peers_max < 2 || !(draw.chance(slow_per_million) || alone)) return;
    s.faults.clear();
    s.core.clear();
    s.claim = Claim::all_end;
    s.world = {};
    s.limits = {};
    s.timeouts = {};
    s.uneven_limits = false;
    if (draw.chance(500'000)) s.timeouts.peer = draw.between(1, 10) * second;
    const std::uint32_t kind = draw.number(0, 2);
    std::uint32_t members = draw.chance(700'000) ? draw.number(2, 5) : draw.number(6, kind == 2 ? 9 : 24);
    if (kind == 1 && draw.chance(500'000)) members = 2;
    if (options.peers_max < GeneratorOptions{}.peers_max) members = std::min(members, options.peers_max);
    PeerPlan plan;
    plan.stripes = draw.chance(500'000) ? 1 : draw.number(2, 8);
    // With two members, one of them has turns alone.
    plan.turns = members == 2 ? 8 : draw.number(1, 2);
    s.peers.assign(members, plan);
    for (PeerPlan& peer : s.peers) peer.start = members == 2 ? 0 : draw.between(0, second);
    Workload& w = s.workload;
    w = {};
    w.pump = draw.chance(400'000);
    w.sync = kind == 2;
    w.tags = kind == 0 ? draw.number(1, 2) : kind == 1 ? draw.number(16, members > 9 ? 24 : 128) : draw.number(0, 1);
    w.f32_sum = true;
    w.elements_min = w.elements_max = 8;
    w.world_min = members;
    w.compute_max = 10 * millisecond;
    w.entries = draw.number(1, 4);
    draw_paths(s, draw);
    const Duration longest = (members > 9 ? 20 : kind == 1 ? 150 : 40) * s.timeouts.peer;
    const std::int64_t bytes = rate_of_member(s) * draw.log_uniform(5 * second, longest) / second;
    Limits& l = s.limits;
    if (kind == 2) {
        const std::int64_t state = std::min(bytes / members, state_bytes_max) / w.entries / 8;
        w.state_elements_max = static_cast<std::uint32_t>(std::clamp<std::int64_t>(state, 1'000, 1 << 20));
        w.state_elements_min = w.state_elements_max / 2;
        if (draw.chance(500'000)) w.own_entries_per_mille = 500;
        if (draw.chance(500'000)) {
            // Some come late and receive from several holders.
            w.world_min = 2;
            for (std::uint32_t i = draw.number(1, members - 1); i-- > 1;)
                s.peers[i].start = draw.log_uniform(second, 10 * second);
            for (PeerPlan& peer : s.peers) peer.turns = 6;
        }
    } else {
        s.world.symbolic = true;
        w.elements_max = static_cast<std::uint32_t>(std::clamp<std::int64_t>(bytes / 8 / w.tags, 8, 1 << 27));
        w.elements_min = w.elements_max / 2 + 1;
        if (draw.chance(500'000)) l.concurrent_ops = draw.chance(500'000) ? w.tags : draw.number(1, 64);
        if (draw.chance(500'000)) w.many_window = static_cast<std::uint32_t>(draw.log_uniform(1, 128));
    }
    // Time-outs shorter than the default need faster paths or smaller units.
    const auto unit = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(narrowest(s) * (s.timeouts.peer / second) / 8 / 8 * 8, 4'096, 1 << 20));
    if (s.timeouts.peer < 10 * second) {
        l.chunk_bytes = std::min(l.chunk_bytes, unit);
        l.slice_bytes = std::min(l.slice_bytes, unit);
    }
    s.chaos_end = busy_time(s);
    s.stop_after = 10 * second + payload_time(s);
    draw_large_units(s);
    draw_resets(s);
    draw_bursts(s);
}

Duration payload_time(const Scenario& s) {
    return payload_bytes(s) * millisecond / std::max<std::int64_t>(rate_of_member(s) / 1000, 1);
}

// True if nothing happens that could cause a failure, and the queue of the narrowest path never delays a heartbeat for
// long.
static bool is_steady(const Scenario& s) {
    const sim::NetworkParameters& n = s.world.network;
    const sim::WorldParameters& world = s.world;
    const Workload& w = s.workload;
    // A connection that breaks costs only time.
    const auto mild_fault = [&](const Fault& f) {
        const bool short_enough =
            f.kind == FaultKind::reset || (f.kind == FaultKind::flap && f.duration <= burst_most(s));
        return short_enough && !f.forever && (f.again == 0 || f.every >= resets_apart * s.timeouts.peer);
    };
    const bool mild = s.faults.empty() || (s.faults.size() == 1 && mild_fault(s.faults.front()));
    const bool even = mild && !n.fails_dials() && !n.loses_packets() && n.tail_per_million == 0 &&
                      world.allocation_fails_per_million == 0 && world.staging_max == 0 &&
                      world.wrong_chunks_per_million == 0 && world.timer_late_max == 0 && s.timeouts.vote == 0 &&
                      s.limits.operation_bytes_max == 0;
    const bool usual = w.mismatch_per_mille == 0 && w.twice_per_mille == 0 && w.leave_in_flight_per_mille == 0 &&
                       w.visit_per_mille == 0 && w.cross_per_mille == 0 && w.odd_strategy_per_mille == 0 &&
                       w.schema_per_mille == 0 && w.hasty_revision_per_mille == 0 && w.interrupt_per_mille == 0 &&
                       w.beside == 0 && w.optimize_per_mille == 0;
    return even && usual && 8 * latency_most(s) <= s.timeouts.peer / 4 &&
           streams_most(s) * n.window_high <= narrowest(s) * (s.timeouts.peer / millisecond) / 1000 / 4;
}

sim::Violation check_steadiness(const Scenario& scenario, const Ledger& ledger) {
    if (!is_steady(scenario) || has_gangs(scenario)) return {};  // a gang ends when its first member leaves
    const auto failed = [](const Completion& c) {
        return c.result == Result::rank_connection_lost || c.result == Result::internal_error;
    };
    // Whether a member of the group left at about that time. Then a failure is allowed.
    const auto missed = [&](GroupId group, Instant begin, Instant end) {
        return std::any_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& life) {
            return life.group == group &&
                   life.gone_at >= begin - scenario.timeouts.peer - 2 * scenario.workload.compute_max &&
                   life.gone_at <= end + scenario.timeouts.peer;
        });
    };
    const auto says = [&](const auto& fact, const std::string& what) {
        return sim::Violation{"steady", formatted("{} of {} failed from {} ms to {} ms, though nothing went wrong: {}",
                                                  what, ledger.name(fact.life), fact.begin / millisecond,
                                                  fact.end / millisecond, to_text(fact.completion.cause))};
    };
    for (const LaunchFact& fact : ledger.launches) {
        // A newcomer is no fault, but a reduce-scatter was cut for the members before. A send may be for a newcomer that
        // is no member yet, or was never to become one.
        if (fact.completion.cause.has(CauseKind::group_changed)) continue;
        if (fact.completion.cause.has(CauseKind::other_end_not_member)) continue;
        if (fact.end != open_end && failed(fact.completion) && !missed(fact.group, fact.begin, fact.end))
            return says(fact, formatted("operation {}", fact.tag));
    }
    for (const SyncFact& fact : ledger.syncs) {
        if (fact.end != open_end && failed(fact.completion) && !missed(fact.group, fact.begin, fact.end))
            return says(fact, "a synchronization");
    }
    return {};
}

}  // namespace pccl::harness
