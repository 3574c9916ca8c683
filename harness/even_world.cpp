#include "harness/even_world.hpp"

#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/topology/bandwidth_probe.hpp"
#include "harness/draw_units.hpp"
#include "harness/ledger.hpp"
#include "harness/one_fault.hpp"
#include "harness/run.hpp"
#include "harness/settle.hpp"
#include "net-sim/draw.hpp"

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <vector>

namespace pccl::harness {

using namespace core;
using sim::Draw;

namespace {

constexpr std::uint32_t even_per_million = 30'000;
// Where paths are not equal.
constexpr std::int64_t slow_rate = 2'000'000;  // bytes per second
// Bytes per second for equal paths, and for huge arrays. A full window then leaves in a small part of a peer time-out.
constexpr std::int64_t fast_rate = 1'000'000'000;
constexpr Duration latencies_of_patience = 200;  // a peer time-out of fewer makes peers repeat themselves
// Where paths are equal. From its plan on, an edge needs six latencies until the master knows that it is up.
constexpr Duration latencies_to_connect = 16;
constexpr Duration times = 100;
// Smaller differences do not count: heartbeats use the uplink and records the disk, for microseconds. A tick is at
// least 10 ms.
constexpr Duration as_good_as_none = millisecond;

struct Returned {
    std::string who;
    Instant begin = 0, end = 0;
    bool surveys = false;  // with so many members that tests of it run beside each other
};

std::vector<Returned> calls_of(const Ledger& ledger) {
    std::vector<Returned> calls;
    const auto add = [&](const auto& list, const char* what) {
        for (const auto& fact : list)
            calls.push_back({formatted("{} {}", ledger.name(fact.life), what), fact.begin, fact.end});
    };
    add(ledger.votes, "call of the run");
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const VoteFact& fact = ledger.votes[i];
        calls[i].surveys = fact.kind == CallKind::optimize && fact.completion.attributes.group_world > 2;
    }
    add(ledger.launches, "reduction");
    add(ledger.syncs, "synchronization");
    // Sorted by process, because calls that two processes begin at the same time have no order.
    std::stable_sort(calls.begin(), calls.end(), [](const Returned& a, const Returned& b) {
        return std::tie(a.who, a.begin) < std::tie(b.who, b.begin);
    });
    return calls;
}

}  // namespace

static std::int64_t least_rate(const Scenario& s) { return has_equal_paths(s) || is_huge(s) ? fast_rate : slow_rate; }

bool has_equal_paths(const Scenario& s) { return s.world.network.latency_low == s.world.network.latency_high; }

// As many connections that have not said hello as all peers can open at once: a quarter is for hosts of the run.
static std::uint32_t room_for_all(const Scenario& s) {
    std::uint32_t dialled = 2;
    for (const PeerPlan& plan : s.peers) dialled += plan.stripes;
    return 4 * dialled;
}

