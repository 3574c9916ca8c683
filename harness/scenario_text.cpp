#include "harness/scenario_text.hpp"

#include "core/base/format.hpp"
#include "core/numeric/quantize.hpp"
#include "harness/draw_units.hpp"
#include "harness/expectations.hpp"
#include "harness/fault_refs.hpp"
#include "harness/scenario_reader.hpp"
#include "harness/triggers.hpp"
#include "net-sim/describe.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace pccl::harness {

using namespace core;

namespace {

struct FaultName {
    const char* name;
    const char* meaning;
};
constexpr std::array<FaultName, fault_kinds> fault_names = {{
    {"partition", "nodes whose bit is set in a and the others do not reach each other"},
    {"one-way", "nothing gets from node a to node b"},
    {"cut-pair", "nodes a and b do not reach each other; both may see the master"},
    {"clog", "node a sends nothing, then everything at once"},
    {"reset", "a connection (drawn from value; b bit 0: one with the master, bit 1: one of the node at which `after` "
              "happened, bit 2: one that was dialled to that node, bit 3: one of node a, bit 4: one that the node of "
              "`after` dialled): both ends see a reset, bytes on their way are lost"},
    {"end-early", "a connection (as for reset) ends after a part of what is on its way"},
    {"half-open", "bytes of a connection (as for reset) vanish; at most one end is told"},
    {"crash-peer", "node a dies; value bit 0: its system resets the links, bit 1: started anew after `for`"},
    {"crash-master",
     "the master dies and is started with its journal after `for`; bit 40 of value: at its spare address, or back"},
    {"aimed-peer", "node a dies between two effects: at the b-th effect of a kind drawn from value"},
    {"aimed-master", "the master dies between two effects: at the b-th one of a kind drawn from value"},
    {"pause", "node a stops (b odd: every node); then everything that waits comes before its timers"},
    {"stall", "one direction of a connection (as for reset) stops, then everything comes at once"},
    {"corrupt", "a bit of what is on its way over a connection (as for reset) flips"},
    {"hostile", "a stranger dials node a and says b things, drawn from value: lies, noise; or a silent crowd"},
    {"replayed-hello", "a stranger says again what node a's connection to the master began with"},
    {"torn-write", "the master dies and finds a part of its last record in its journal"},
    {"older-journal", "the master dies and comes back with a journal that lacks the last b records"},
    {"empty-journal", "the master dies and comes back as a new run"},
    {"two-masters",
     "a second master takes the journal over while the first one lives; new connections reach the second"},
    {"full-disk", "records of the master fail: it stops, and is started with its journal after `for`"},
    {"slow-disk", "records of the master take up to value ms"},
    {"stuck-disk", "records of the master are not answered; where it stops for that it is back after b ms; value bit "
                   "1: on a disk that "
                   "answers; bit 2: killed (bit 0: with reset) when the fault ends, else the answers come then"},
    {"slow-compute", "computes of node a take 1 + value % 1000 times as long"},
    {"hang", "the application of node a makes no call"},
    {"roam", "node a gets another address: its connections break, nobody reaches it at the old one"},
    {"swizzle", "half of the nodes (drawn from value) fall silent one by one and come back in another order"},
    {"swallow", "what node a writes to node b at once, if longer than value bytes, never arrives, nor what follows"},
    {"garble", "bits of what node a sends to node b flip, by content (value): the same ones when it is sent again"},
    {"snap", "connections between a and b break when a has sent value bytes to b; value from 2^32: at a pattern"},
    {"stop-master", "the master is stopped on purpose, which ends the run; a new one begins after `for`"},
    {"flap", "connections of nodes a and b break when value bytes went one way, each that comes up again"},
    {"clock-jump", "the clock of node a goes forward by `for` at once"},
    {"interface", "one of two interfaces of node a is down: that to its peers, b odd: that to the master"},
    {"closed-port",
     "peers cannot dial node a, and those connections break; b odd: their dials are refused, else swallowed"},
    {"revoke", "the operator revokes the certificate of node a, whose process may come back under another name only"},
    {"liar", "node a lies in b per mille of what it says, about what value names from bit 8 on (harness/liars.hpp); at the "
             "end it dies; value bit 0: with reset, bit 1: started anew"},
}};

constexpr std::array<const char*, 4> master_address_names = {"right", "dead", "silent", "spare"};
constexpr std::size_t master_addresses_max = 16;

constexpr std::array<const char*, 3> place_names = {"named", "here", "there"};

constexpr std::array<const char*, 2> claim_names = {"all-end", "core"};

// One table for writing, reading and bounds. get_high and set_high are set for ranges (low and high).
struct Setting {
    const char* name;
    Unit unit;
    std::int64_t least, most;
    std::int64_t (*get)(const Scenario&);
    void (*set)(Scenario&, std::int64_t);
    std::int64_t (*get_high)(const Scenario&) = nullptr;
    void (*set_high)(Scenario&, std::int64_t) = nullptr;
};

#define PCCL_GET(path) [](const Scenario& s) -> std::int64_t { return static_cast<std::int64_t>(s.path); }
#define PCCL_SET(path)                                                                                                 \
    [](Scenario& s, std::int64_t v) { s.path = static_cast<std::remove_reference_t<decltype(s.path)>>(v); }
#define PCCL_ONE(name, unit, least, most, path)                                                                        \
    Setting { name, Unit::unit, least, most, PCCL_GET(path), PCCL_SET(path) }
#define PCCL_RANGE(name, unit, least, most, low, high)                                                                 \
    Setting { name, Unit::unit, least, most, PCCL_GET(low), PCCL_SET(low), PCCL_GET(high), PCCL_SET(high) }

constexpr std::int64_t million = 1'000'000;

const Setting settings[] = {
    PCCL_RANGE("network.latency", duration, 0, 60 * second, world.network.latency_low, world.network.latency_high),
    PCCL_ONE("network.jitter_per_mille", number, 0, 100'000, world.network.jitter_per_mille),
    PCCL_ONE("network.tail_per_million", number, 0, million, world.network.tail_per_million),
    PCCL_ONE("network.tail_max", duration, 0, hour, world.network.tail_max),
    PCCL_RANGE("network.rate", number, 100, 1'000'000'000'000, world.network.rate_low, world.network.rate_high),
    PCCL_RANGE("network.down_rate", number, 0, 1'000'000'000'000, world.network.down_low, world.network.down_high),
    PCCL_ONE("network.flow_rate", number, 0, 1'000'000'000'000, world.network.flow_rate),
    PCCL_RANGE("network.window", number, 16, 1 << 30, world.network.window_low, world.network.window_high),
    PCCL_ONE("network.split_per_million", number, 0, million, world.network.split_per_million),
    PCCL_ONE("network.tiny_read_per_million", number, 0, million, world.network.tiny_read_per_million),
    PCCL_ONE("network.refuse_per_million", number, 0, million, world.network.refuse_per_million),
    PCCL_ONE("network.black_hole_per_million", number, 0, million, world.network.black_hole_per_million),
    PCCL_ONE("network.accept_close_per_million", number, 0, million, world.network.accept_close_per_million),
    PCCL_ONE("network.loss_per_million", number, 0, million / 2, world.network.loss_per_million),
    PCCL_ONE("network.queue_max", duration, 0, hour, world.network.queue_max),
    PCCL_ONE("clock.drift_ppm", number, 0, 10'000, world.drift_ppm),
    PCCL_ONE("clock.timer_late_max", duration, 0, hour, world.timer_late_max),
    PCCL_ONE("compute.max", duration, 0, hour, world.compute_max),
    PCCL_RANGE("disk", duration, 1, hour, world.disk_low, world.disk_high),
    PCCL_ONE("memory.fails_per_million", number, 0, million, world.allocation_fails_per_million),
    PCCL_ONE("memory.staging_max", duration, 0, hour, world.staging_max),
    PCCL_ONE("memory.wrong_chunks_per_million", number, 0, million, world.wrong_chunks_per_million),
    PCCL_ONE("network.long_texts_per_million", number, 0, million, world.long_texts_per_million),
    PCCL_ONE("memory.symbolic", flag, 0, 1, world.symbolic),
    PCCL_ONE("limits.slice_bytes", number, 8, 1 << 24, limits.slice_bytes),
    PCCL_ONE("limits.eager_bytes", number, 8, 1 << 30, limits.eager_bytes),
    PCCL_ONE("limits.chunk_bytes", number, 8, 1 << 20, limits.chunk_bytes),
    PCCL_ONE("limits.concurrent_ops", number, 1, 1024, limits.concurrent_ops),
    PCCL_ONE("limits.scratch_bytes", number, 8, std::int64_t{1} << 40, limits.scratch_bytes),
    PCCL_ONE("limits.min_slots", number, 1, 64, limits.min_slots),
    PCCL_ONE("limits.chunks_in_flight", number, 1, 64, limits.chunks_in_flight),
    PCCL_ONE("limits.hashes_in_flight", number, 1, 64, limits.hashes_in_flight),
    PCCL_ONE("limits.payload_bytes_max", number, numeric::quantized_bytes_least, 1 << 24, limits.payload_bytes_max),
    PCCL_ONE("limits.control_bytes_max", number, 1 << 12, 1 << 24, limits.control_bytes_max),
    PCCL_ONE("limits.key_bytes_max", number, 16, 1024, limits.key_bytes_max),
    PCCL_ONE("limits.peers_max", number, 1, 1 << 20, limits.peers_max),
    PCCL_ONE("limits.gang_name_bytes_max", number, 1, 256, limits.gang_name_bytes_max),
    PCCL_ONE("limits.gang_size_max", number, 1, 1 << 20, limits.gang_size_max),
    PCCL_ONE("limits.gang_waiting_max", number, 1, 1 << 20, limits.gang_waiting_max),
    PCCL_ONE("limits.stripes_max", number, 1, 1024, limits.stripes_max),
    PCCL_ONE("limits.tags_max", number, 1, 1 << 20, limits.tags_max),
    PCCL_ONE("limits.entries_max", number, 1, 1 << 24, limits.entries_max),
    PCCL_ONE("limits.revision_max", number, 1, (std::numeric_limits<std::int64_t>::max)(), limits.revision_max),
    PCCL_ONE("limits.untold_max", number, 16, 1 << 20, limits.untold_max),
    PCCL_ONE("limits.kept_bytes_max", number, 1000, 1ll << 40, limits.kept_bytes_max),
    PCCL_ONE("limits.ids_per_incarnation", number, 1, 0xffffffffll, limits.ids_per_incarnation),
    PCCL_ONE("limits.journal_records", number, 1, 1 << 20, limits.journal_records),
    PCCL_ONE("limits.unregistered_links_max", number, 1, 1 << 16, limits.unregistered_links_max),
    PCCL_ONE("limits.newcomer_links_max", number, 1, 1 << 16, limits.newcomer_links_max),
#define PCCL_UNIT(field, least, most, small) PCCL_ONE("limits." #field, number, least, most, limits.field),
    PCCL_UNIT_LIMITS(PCCL_UNIT)
#undef PCCL_UNIT
        PCCL_ONE("timeouts.peer", duration, 20 * millisecond, hour, timeouts.peer),
    PCCL_ONE("timeouts.master", duration, 0, hour, timeouts.master),
    PCCL_ONE("timeouts.vote_warn", duration, millisecond, hour, timeouts.vote_warn),
    PCCL_ONE("limits.pairwise_bytes_max", number, 0, std::int64_t{1} << 40, limits.pairwise_bytes_max),
    PCCL_ONE("limits.near_pairwise_bytes_max", number, 0, std::int64_t{1} << 40, limits.near_pairwise_bytes_max),
    PCCL_ONE("limits.operation_bytes_max", number, 0, 1u << 30, limits.operation_bytes_max),
    PCCL_ONE("timeouts.vote", duration, 0, hour, timeouts.vote),
    PCCL_ONE("timeouts.journal", duration, 0, hour, timeouts.journal),
    PCCL_ONE("timeouts.dial", duration, 10 * millisecond, hour, timeouts.dial),
    PCCL_ONE("timeouts.redial_min", duration, millisecond, hour, timeouts.redial_min),
    PCCL_ONE("timeouts.redial_max", duration, millisecond, hour, timeouts.redial_max),
    PCCL_ONE("timeouts.handshake", duration, 10 * millisecond, hour, timeouts.handshake),
    PCCL_ONE("limits.uneven", flag, 0, 1, uneven_limits),
    PCCL_ONE("even", flag, 0, 1, even),
    PCCL_ONE("workload.pump", flag, 0, 1, workload.pump),
    PCCL_ONE("workload.sync", flag, 0, 1, workload.sync),
    PCCL_ONE("workload.tags", number, 0, 256, workload.tags),
    PCCL_ONE("workload.elements_max", number, 1, 1 << 28, workload.elements_max),
    PCCL_ONE("workload.elements_min", number, 1, 1 << 28, workload.elements_min),
    PCCL_ONE("workload.elements_times", number, 1, 1 << 30, workload.elements_times),
    PCCL_ONE("workload.f32_sum", flag, 0, 1, workload.f32_sum),
    PCCL_ONE("workload.world_min", number, 1, 2000, workload.world_min),
    PCCL_ONE("workload.exact", flag, 0, 1, workload.exact),
    PCCL_ONE("workload.entries", number, 0, million, workload.entries),
    PCCL_ONE("workload.key_bytes", number, 0, 1024, workload.key_bytes),
    PCCL_ONE("workload.own_entries_per_mille", number, 0, 1000, workload.own_entries_per_mille),
    PCCL_ONE("workload.compute_max", duration, 1, hour, workload.compute_max),
    PCCL_ONE("workload.in_place_per_mille", number, 0, 1000, workload.in_place_per_mille),
    PCCL_ONE("workload.mismatch_per_mille", number, 0, 1000, workload.mismatch_per_mille),
    PCCL_ONE("workload.twice_per_mille", number, 0, 1000, workload.twice_per_mille),
    PCCL_ONE("workload.leave_in_flight_per_mille", number, 0, 1000, workload.leave_in_flight_per_mille),
    PCCL_ONE("workload.visit_per_mille", number, 0, 1000, workload.visit_per_mille),
    PCCL_ONE("workload.drift_per_mille", number, 0, 1000, workload.drift_per_mille),
    PCCL_ONE("workload.first_revision", number, 0, 100'000'000'000'000'000, workload.first_revision),
    PCCL_ONE("workload.hasty_revision_per_mille", number, 0, 1000, workload.hasty_revision_per_mille),
    PCCL_ONE("workload.async_sync", flag, 0, 1, workload.async_sync),
    PCCL_ONE("workload.odd_strategy_per_mille", number, 0, 1000, workload.odd_strategy_per_mille),
    PCCL_ONE("workload.schema_per_mille", number, 0, 1000, workload.schema_per_mille),
    PCCL_ONE("workload.checkpoints", flag, 0, 1, workload.checkpoints),
    PCCL_ONE("workload.cross_per_mille", number, 0, 1000, workload.cross_per_mille),
    PCCL_ONE("workload.early_update_per_mille", number, 0, 1000, workload.early_update_per_mille),
    PCCL_ONE("workload.many_window", number, 0, 256, workload.many_window),
    PCCL_ONE("workload.state_elements_min", number, 1, 1 << 20, workload.state_elements_min),
    PCCL_ONE("workload.state_elements_max", number, 1, 1 << 20, workload.state_elements_max),
    PCCL_ONE("workload.quantized_per_mille", number, 0, 1000, workload.quantized_per_mille),
    PCCL_ONE("workload.collectives_per_mille", number, 0, 1000, workload.collectives_per_mille),
    PCCL_ONE("workload.pieces_per_mille", number, 0, 1000, workload.pieces_per_mille),
    PCCL_ONE("workload.sends_per_mille", number, 0, 1000, workload.sends_per_mille),
    PCCL_ONE("workload.optimize_per_mille", number, 0, 1000, workload.optimize_per_mille),
    PCCL_ONE("workload.interrupt_per_mille", number, 0, 1000, workload.interrupt_per_mille),
    PCCL_ONE("workload.leave_twice_per_mille", number, 0, 1000, workload.leave_twice_per_mille),
    PCCL_ONE("workload.gang_wait_max", duration, 0, hour, workload.gang_wait_max),
    PCCL_ONE("workload.beside", number, 0, 16, workload.beside),
    PCCL_ONE("workload.beside_asks", number, 0, 8, workload.beside_asks),
    PCCL_ONE("workload.beside_queued", flag, 0, 1, workload.beside_queued),
    PCCL_ONE("workload.beside_crossed", flag, 0, 1, workload.beside_crossed),
    PCCL_ONE("limits.search_steps", number, 1, 1 << 30, limits.search_steps),
    PCCL_ONE("limits.test_connections", number, 1, 64, limits.test_connections),
    PCCL_ONE("limits.test_bytes", number, 64, 1 << 30, limits.test_bytes),
    PCCL_ONE("timeouts.test", duration, millisecond, hour, timeouts.test),
    PCCL_ONE("timeouts.survey", duration, millisecond, hour, timeouts.survey),
    PCCL_ONE("timeouts.edge_age", duration, millisecond, hour, timeouts.edge_age),
    PCCL_ONE("faults_end", duration, 0, 10 * hour, chaos_end),
    PCCL_ONE("applications_end_after", duration, 0, 10 * hour, stop_after),
    PCCL_ONE("patience", duration, 0, 100 * hour, patience),
};

#undef PCCL_RANGE
#undef PCCL_ONE
#undef PCCL_SET
#undef PCCL_GET

constexpr std::size_t peers_max = 2000, faults_max = 10'000, again_max = 10'000, regions_max = 200;

std::uint32_t read_region(ScenarioReader& reader, const NamedValue& pair) {
    return static_cast<std::uint32_t>(
        reader.value(Unit::number, pair.value, 0, regions_max - 1, pair.value_at).value_or(0));
}

void parse_master(ScenarioReader& reader, Scenario& s) {
    const std::string_view word = reader.word();
    const NamedValue pair = named_value(word);
    if (pair.name != "region") return reader.fail("region=", word);
    s.world.network.regions[0] = read_region(reader, pair);
}

// One line per region: the latency from it to each region, and optionally the rate: 12ms or 12ms@12500000.
void parse_region(ScenarioReader& reader, Scenario& s) {
    for (std::string_view word = reader.word(); !word.empty() && !reader.failed(); word = reader.word()) {
        if (s.world.network.region_latency.size() >= regions_max * regions_max)
            return reader.fail(formatted("at most {} regions", regions_max), word);
        const std::size_t rate = word.find('@');
        if (auto v = reader.value(Unit::duration, word.substr(0, rate), 0, 60 * second, 0))
            s.world.network.region_latency.push_back(*v);
        s.world.network.region_rate.push_back(0);
        if (rate == std::string_view::npos) continue;
        if (auto v = reader.value(Unit::number, word.substr(rate + 1), 100, 1'000'000'000'000, rate + 1))
            s.world.network.region_rate.back() = *v;
    }
}

// masters=silent,right: in the order in which they are tried.
void parse_masters(ScenarioReader& reader, const NamedValue& pair, PeerPlan& plan) {
    plan.masters.clear();
    for (std::size_t at = 0; at <= pair.value.size();) {
        const std::size_t end = std::min(pair.value.find(',', at), pair.value.size());
        const std::string_view name = pair.value.substr(at, end - at);
        const auto found = std::find(master_address_names.begin(), master_address_names.end(), name);
        if (found == master_address_names.end() || plan.masters.size() >= master_addresses_max)
            return reader.fail("right, dead, silent or spare, with commas between them", name, pair.value_at + at);
        plan.masters.push_back(static_cast<MasterAddress>(found - master_address_names.begin()));
        at = end + 1;
    }
    if (std::find(plan.masters.begin(), plan.masters.end(), MasterAddress::right) == plan.masters.end())
        reader.fail("one address that is right", pair.value, pair.value_at);
}

constexpr std::string_view translator_names[] = {"none", "open", "cone", "symmetric"};

std::string translator_text(const PeerPlan& plan) {
    if (plan.translator == sim::Translator::none) return {};
    const std::string lan = plan.lan == 0 ? std::string() : formatted(" lan={}", plan.lan);
    return formatted(" nat={} site={}{}", translator_names[static_cast<std::size_t>(plan.translator)], plan.site, lan);
}

std::string masters_text(const PeerPlan& plan) {
    if (plan.masters == PeerPlan{}.masters) return {};
    std::string text;
    for (const MasterAddress address : plan.masters)
        text +=
            (text.empty() ? " masters=" : ",") + std::string(master_address_names[static_cast<std::size_t>(address)]);
    return text;
}

// gang=NAME:SIZE:PLACE. Numbers that no gang can have are legal: the master refuses such a peer.
void parse_gang(ScenarioReader& reader, const NamedValue& pair, PeerPlan& plan) {
    const std::size_t size = pair.value.find(':');
    const std::size_t place = size == std::string_view::npos ? size : pair.value.find(':', size + 1);
    if (size == 0 || place == std::string_view::npos)
        return reader.fail("a name, a size and a place such as A:2:0", pair.value, pair.value_at);
    plan.gang.name = pair.value.substr(0, size);
    const auto number = [&](std::size_t from, std::size_t to) {
        return static_cast<std::uint32_t>(
            reader.unsigned_number(pair.value.substr(from, to - from), "a number", pair.value_at + from, 0xffffffffu)
                .value_or(0));
    };
    plan.gang.size = number(size + 1, place);
    plan.gang.place = number(place + 1, pair.value.size());
}

std::string gang_text(const PeerPlan& plan) {
    if (plan.gang.none()) return {};
    const std::string patience =
        plan.gang_patience == 0 ? std::string() : " gang-patience=" + duration_text(plan.gang_patience);
    return formatted(" gang={}:{}:{}{}", plan.gang.name, plan.gang.size, plan.gang.place, patience);
}

void parse_peer(ScenarioReader& reader, Scenario& s) {
    PeerPlan plan;
    std::uint32_t region = 0;
    plan.rejoins = false;
    for (std::string_view word = reader.word(); !word.empty() && !reader.failed(); word = reader.word()) {
        const NamedValue pair = named_value(word);
        if (word == "rejoins") {
            plan.rejoins = true;
        } else if (word == "advertises") {
            plan.advertises = true;
        } else if (word == "two-interfaces") {
            plan.two_interfaces = true;
        } else if (pair.name == "masters") {
            parse_masters(reader, pair, plan);
        } else if (pair.name == "nat") {
            const auto* const found = std::find(std::begin(translator_names), std::end(translator_names), pair.value);
            if (found == std::end(translator_names)) return reader.fail("open, cone or symmetric", pair.value, pair.value_at);
            plan.translator = static_cast<sim::Translator>(found - std::begin(translator_names));
        } else if (pair.name == "site") {
            if (auto v = reader.value(Unit::number, pair.value, 0, 4095, pair.value_at))
                plan.site = static_cast<std::uint32_t>(*v);
        } else if (pair.name == "lan") {
            if (auto v = reader.value(Unit::number, pair.value, 0, 4095, pair.value_at))
                plan.lan = static_cast<std::uint32_t>(*v);
        } else if (pair.name == "host") {
            if (auto v = reader.value(Unit::number, pair.value, 0, 4095, pair.value_at))
                plan.host = static_cast<std::uint32_t>(*v);
        } else if (pair.name == "start") {
            if (auto v = reader.value(Unit::duration, pair.value, 0, hour, pair.value_at)) plan.start = *v;
        } else if (pair.name == "group") {
            if (auto v = reader.unsigned_number(pair.value, "a group", pair.value_at, 0xffffffffu))
                plan.group = static_cast<GroupId>(*v);
        } else if (pair.name == "stripes") {
            if (auto v = reader.value(Unit::number, pair.value, 1, 64, pair.value_at))
                plan.stripes = static_cast<std::uint32_t>(*v);
        } else if (pair.name == "turns") {
            if (auto v = reader.value(Unit::number, pair.value, 0, 10'000, pair.value_at))
                plan.turns = static_cast<std::uint32_t>(*v);
        } else if (pair.name == "region") {
            region = read_region(reader, pair);
        } else if (pair.name == "gang") {
            parse_gang(reader, pair, plan);
        } else if (pair.name == "gang-patience") {
            if (auto v = reader.value(Unit::duration, pair.value, 0, hour, pair.value_at)) plan.gang_patience = *v;
        } else {
            reader.fail("start=, group=, stripes=, turns=, region=, masters=, gang=, gang-patience=, nat=, site=, "
                        "lan=, host=, "
                        "advertises, two-interfaces or rejoins",
                        word);
        }
    }
    s.world.network.regions.push_back(region);
    if (s.peers.size() >= peers_max) return reader.fail(formatted("at most {} peers", peers_max), "one more");
    s.peers.push_back(plan);
}

bool parse_trigger(ScenarioReader& reader, const NamedValue& pair, Fault& fault) {
    const std::size_t star = pair.value.find('*');
    if (star != std::string_view::npos) {
        if (const auto trigger = trigger_named(pair.value.substr(0, star))) {
            const auto count =
                reader.value(Unit::number, pair.value.substr(star + 1), 1, 1'000'000'000, pair.value_at + star + 1);
            if (!count) return false;
            fault.trigger = *trigger;
            fault.trigger_count = static_cast<std::uint32_t>(*count);
            return true;
        }
    }
    reader.fail(
        "an effect and a number such as payload*17 (effects: control, flow, payload, receive, compute, persist, "
        "complete, ...; phases: sim-run --list-faults; probes)",
        pair.value, pair.value_at);
    return false;
}

// follows=2 or follows=2:end: faults are counted from 1, in the order of their lines.
void parse_leader(ScenarioReader& reader, const NamedValue& pair, Fault& fault) {
    const std::size_t colon = pair.value.find(':');
    fault.behind_its_end = colon != std::string_view::npos;
    if (fault.behind_its_end && pair.value.substr(colon) != ":end")
        return reader.fail("the number of a fault, or with its end 3:end", pair.value, pair.value_at);
    if (auto v = reader.value(Unit::number, pair.value.substr(0, colon), 1, faults_max, pair.value_at))
        fault.follows = static_cast<std::uint32_t>(*v);
}

void parse_place(ScenarioReader& reader, const NamedValue& pair, Fault& fault) {
    const auto* found = std::find(place_names.begin(), place_names.end(), pair.value);
    if (found == place_names.end()) return reader.fail("named, here or there", pair.value, pair.value_at);
    fault.place = static_cast<FaultPlace>(found - place_names.begin());
}

void parse_fault(ScenarioReader& reader, Scenario& s) {
    Fault fault;
    const std::string_view kind = reader.word();
    std::size_t index = 0;
    while (index < fault_kinds && kind != fault_names[index].name) ++index;
    if (index == fault_kinds) return reader.fail("the name of a fault (sim-run --list-faults)", kind);
    fault.kind = static_cast<FaultKind>(index);
    for (std::string_view word = reader.word(); !word.empty() && !reader.failed(); word = reader.word()) {
        const NamedValue pair = named_value(word);
        if (word == "forever") {
            fault.forever = true;
        } else if (pair.name == "at") {
            if (auto v = reader.value(Unit::duration, pair.value, 0, 10 * hour, pair.value_at)) fault.at = *v;
        } else if (pair.name == "for") {
            if (auto v = reader.value(Unit::duration, pair.value, 0, hour, pair.value_at)) fault.duration = *v;
        } else if (pair.name == "a" || pair.name == "b") {
            if (auto v = reader.unsigned_number(pair.value, "a number", pair.value_at, 0xffffffffu))
                (pair.name == "a" ? fault.a : fault.b) = static_cast<std::uint32_t>(*v);
        } else if (pair.name == "value") {
            if (auto v = reader.unsigned_number(pair.value, "a number", pair.value_at)) fault.value = *v;
        } else if (pair.name == "after") {
            parse_trigger(reader, pair, fault);
        } else if (pair.name == "follows") {
            parse_leader(reader, pair, fault);
        } else if (pair.name == "node") {
            parse_place(reader, pair, fault);
        } else if (word == "each") {
            fault.each = true;
        } else if (pair.name == "again") {
            if (auto v = reader.value(Unit::number, pair.value, 0, again_max, pair.value_at))
                fault.again = static_cast<std::uint32_t>(*v);
        } else if (pair.name == "every") {
            if (auto v = reader.value(Unit::duration, pair.value, 0, hour, pair.value_at)) fault.every = *v;
        } else {
            reader.fail("at=, for=, a=, b=, value=, after=, follows=, node=, again=, every=, each or forever", word);
        }
    }
    if (s.faults.size() >= faults_max) return reader.fail(formatted("at most {} faults", faults_max), "one more");
    s.faults.push_back(fault);
}

void parse_setting(ScenarioReader& reader, std::string_view name, Scenario& s) {
    const auto* setting =
        std::find_if(std::begin(settings), std::end(settings), [&](const Setting& x) { return name == x.name; });
    if (setting == std::end(settings))
        return reader.fail("the name of a setting, peer, fault, core, claim or expect", name);
    const auto low = reader.value(setting->unit, reader.word(), setting->least, setting->most, 0);
    if (!low) return;
    setting->set(s, *low);
    if (setting->set_high == nullptr) return;
    const std::string_view word = reader.word();
    const auto high =
        word.empty() ? low : reader.value(setting->unit, word, std::max(setting->least, *low), setting->most, 0);
    if (high) setting->set_high(s, *high);
}

// Null if all values fit together. Otherwise the text that names what was expected.
const char* contradiction(const Scenario& s) {
    const Limits& l = s.limits;
    const sim::NetworkParameters& n = s.world.network;
    const std::size_t regions = n.regions.empty() ? 0 : *std::max_element(n.regions.begin(), n.regions.end()) + 1;
    std::size_t rows = 0;
    while (rows * rows < n.region_latency.size()) ++rows;
    if (rows * rows != n.region_latency.size()) return "as many latencies in each region line as there are such lines";
    if (regions > rows) return "a region line for each region that is used";
    if (const char* wrong = impossible(l)) return wrong;
    if (s.peers.empty()) return "at least one peer";
    if (l.slice_bytes % 8 != 0 || l.chunk_bytes % 8 != 0) return "slice_bytes and chunk_bytes that are multiples of 8";
    if (l.slice_bytes > l.payload_bytes_max || l.chunk_bytes > l.payload_bytes_max)
        return "slice_bytes and chunk_bytes of at most payload_bytes_max";
    if (l.eager_bytes < l.slice_bytes) return "eager_bytes of at least slice_bytes";
    if (l.scratch_bytes < std::uint64_t{l.slice_bytes} * l.min_slots)
        return "scratch_bytes of at least min_slots times slice_bytes";
    for (const std::uint32_t node : s.core) {
        if (node == 0 || node > s.peers.size()) return "core nodes that are peers (1 is the first)";
        if (s.peers[node - 1].group != s.peers[s.core.front() - 1].group) return "core nodes of one group";
    }
    if (s.claim == Claim::core && (s.core.size() < 2 || s.workload.tags == 0))
        return "a core of at least two peers, and workload.tags above 0 for it";
    if (!references_hold(s.faults))
        return "faults that follow another one of the scenario, which waits for nothing but others";
    if (s.workload.elements_min > s.workload.elements_max) return "elements_min of at most elements_max";
    if (s.workload.state_elements_min > s.workload.state_elements_max)
        return "state_elements_min of at most state_elements_max";
    // Content of this size for every peer would not fit into memory.
    if (s.workload.elements_max > 1 << 20 && !s.world.symbolic)
        return "elements_max of at most 1048576 without memory.symbolic";
    if (s.workload.elements_times > 1 && (!s.world.symbolic || l.slice_bytes < 1u << 20))
        return "elements_times of 1 without memory.symbolic and slice_bytes of at least 1048576";
    if (s.world.symbolic && s.workload.collectives_per_mille + s.workload.sends_per_mille != 0)
        return "collectives_per_mille and sends_per_mille of 0 with memory.symbolic";
    return nullptr;
}

}  // namespace

const char* to_text(FaultKind kind) { return fault_names[static_cast<std::size_t>(kind)].name; }

std::string list_faults() {
    std::size_t width = 0;
    for (const FaultName& fault : fault_names) width = std::max(width, std::string_view(fault.name).size() + 2);
    std::string text;
    for (const FaultName& fault : fault_names) {
        std::string name = fault.name;
        name.resize(width, ' ');
        text += formatted("{}{}\n", name, fault.meaning);
    }
    text += "\nEach begins at=TIME, or TIME after the n-th effect of a kind (after=payload*17), and lasts for=TIME\n"
            "or forever. Node 0 is the master. It may be tied to an effect:";
    for (std::size_t i = 0; i < sim::effect_kinds; ++i) text += std::string(" ") + sim::effect_name(i);
    text += formatted(
        "\nor to a phase of the protocol (after=start-told*2), or a probe:\n{}"
        "or TIME after another fault took effect (follows=1) or ended (follows=1:end). node=here: a is where that\n"
        "happened, and b the other end; node=there: a is the other end. again=3 every=TIME: three more times; again=3 each: when `after` "
        "has happened once more.\n",
        list_phases());
    return text;
}

bool sound(const Scenario& scenario) { return contradiction(scenario) == nullptr; }

// The last three settings are times of the run itself.
std::size_t world_settings() { return std::size(settings) - 3; }

bool reset_world_setting(Scenario& scenario, std::size_t index) {
    static const Scenario defaults;
    const Setting& setting = settings[index];
    const bool range = setting.get_high != nullptr;
    if (setting.get(scenario) == setting.get(defaults) &&
        (!range || setting.get_high(scenario) == setting.get_high(defaults)))
        return false;
    const std::string_view name = setting.name;
    if (name == "workload.tags" || name == "workload.entries" || name == "workload.elements_max" ||
        name == "workload.sync" || name == "workload.pump")
        return false;  // the shrinker reduces these in steps
    setting.set(scenario, setting.get(defaults));
    if (range) setting.set_high(scenario, setting.get_high(defaults));
    return contradiction(scenario) == nullptr;
}

std::string to_text(const Scenario& s) {
    static const Scenario defaults;
    std::string text = formatted("pccl-scenario 1\nseed {}\n", s.seed);
    for (const Setting& setting : settings) {
        const std::int64_t value = setting.get(s);
        const bool range = setting.get_high != nullptr;
        if (value == setting.get(defaults) && (!range || setting.get_high(s) == setting.get_high(defaults))) continue;
        text += formatted("{} {}", setting.name, value_text(setting.unit, value));
        if (range && setting.get_high(s) != value) text += " " + value_text(setting.unit, setting.get_high(s));
        text += "\n";
    }
    const sim::NetworkParameters& n = s.world.network;
    std::size_t row = 1;
    while (row * row < n.region_latency.size()) ++row;
    for (std::size_t i = 0; i < n.region_latency.size(); ++i)
        text += formatted("{}{}{}{}", i % row == 0 ? "region " : " ", duration_text(n.region_latency[i]),
                          i < n.region_rate.size() && n.region_rate[i] != 0 ? formatted("@{}", n.region_rate[i])
                                                                            : std::string(),
                          i % row + 1 == row ? "\n" : "");
    if (!n.regions.empty()) text += formatted("master region={}\n", n.regions[0]);
    for (std::size_t i = 0; i < s.peers.size(); ++i) {
        const PeerPlan& p = s.peers[i];
        text += formatted(
            "peer start={} group={} stripes={} turns={}{}{}{}{}{}{}{}{}\n", duration_text(p.start), p.group, p.stripes,
            p.turns, n.regions.empty() ? std::string() : formatted(" region={}", n.regions[i + 1]), masters_text(p),
            gang_text(p), translator_text(p), p.host == 0 ? std::string() : formatted(" host={}", p.host),
            p.advertises ? " advertises" : "", p.two_interfaces ? " two-interfaces" : "", p.rejoins ? " rejoins" : "");
    }
    for (const Fault& f : s.faults) {
        text += formatted("fault {} at={} for={} a={} b={} value={}", to_text(f.kind), duration_text(f.at),
                          duration_text(f.duration), f.a, f.b, f.value);
        if (f.trigger != 0) text += formatted(" after={}*{}", trigger_name(f.trigger), f.trigger_count);
        if (f.follows != 0) text += formatted(" follows={}{}", f.follows, f.behind_its_end ? ":end" : "");
        if (f.place != FaultPlace::named)
            text += std::string(" node=") + place_names[static_cast<std::size_t>(f.place)];
        if (f.again != 0 && f.each) text += formatted(" again={} each", f.again);
        if (f.again != 0 && !f.each) text += formatted(" again={} every={}", f.again, duration_text(f.every));
        text += f.forever ? " forever\n" : "\n";
    }
    text += formatted("claim {}\n", claim_names[static_cast<std::size_t>(s.claim)]);
    if (!s.core.empty()) {
        text += "core";
        for (const std::uint32_t node : s.core) text += formatted(" {}", node);
        text += "\n";
    }
    for (const Expectation& expected : s.expectations) text += to_text(expected) + "\n";
    return text;
}

std::optional<Scenario> parse_scenario(std::string_view text, ScenarioError& error) {
    ScenarioReader reader(text, error);
    Scenario s;
    s.world.network.regions = {0};
    if (text.size() > scenario_bytes_max) {
        error = {1, 1, formatted("expected a text of at most {} bytes", scenario_bytes_max)};
        return std::nullopt;
    }
    bool begun = false;
    while (reader.next_line()) {
        const std::string_view word = reader.word();
        if (word.empty()) continue;
        if (!begun) {
            begun = true;
            if (word != "pccl-scenario") {
                reader.fail("pccl-scenario 1", word);
            } else if (const std::string_view version = reader.word(); version != "1") {
                reader.fail("version 1", version);
            }
        } else if (word == "seed") {
            if (auto v = reader.unsigned_number(reader.word(), "a number", 0)) s.seed = *v;
        } else if (word == "peer") {
            parse_peer(reader, s);
        } else if (word == "fault") {
            parse_fault(reader, s);
        } else if (word == "claim") {
            const std::string_view claim = reader.word();
            if (claim == claim_names[0]) {
                s.claim = Claim::all_end;
            } else if (claim == claim_names[1]) {
                s.claim = Claim::core;
            } else {
                reader.fail("all-end or core", claim);
            }
        } else if (word == "expect") {
            read_expectation(reader, s);
        } else if (word == "core") {
            for (std::string_view node = reader.word(); !node.empty() && !reader.failed(); node = reader.word()) {
                if (auto v = reader.value(Unit::number, node, 1, peers_max, 0))
                    s.core.push_back(static_cast<std::uint32_t>(*v));
                if (s.core.size() > peers_max) reader.fail("each node once", node);
            }
        } else if (word == "master") {
            parse_master(reader, s);
        } else if (word == "region") {
            parse_region(reader, s);
        } else {
            parse_setting(reader, word, s);
        }
        if (const std::string_view rest = reader.word(); !rest.empty()) reader.fail("the end of the line", rest);
    }
    if (!reader.failed() && !begun) reader.fail("pccl-scenario 1", {});
    if (std::vector<std::uint32_t>& used = s.world.network.regions;
        s.world.network.region_latency.empty() && std::all_of(used.begin(), used.end(), [](auto r) { return r == 0; }))
        used.clear();  // latencies are drawn
    std::vector<std::int64_t>& rates = s.world.network.region_rate;
    if (std::all_of(rates.begin(), rates.end(), [](std::int64_t rate) { return rate == 0; })) rates.clear();
    if (!reader.failed()) {
        if (const char* missing = contradiction(s)) reader.fail_as_a_whole(missing);
    }
    if (reader.failed()) return std::nullopt;
    return s;
}

}  // namespace pccl::harness
