#include "harness/draw_units.hpp"

#include "harness/settle.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;

namespace {

// Rare: such runs take several times as long as others.
constexpr std::uint32_t many_entries_per_million = 4'000;  // of those on quick networks
constexpr std::uint32_t huge_per_million = 600;

constexpr std::uint32_t hashes_over_a_bad_edge_max = 16;

// The longest time for copies or requests that run one after the other.
constexpr Duration in_a_row_max = 10 * second;

}  // namespace

void draw_units(Limits& l, Draw& draw, std::uint32_t per_million) {
#define PCCL_DRAW_UNIT(field, least, most, small)                                                                      \
    if (draw.chance(per_million))                                                                                      \
        l.field = static_cast<decltype(l.field)>(                                                                      \
            (small) < 100 ? draw.number(least, small) : draw.log_uniform(std::max<std::int64_t>(least, 1), small));
    PCCL_UNIT_LIMITS(PCCL_DRAW_UNIT)
#undef PCCL_DRAW_UNIT
}

void take_units(Limits& to, const Limits& from) {
#define PCCL_TAKE_UNIT(field, least, most, small) to.field = from.field;
    PCCL_UNIT_LIMITS(PCCL_TAKE_UNIT)
#undef PCCL_TAKE_UNIT
}

void fit_units(Scenario& s) {
    Limits& l = s.limits;
    Workload& w = s.workload;
    const sim::NetworkParameters& n = s.world.network;
    l.sources_active_max = std::min(l.sources_active_max, l.sources_max);
    // A removed peer that comes back must learn why it was removed. Otherwise oracles could not judge the removal.
    l.removed_kept = std::max(l.removed_kept, static_cast<std::uint32_t>(s.peers.size()));
    // A bandwidth test has some thousands of frames at most.
    l.test_frame_most =
        std::max({l.test_frame_most, l.test_frame_least, static_cast<std::uint32_t>(l.test_bytes / 4096)});
    // A result is copied in few pieces (about 16 at most).
    const std::uint64_t largest =
        8 * std::max(std::uint64_t{w.elements_max} * w.elements_times, std::uint64_t{w.state_elements_max});
    l.copy_bytes = std::max(l.copy_bytes, largest / 16);
    // How many of `questions` must be in flight at a time, so that all are answered within in_a_row_max on a long path.
    const Duration round_trip = 2 * n.latency_high * (1000 + n.jitter_per_mille) / 1000 + 2 * s.world.timer_late_max;
    const auto together = [&](std::uint64_t questions) {
        return static_cast<std::uint32_t>(questions * static_cast<std::uint64_t>(round_trip) / in_a_row_max + 1);
    };
    if (!w.sync) return;
    // An edge that loses data for ever delivers a few hashes over each connection, and then the connection breaks. Each
    // time a peer time-out passes. Therefore lists of hashes, of entries and of chunks, are short.
    const auto loses = [](const Fault& f) { return f.forever && impairs_an_edge(f.kind); };
    if (std::any_of(s.faults.begin(), s.faults.end(), loses)) {
        w.entries = std::min(w.entries, hashes_over_a_bad_edge_max);
        l.chunk_bytes = std::max(l.chunk_bytes, std::min(w.state_elements_max / hashes_over_a_bad_edge_max * 8 + 8,
                                                         l.payload_bytes_max / 8 * 8));
    }
    const std::uint64_t chunks = w.entries * (8ull * w.state_elements_max / l.chunk_bytes + 1);
    l.chunk_requests_max = std::max(l.chunk_requests_max, together(chunks));
    l.hash_lists_in_flight = std::max(l.hash_lists_in_flight, together(w.entries));
}

void draw_many_entries(Scenario& s, std::uint32_t on) {
    Draw draw(sim::mix(s.seed, 231));
    if (!s.workload.sync || (on & (class_latency | class_bandwidth)) != 0 || s.peers.size() > 4 ||
        !draw.chance(many_entries_per_million))
        return;
    Workload& w = s.workload;
    Limits& l = s.limits;
    l.control_bytes_max = std::max<std::uint32_t>(l.control_bytes_max, 1u << 15);
    w.key_bytes = draw.number(100, 1000);
    l.key_bytes_max = std::max(l.key_bytes_max, w.key_bytes);
    w.entries = static_cast<std::uint32_t>(draw.log_uniform(500, 2'000));
    w.state_elements_min = 1;
    w.state_elements_max = 2;
    w.tags = std::min(w.tags, 2u);
    l.entries_max = w.entries + draw.number(0, 1);
    for (PeerPlan& plan : s.peers) plan.turns = std::min(plan.turns, 3u);
    widen_windows(s);
}

bool is_huge(const Scenario& s) { return s.workload.elements_times > 1; }

void draw_huge_counts(Scenario& s, std::uint32_t on, std::uint32_t peers_max) {
    Draw draw(sim::mix(s.seed, 232));
    if (!(on & class_shape) || peers_max < 2 || !draw.chance(huge_per_million)) return;
    s.faults.clear();
    s.core.clear();
    s.claim = Claim::all_end;
    s.world.symbolic = true;
    s.world.allocation_fails_per_million = 0;
    s.world.wrong_chunks_per_million = 0;
    sim::NetworkParameters& n = s.world.network;
    n = {};
    n.latency_low = n.latency_high = draw.log_uniform(50 * microsecond, 5 * millisecond);
    n.rate_low = n.rate_high = 1'000'000'000'000;
    n.window_low = n.window_high = 1 << 30;
    s.peers.resize(std::min<std::size_t>({s.peers.size(), peers_max, 3}));
    while (s.peers.size() < 2) s.peers.push_back(PeerPlan(s.peers.back()));
    for (PeerPlan& plan : s.peers) {
        plan.group = 0;
        plan.turns = 2;
        plan.start = std::min<Duration>(plan.start, 100 * millisecond);
    }
    Workload& w = s.workload;
    w.sync = w.async_sync = false;
    w.beside = 0;
    w.many_window = w.optimize_per_mille = w.cross_per_mille = w.early_update_per_mille = w.visit_per_mille = 0;
    w.interrupt_per_mille = w.quantized_per_mille = w.mismatch_per_mille = 0;
    w.tags = draw.number(1, 2);
    w.elements_min = 5;
    w.elements_max = 6;
    // Not a power of two, and more than 2^32 when multiplied by elements_min.
    w.elements_times = 900'000'000 + draw.number(0, 100'000'000);
    s.timeouts = {};
    Limits& l = s.limits;
    l = small_limits();
    l.payload_bytes_max = 1u << 24;
    set_slices(s, draw.number(12, 16) << 20);
    l.eager_bytes = 4 * l.slice_bytes;
    l.scratch_bytes = 64ull * l.slice_bytes;
    l.copy_bytes = draw.chance(500'000) ? 1ull << 32 : 1ull << 30;
    s.uneven_limits = false;
}

}  // namespace pccl::harness