void draw_even_world(Scenario& s, const GeneratorOptions& options, std::uint32_t on) {
    Draw draw(sim::mix(s.seed, 260));
    const bool alone = options.classes == class_even;
    if (!(on & class_even) || !(draw.chance(even_per_million) || alone)) return;
    GeneratorOptions plain;
    plain.classes = class_shape | class_sync | class_limits | class_latency | class_segmentation;
    plain.peers_max = options.peers_max;
    const std::uint64_t seed = s.seed;
    s = generate(sim::mix(seed, 261), plain);
    s.seed = seed;
    s.even = true;
    s.faults.clear();
    for (PeerPlan& plan : s.peers) plan.gang = {};  // patience with a gang is a time-out
    sim::NetworkParameters& n = s.world.network;
    // Constant, but half of them not the same for all pairs: what a neighbour sends may come before what the master does.
    n.latency_low = draw.chance(500'000) ? std::min(n.latency_low, n.latency_high / 8 + 1) : n.latency_high;
    n.jitter_per_mille = 0;
    // The places at which messages are split are drawn, and heartbeats shift that draw. Of peers that begin at the same
    // time, another one would then be the first.
    if (has_equal_paths(s)) n.split_per_million = n.tiny_read_per_million = 0;
    n.stop_faults();
    n.window_low = n.window_high = 64 << 20;
    if (!has_equal_paths(s)) {
        for (PeerPlan& plan : s.peers) plan.turns = std::max(plan.turns, draw.number(4, 24));
    }
    // Where paths are not equal, a slice may take its time: what it belongs to may change while it lands.
    n.rate_low = n.rate_high = has_equal_paths(s) ? 10'000'000'000 : draw.log_uniform(least_rate(s), 10'000'000'000);
    n.down_low = n.down_high = n.flow_rate = 0;
    n.regions.clear();
    n.region_latency.clear();
    n.region_rate.clear();
    s.world.drift_ppm = 0;
    s.world.timer_late_max = 0;
    s.world.compute_max = 0;
    s.world.disk_low = s.world.disk_high = 10 * microsecond;
    s.world.allocation_fails_per_million = 0;
    s.world.staging_max = 0;
    s.world.wrong_chunks_per_million = 0;
    s.timeouts.vote = 0;
    // A peer time-out below 4 s makes the ticks of the two runs differ.
    if (draw.chance(500'000)) s.timeouts.peer = draw.log_uniform(200 * millisecond, 4 * second);
    s.timeouts.peer = std::max(s.timeouts.peer, latencies_to_connect * n.latency_high);
    // Where a round trip is long, nothing comes for long. Nobody should repeat what it has said.
    if (!has_equal_paths(s)) s.timeouts.peer = std::max(s.timeouts.peer, latencies_of_patience * n.latency_high);
    // Tests wait for words of the receiver where they send more than what always may be on its way.
    s.limits.test_bytes = std::min(s.limits.test_bytes, core::BandwidthProbe::always_sent(s.timeouts));
    // Of slices that come at the same time, the first one would get the memory.
    s.limits.operation_bytes_max = 0;
    // A peer with an address that does not answer has to wait for its dial. No peer gets such an address.
    for (PeerPlan& plan : s.peers) plan.masters = PeerPlan{}.masters;
    // Nobody gives way at a door.
    s.limits.unregistered_links_max = std::max(s.limits.unregistered_links_max, room_for_all(s));
    // A search of a ring takes many events.
    if (Draw searches(sim::mix(s.seed, 263)); searches.chance(500'000)) s.limits.search_steps = searches.number(1, 20);
    // No request is declined because others came early too.
    s.limits.early_requests_max = core::Limits{}.early_requests_max;
    // Results that a heartbeat has not acknowledged would send the next reduction around the ring.
    s.limits.vote_results_untold = core::Limits{}.vote_results_untold;
    if (has_equal_paths(s) && draw.chance(500'000)) draw_one_fault(s, draw);
}

bool is_even(const Scenario& s) {
    const sim::NetworkParameters& n = s.world.network;
    const sim::WorldParameters& w = s.world;
    const Workload& program = s.workload;
    const bool as_equal_as_it_says = has_equal_paths(s) ? n.split_per_million == 0 && n.tiny_read_per_million == 0 &&
                                                              s.timeouts.peer >= latencies_to_connect * n.latency_high
                                                        : s.timeouts.peer >= latencies_of_patience * n.latency_high;
    return s.even && s.faults.empty() && as_equal_as_it_says && n.rate_low >= least_rate(s) &&
           n.jitter_per_mille == 0 && n.tail_per_million == 0 && !n.fails_dials() && !n.loses_packets() &&
           n.window_low == n.window_high && n.rate_low == n.rate_high && n.down_low == 0 && n.down_high == 0 &&
           n.flow_rate == 0 && n.regions.empty() && w.drift_ppm == 0 && w.timer_late_max == 0 && w.compute_max == 0 &&
           w.disk_low == w.disk_high && w.disk_low <= 10 * microsecond && w.allocation_fails_per_million == 0 &&
           w.staging_max == 0 && w.wrong_chunks_per_million == 0 && s.timeouts.vote == 0 &&
           program.interrupt_per_mille == 0 && program.beside == 0 && s.limits.operation_bytes_max == 0 &&
           s.limits.unregistered_links_max >= room_for_all(s) &&
           s.limits.early_requests_max >= core::Limits{}.early_requests_max &&
           std::all_of(s.peers.begin(), s.peers.end(),
                       [](const PeerPlan& plan) { return plan.masters == PeerPlan{}.masters; });
}

sim::Violation check_healing(const Verdict& verdict) {
    using core::Probe;
    for (const Probe probe :
         {Probe::stalled_slice_again, Probe::stalled_stripe_tried_again, Probe::stalled_send_cancelled,
          Probe::ready_told_on_all_links, Probe::starved_operation_given_up, Probe::edge_stuck,
          Probe::edge_stuck_after_vote, Probe::sync_request_declined}) {
        const auto index = static_cast<std::size_t>(probe);
        const std::uint64_t times_hit = verdict.probes[index];
        if (times_hit != 0)
            return {"waiting", formatted("without a fault, {} times: {}", times_hit, probe_texts[index].what)};
    }
    return {};
}

// Lengthens the time-outs that wait for something other than bytes. The duration of a bandwidth test is not a time-out.
Scenario with_more_patience(const Scenario& scenario) {
    Scenario s = scenario;
    Timeouts& t = s.timeouts;
    for (Duration* time : {&t.peer, &t.master, &t.handshake, &t.dial, &t.redial_min, &t.redial_max, &t.vote_warn})
        *time *= times;
    s.even = false;
    return s;
}

sim::Violation check_waiting(const Ledger& ledger, const Ledger& patient) {
    std::vector<Returned> calls = calls_of(ledger), others = calls_of(patient);
    const auto same = [](const Returned& a, const Returned& b) {
        return a.who == b.who && std::abs(a.begin - b.begin) < as_good_as_none &&
               std::abs(a.end - b.end) < as_good_as_none;
    };
    // Which tests of a survey run beside each other depends on microseconds, and so does its end. Calls can be compared
    // that return before the first survey that took another time. But no survey waits for a tick: the first one that
    // took another time did not take much longer.
    Instant comparable = open_end;
    const Returned *longer = nullptr, *usual = nullptr;
    for (std::size_t i = 0; i < std::min(calls.size(), others.size()); ++i) {
        if (!calls[i].surveys || !others[i].surveys || calls[i].who != others[i].who || same(calls[i], others[i]))
            continue;
        if (others[i].begin < comparable) std::tie(longer, usual) = std::tuple(&others[i], &calls[i]);
        comparable = std::min({comparable, calls[i].begin, others[i].begin});
    }
    if (longer != nullptr && std::abs(longer->begin - usual->begin) < as_good_as_none &&
        longer->end - longer->begin > 2 * (usual->end - usual->begin) + second)
        return {"waiting",
                formatted("an optimize of {} took {} ms, and {} ms with time-outs a hundred times as long", usual->who,
                          (usual->end - usual->begin) / millisecond, (longer->end - longer->begin) / millisecond)};
    // When the goals of a run are reached, or its programs are told to end, microseconds decide who begins another turn.
    const Instant over = std::min(ledger.work_over_at, patient.work_over_at);
    const auto is_beyond = [&](const Returned& call, Duration margin) {
        return call.end >= comparable - margin || call.begin >= over - margin;
    };
    for (std::vector<Returned>* const list : {&calls, &others})
        std::erase_if(*list, [&](const Returned& call) { return is_beyond(call, as_good_as_none); });
    // One of two calls that are the same may be within the margin, and the other one not.
    const auto lone_at_the_end = [&](const std::vector<Returned>& there) {
        return [&](const Returned& call) {
            return is_beyond(call, 2 * as_good_as_none) &&
                   std::ranges::none_of(there, [&](const Returned& one) { return same(call, one); });
        };
    };
    std::erase_if(calls, lone_at_the_end(others));
    std::erase_if(others, lone_at_the_end(calls));
    const auto [call, other] = std::mismatch(calls.begin(), calls.end(), others.begin(), others.end(), same);
    if (call == calls.end() && other == others.end()) return {};
    const auto text = [](const Returned& returned) {
        return formatted("{} from {} to {} us", returned.who, returned.begin / microsecond, returned.end / microsecond);
    };
    return {"waiting", formatted("{}, with time-outs a hundred times as long: {}",
                                 call == calls.end() ? "no further call" : text(*call),
                                 other == others.end() ? "no further call" : text(*other))};
}

}  // namespace pccl::harness
