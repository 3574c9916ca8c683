#include "harness/scenario.hpp"

#include "core/numeric/quantize.hpp"
#include "harness/draw_faults.hpp"
#include "harness/draw_units.hpp"
#include "harness/even_world.hpp"
#include "harness/fault_refs.hpp"
#include "harness/flavours.hpp"
#include "harness/settle.hpp"
#include "harness/slow_world.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;
using sim::mix;

namespace {

constexpr std::uint32_t losses_per_million = 150'000;
constexpr std::uint32_t several_masters_per_million = 200'000;
constexpr std::uint32_t spare_address_per_million = 200'000;
constexpr std::uint32_t silent_among_faults_per_million = 500'000;
constexpr std::uint32_t advertised_per_million = 200'000;
constexpr std::uint32_t translated_per_million = 40'000;
constexpr std::uint32_t edge_of_limit_per_million = 100'000;
constexpr std::uint32_t small_unit_per_million = 150'000;

void draw_network(Scenario& s, Draw& draw, std::uint32_t on) {
    sim::NetworkParameters& n = s.world.network;
    n.latency_low = n.latency_high = draw.log_uniform(50 * microsecond, 2 * millisecond);
    n.rate_low = n.rate_high = 1'000'000'000;
    n.window_low = n.window_high = 65'536;
    if (on & class_latency) {
        n.latency_low = draw.log_uniform(100 * microsecond, 20 * millisecond);
        n.latency_high = draw.log_uniform(n.latency_low, 300 * millisecond);
        n.jitter_per_mille = draw.chance(500'000) ? draw.number(0, 1000) : 0;
        n.tail_per_million = draw.chance(300'000) ? draw.number(0, 3000) : 0;
        n.tail_max = draw.log_uniform(10 * millisecond, 3 * second);
        s.world.compute_max = draw.log_uniform(microsecond, 20 * millisecond);
    }
    if (on & class_bandwidth) {
        n.rate_low = draw.log_uniform(20'000, draw.chance(500'000) ? 1'000'000 : 1'250'000'000);
        n.rate_high = draw.log_uniform(n.rate_low, 1'250'000'000);
        n.window_low = draw.log_uniform(64, draw.chance(500'000) ? 1'000 : 65'536);
        n.window_high = draw.log_uniform(n.window_low, 1 << 18);
    }
    if (on & class_segmentation) {
        n.split_per_million = static_cast<std::uint32_t>(draw.log_uniform(1'000, 500'000));
        n.tiny_read_per_million = static_cast<std::uint32_t>(draw.log_uniform(1'000, 300'000));
    }
    if (on & class_connection) {
        if (draw.chance(500'000)) n.refuse_per_million = static_cast<std::uint32_t>(draw.log_uniform(1'000, 200'000));
        if (draw.chance(300'000))
            n.black_hole_per_million = static_cast<std::uint32_t>(draw.log_uniform(1'000, 100'000));
        if (draw.chance(300'000))
            n.accept_close_per_million = static_cast<std::uint32_t>(draw.log_uniform(1'000, 100'000));
    }
    if (on & class_clock) {
        s.world.drift_ppm = draw.number(0, 1000);
        s.world.timer_late_max = draw.log_uniform(10 * microsecond, 300 * millisecond);
    }
    if (on & class_master) s.world.disk_high = draw.log_uniform(100 * microsecond, 200 * millisecond);
}

void draw_limits(Scenario& s, Draw& draw, std::uint32_t on) {
    Limits& l = s.limits;
    l.slice_bytes = static_cast<std::uint32_t>(draw.log_uniform(16, 4096)) / 8 * 8;
    l.eager_bytes = std::max(l.slice_bytes, static_cast<std::uint32_t>(draw.log_uniform(64, 16'384)));
    l.chunk_bytes = static_cast<std::uint32_t>(draw.log_uniform(16, 4096)) / 8 * 8;
    l.concurrent_ops = draw.number(1, 16);
    l.scratch_bytes = 1u << 16;
    l.payload_bytes_max = 4096;
    l.control_bytes_max = 1u << 16;
    if (on & class_limits) {
        if (draw.chance(500'000)) l.concurrent_ops = 1;
        if (draw.chance(500'000)) l.eager_bytes = l.slice_bytes;
        if (draw.chance(500'000)) l.min_slots = 1 + draw.number(0, 2);
        if (draw.chance(500'000)) l.scratch_bytes = l.slice_bytes * l.min_slots;
        if (draw.chance(500'000)) l.chunks_in_flight = 1;
        if (draw.chance(500'000)) l.hashes_in_flight = 1;
        if (draw.chance(300'000))
            s.world.allocation_fails_per_million = static_cast<std::uint32_t>(draw.log_uniform(500, 50'000));
    }
    s.timeouts.peer = draw.log_uniform(second, 10 * second);
    s.timeouts.master = draw.log_uniform(5 * second, 30 * second);
    if ((on & class_limits) && draw.chance(100'000)) s.timeouts.master = 0;
}

void draw_workload(Scenario& s, Draw& draw, std::uint32_t on, bool allow_sync) {
    Workload& w = s.workload;
    w.pump = draw.chance(400'000);
    w.sync = draw.chance(700'000) && allow_sync;
    w.tags = draw.chance(150'000) ? 0 : static_cast<std::uint32_t>(draw.log_uniform(1, 9));
    w.elements_max = static_cast<std::uint32_t>(draw.log_uniform(1, draw.chance(200'000) ? 4000 : 500));
    w.exact = draw.chance(750'000);
    w.entries = draw.number(1, 4);
    if (draw.chance(300'000)) w.own_entries_per_mille = 400;
    // Sometimes applications compute for so long that members can fall silent and resume in between.
    w.compute_max = draw.chance(150'000) ? draw.log_uniform(300 * millisecond, 3 * second)
                                         : draw.log_uniform(10 * microsecond, 100 * millisecond);
    w.in_place_per_mille = draw.chance(500'000) ? 500 : draw.chance(500'000) ? 0 : 1000;
    if (on & class_application) {
        if (draw.chance(300'000)) w.mismatch_per_mille = draw.number(1, 60);
        if (draw.chance(300'000)) w.twice_per_mille = draw.number(1, 300);
        if (draw.chance(300'000)) w.leave_in_flight_per_mille = draw.number(1, 100);
        if (draw.chance(300'000)) w.drift_per_mille = draw.number(1, 300);
    }
}

void draw_peers(Scenario& s, Draw& draw, std::uint32_t on, std::uint32_t peers_max) {
    static constexpr std::uint32_t usual[] = {2, 2, 2, 3, 3, 3, 4, 4};
    std::uint32_t count = usual[draw.below(8)];
    std::uint32_t groups = 1;
    std::uint32_t stripes = draw.chance(500'000) ? 1 : draw.number(2, 4);
    if (on & class_shape) {
        if (draw.chance(300'000)) count = draw.number(1, 9);
        if (draw.chance(400)) count = static_cast<std::uint32_t>(draw.log_uniform(12, 120));
        groups = draw.chance(400'000) ? draw.number(1, 3) : 1;
    }
    count = std::min(count, peers_max);
    const Duration spread = draw.log_uniform(millisecond, 200 * millisecond);
    const bool late = draw.chance(500'000);
    for (std::uint32_t i = 0; i < count; ++i) {
        PeerPlan plan;
        plan.start = late && i >= 2 ? draw.log_uniform(millisecond, 2 * second) : draw.between(0, spread);
        plan.group = static_cast<GroupId>(draw.below(groups));
        plan.stripes = stripes;
        plan.turns = draw.number(3, 14);
        plan.rejoins = draw.chance(800'000);
        s.peers.push_back(plan);
    }
}

// Packet loss. A sender is slower after it.
void draw_losses(Scenario& s, std::uint32_t on) {
    Draw draw(mix(s.seed, 195));
    if (!(on & (class_latency | class_bandwidth)) || !draw.chance(losses_per_million)) return;
    sim::NetworkParameters& n = s.world.network;
    n.loss_per_million = static_cast<std::uint32_t>(draw.log_uniform(500, 30'000));
    if (draw.chance(300'000)) n.queue_max = draw.log_uniform(5 * millisecond, 300 * millisecond);
}

// A second address of the master. All peers know it, and the master is there after some of its crashes.
void draw_spare_address(Scenario& s) {
    Draw draw(mix(s.seed, 262));
    const auto any = [&](FaultKind kind) {
        return std::any_of(s.faults.begin(), s.faults.end(), [kind](const Fault& f) { return f.kind == kind; });
    };
    if (!any(FaultKind::crash_master) || any(FaultKind::two_masters) || !draw.chance(spare_address_per_million)) return;
    for (PeerPlan& plan : s.peers) {
        const auto at = static_cast<std::ptrdiff_t>(draw.below(plan.masters.size() + 1));
        plan.masters.insert(plan.masters.begin() + at, MasterAddress::spare);
        if (draw.chance(500'000))
            plan.masters.insert(plan.masters.begin() + static_cast<std::ptrdiff_t>(draw.below(plan.masters.size() + 1)),
                                MasterAddress::dead);
    }
}

// Several addresses of the master, some of them useless. Also peers that cannot be reached at the address they dial
// from.
void draw_addresses(Scenario& s, std::uint32_t on) {
    if (!(on & class_shape)) return;
    Draw draw(mix(s.seed, 182));
    const sim::NetworkParameters& n = s.world.network;
    const bool calm = !n.fails_dials() && std::none_of(s.faults.begin(), s.faults.end(),
                                                       [](const Fault& f) { return parts_from_master(f.kind); });
    if (draw.chance(several_masters_per_million)) {
        for (PeerPlan& plan : s.peers) {
            if (draw.chance(400'000)) continue;
            for (std::uint32_t i = draw.number(1, 2); i-- != 0;) {
                const auto at = static_cast<std::ptrdiff_t>(draw.below(plan.masters.size() + 1));
                const bool dead = draw.chance(500'000) || (!calm && !draw.chance(silent_among_faults_per_million));
                plan.masters.insert(plan.masters.begin() + at, dead ? MasterAddress::dead : MasterAddress::silent);
            }
        }
    }
    draw_spare_address(s);
    Draw gateways(mix(s.seed, 184));
    // A node that roams does not stay reachable at its advertised address.
    const bool roams =
        std::any_of(s.faults.begin(), s.faults.end(), [](const Fault& fault) { return fault.kind == FaultKind::roam; });
    if (roams || !gateways.chance(advertised_per_million)) return;
    const bool interfaces = Draw(mix(s.seed, 245)).chance(400'000);
    for (PeerPlan& plan : s.peers) (interfaces ? plan.two_interfaces : plan.advertises) = gateways.chance(700'000);
}

// Only the founder has the state, nobody can dial it, and the others come at once.
void draw_hidden_founder(Scenario& s, Draw& draw) {
    PeerPlan& founder = s.peers.front();
    if (s.peers.size() < 3 || !s.workload.sync || founder.advertises || founder.two_interfaces || !draw.chance(150'000))
        return;
    const Instant come = founder.start + draw.log_uniform(10 * millisecond, second);
    for (PeerPlan& plan : s.peers) {
        plan.translator = sim::Translator::none;
        plan.site = plan.lan = 0;
        plan.advertises = false;
        if (&plan != &founder && draw.chance(800'000)) plan.start = come;
    }
    founder.translator = draw.chance(500'000) ? sim::Translator::cone : sim::Translator::symmetric;
    founder.site = 10;
}

// Ports that translators forward, and several networks behind one translator that is not the strictest.
void draw_networks(Scenario& s) {
    Draw draw(mix(s.seed, 291));
    const bool ports = draw.chance(300'000), networks = draw.chance(300'000);
    for (PeerPlan& plan : s.peers) {
        if (plan.translator == sim::Translator::none) continue;
        if (ports) plan.advertises = draw.chance(700'000);
        if (networks && plan.translator != sim::Translator::symmetric) plan.lan = draw.number(0, 1);
    }
}

// Peers behind address translators, so that every two of them can connect somehow: any kind but the strictest, or
// at most one network behind the strictest one and all others reachable.
void draw_translators(Scenario& s, const GeneratorOptions& options, std::uint32_t on) {
    Draw draw(mix(s.seed, 290));
    const bool alone = (options.classes & ~class_sync) == class_nat;
    const bool roams =
        std::any_of(s.faults.begin(), s.faults.end(), [](const Fault& fault) { return fault.kind == FaultKind::roam; });
    if (!(on & class_nat) || roams || s.even || !(draw.chance(translated_per_million) || alone)) return;
    const bool strict = draw.chance(300'000);
    const std::uint32_t strict_site = draw.number(1, 3);
    for (PeerPlan& plan : s.peers) {
        const bool one_network = draw.chance(200'000);
        const auto own = 10 + static_cast<std::uint32_t>(&plan - s.peers.data());
        const std::uint32_t site = one_network ? draw.number(1, 3) : own;
        if (plan.advertises || plan.two_interfaces || draw.chance(300'000)) continue;
        plan.site = site;
        plan.translator = draw.chance(500'000) || strict ? sim::Translator::open : sim::Translator::cone;
        if (strict && site == strict_site) plan.translator = sim::Translator::symmetric;
    }
    // One translator has one kind.
    for (PeerPlan& plan : s.peers) {
        if (plan.translator != sim::Translator::none && plan.site < 10 && !(strict && plan.site == strict_site))
            plan.translator = strict ? sim::Translator::open : sim::Translator::cone;
    }
    draw_networks(s);
    draw_hidden_founder(s, draw);
}

// Limits that the run just reaches.
void draw_edges_of_limits(Scenario& s, std::uint32_t on) {
    Draw draw(mix(s.seed, 185));
    if (!(on & class_limits)) return;
    Limits& l = s.limits;
    Timeouts& t = s.timeouts;
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    std::uint32_t stripes = 1;
    for (const PeerPlan& plan : s.peers) stripes = std::max(stripes, plan.stripes);
    const auto tight = [&] { return draw.chance(edge_of_limit_per_million); };
    if (tight()) l.peers_max = peers + draw.number(0, 2);
    if (tight()) l.stripes_max = stripes;
    if (tight()) l.tags_max = std::max(s.workload.tags, 1u);
    if (tight()) l.entries_max = std::max(s.workload.entries, 1u);
    if (tight()) l.revision_max = 1'000'000;
    if (tight()) l.key_bytes_max = std::max(s.workload.key_bytes, 16u);
    if (tight()) l.payload_bytes_max = std::max({l.slice_bytes, l.chunk_bytes, numeric::quantized_bytes_least});
    if (tight()) {
        // Longer than a round trip.
        const sim::NetworkParameters& n = s.world.network;
        const Duration round_trip = 2 * n.latency_high * (1000 + n.jitter_per_mille) / 1000;
        t.dial = std::max(draw.log_uniform(second, 6 * second), 2 * round_trip + 4 * s.world.timer_late_max);
    }
    if (tight()) {
        t.redial_min = draw.log_uniform(5 * millisecond, 200 * millisecond);
        t.redial_max = std::max(t.redial_min, draw.log_uniform(200 * millisecond, 2 * second));
    }
}

}  // namespace

static Scenario generate(std::uint64_t seed, const GeneratorOptions& options, sim::Choices* choices) {
    Scenario s;
    s.seed = seed;
    Draw classes(mix(seed, 100), choices), network(mix(seed, 101), choices), limits(mix(seed, 102), choices),
        workload(mix(seed, 103), choices), peers(mix(seed, 104), choices), faults(mix(seed, 105), choices);
    auto on = static_cast<std::uint32_t>(classes.bits()) & options.classes & ~(class_gangs | class_hosts);
    if (options.classes != GeneratorOptions{}.classes) on |= options.classes & (class_gangs | class_hosts);
    s.chaos_end = classes.log_uniform(300 * millisecond, 12 * second);
    draw_network(s, network, on);
    draw_limits(s, limits, on);
    draw_workload(s, workload, on, (options.classes & class_sync) != 0);
    draw_peers(s, peers, on, options.peers_max);
    // Slow links with slices that take long on them, so that faults fall into the middle of frames.
    if ((on & class_bandwidth) && network.chance(500'000)) {
        sim::NetworkParameters& n = s.world.network;
        n.rate_low = network.log_uniform(10'000, 200'000);
        n.rate_high = 2 * n.rate_low;
        n.window_low = network.log_uniform(100, 1'000);
        n.window_high = network.log_uniform(n.window_low, 4'000);
        set_slices(s, network.number(64, 512) * 8);
        s.workload.elements_max = network.number(100, 1'200);
        s.workload.tags = std::min(std::max(s.workload.tags, 1u), 4u);
        for (PeerPlan& plan : s.peers) plan.turns = std::min(plan.turns, 5u);
    }
    if (on & class_bandwidth) {
        Draw shared(mix(seed, 106));
        sim::NetworkParameters& n = s.world.network;
        if (shared.chance(400'000)) {
            n.down_low = n.rate_low;
            n.down_high = n.rate_high;
        }
        if (shared.chance(300'000)) n.flow_rate = shared.log_uniform(n.rate_low, n.rate_high);
    }
    draw_losses(s, on);
    raise_slices(s);
    Draw crowds(mix(seed, 170));
    if ((on & class_hostile) && crowds.chance(500'000))
        s.limits.unregistered_links_max = crowds.number(32, 64) + 4 * static_cast<std::uint32_t>(s.peers.size());
    // A quarter of it is for hosts of the run: hardly more than one neighbour dials at once.
    if (crowds.chance(200'000)) {
        std::uint32_t dialled = 1;
        for (const PeerPlan& plan : s.peers) dialled = std::max(dialled, plan.stripes);
        s.limits.unregistered_links_max = 4 * (dialled + crowds.number(1, 3));
    }
    if (crowds.chance(200'000)) s.limits.newcomer_links_max = crowds.number(1, 6);
    // More peers than such connections begin at the same time.
    Draw together(mix(seed, 174));
    if ((on & class_limits) && s.peers.size() >= 4 && together.chance(30'000)) {
        s.limits.unregistered_links_max = together.number(2, static_cast<std::uint32_t>(s.peers.size()));
        const Instant begin = together.log_uniform(millisecond, second);
        for (PeerPlan& plan : s.peers)
            plan.start = begin + static_cast<Duration>(together.below(s.peers.size())) * microsecond;
    }
    Draw journal(mix(seed, 108));
    if (journal.chance(700'000)) s.limits.journal_records = static_cast<std::uint32_t>(journal.log_uniform(1, 60));
    Draw flavours(mix(seed, 106));
    draw_flavours(s, flavours, on, options.peers_max);
    Draw quantized(mix(seed, 150));
    if (quantized.chance(350'000)) s.workload.quantized_per_mille = quantized.number(100, 1000);
    Draw collectives(mix(seed, 151));
    if (collectives.chance(400'000)) s.workload.collectives_per_mille = collectives.number(200, 1000);
    // Pieces that do not fit into votes, again and again: they come to use direct edges.
    Draw pieces(mix(seed, 153));
    const bool in_pieces = pieces.chance(120'000);
    if (in_pieces) {
        s.workload.collectives_per_mille = pieces.number(600, 1000);
        s.workload.pieces_per_mille = pieces.number(500, 1000);
    }
    Draw sends(mix(seed, 152));
    if (sends.chance(600'000)) s.workload.sends_per_mille = sends.number(200, 1000);
    widen_windows(s);
    s.chaos_end = std::max(s.chaos_end, busy_time(s));
    draw_faults(s, faults, on);
    draw_bad_pairs(s, options, on);
    draw_races(s, on, options.peers_max);
    draw_edges_of_limits(s, on);
    Draw units(mix(seed, 230));
    if (on & class_limits) draw_units(s.limits, units, small_unit_per_million);
    Draw votes(mix(seed, 270));
    if (votes.chance(300'000)) s.limits.vote_input_bytes_max = static_cast<std::uint32_t>(votes.log_uniform(16, 8192));
    if (in_pieces && pieces.chance(800'000)) s.limits.vote_input_bytes_max = pieces.number(0, 64);
    Draw pairs(mix(seed, 271));
    if (pairs.chance(300'000)) s.limits.pairwise_bytes_max = static_cast<std::uint64_t>(pairs.log_uniform(64, 1 << 20));
    if (pairs.chance(500'000))
        s.limits.near_pairwise_bytes_max = static_cast<std::uint64_t>(pairs.log_uniform(64, 1 << 20));
    draw_many_entries(s, on);
    draw_huge_counts(s, on, options.peers_max);
    fit_units(s);
    s.stop_after = classes.log_uniform(millisecond, 5 * second);
    // draw_faults may have added tags or a vote limit.
    fit_beside(s);
    draw_followers(s, options.classes);
    draw_repeated(s, on);
    sort_by_time(s.faults);
    draw_addresses(s, on);
    draw_slow_world(s, options, on);
    draw_even_world(s, options, on);
    draw_stages(s, on);
    draw_gangs(s, options, on);
    draw_translators(s, options, on);
    draw_hosts(s, on);
    draw_revocations(s, on);
    draw_liars(s, options, on);
    draw_away(s, on);
    if (Draw uneven(mix(seed, 454)); uneven.chance(100'000)) {
        for (PeerPlan& plan : s.peers) plan.stripes = std::min(uneven.number(1, 4), s.limits.stripes_max);
    }
    draw_mild(s, options, on);
    s.limits.peers_max = std::max(s.limits.peers_max, static_cast<std::uint32_t>(s.peers.size()));
    fit_collectives(s);
    fit_search(s);
    fit_computes(s);
    fit_disks(s);
    fit_kept(s);
    if (Draw far(mix(seed, 452)); far.chance(100'000)) {
        // Equal in their low bits.
        const bool low = far.chance(500'000);
        for (PeerPlan& plan : s.peers) plan.group = low ? plan.group << 16 : plan.group * 2'654'435'761u;
    }
    if (Draw revisions(mix(seed, 453)); revisions.chance(40'000)) {
        const auto first = static_cast<std::uint64_t>(revisions.log_uniform(1, 100'000'000'000'000'000));
        s.workload.first_revision = std::min(first, s.limits.revision_max / 2);
    }
    s.patience = patience_of(s);
    return s;
}

Scenario generate(std::uint64_t seed, const GeneratorOptions& options) { return generate(seed, options, nullptr); }

Scenario generate_from(std::span<const std::uint8_t> bytes, const GeneratorOptions& options) {
    sim::Choices choices(bytes);
    return generate(numeric::checksum64(bytes.data(), bytes.size()), options, &choices);
}

}  // namespace pccl::harness
