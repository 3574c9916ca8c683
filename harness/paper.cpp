#include "harness/paper.hpp"

#include "core/base/format.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace pccl::harness {

using namespace core;

namespace {

// Cities from west to east. A ring visits them in this order.
enum City : std::uint32_t {
    san_francisco,
    los_angeles,
    phoenix,
    salt_lake_city,
    denver,
    dallas,
    kansas_city,
    chicago,
    atlanta,
    toronto,
    washington,
    new_york,
    london,
    paris,
    amsterdam,
    zurich,
    frankfurt,
    milan,
    warsaw,
    bucharest,
    cities
};

// Round trips from each city to the cities before it, in units of 0.1 ms: 2 ms plus 1.8 ms per 100 km of great circle.
// clang-format off
constexpr std::uint16_t round_trips[] = {
    121,  // Los Angeles
    209, 123,  // Phoenix
    194, 188, 166,  // Salt Lake City
    294, 260, 190, 127,  // Denver
    449, 378, 276, 309, 212,  // Dallas
    456, 412, 323, 287, 181, 151,  // Kansas City
    557, 525, 440, 384, 286, 253, 139,  // Chicago
    639, 580, 480, 478, 370, 228, 216, 191,  // Atlanta
    676, 649, 567, 502, 409, 369, 265, 146, 233,  // Toronto
    725, 684, 593, 553, 451, 362, 292, 192, 177, 121,  // Washington
    763, 728, 640, 590, 491, 417, 337, 226, 236, 119, 79,  // New York
    1571, 1596, 1546, 1428, 1377, 1395, 1278, 1163, 1239, 1048, 1082, 1023,  // London
    1632, 1655, 1604, 1487, 1435, 1448, 1333, 1217, 1287, 1100, 1130, 1071, 82,  // Paris
    1599, 1629, 1584, 1462, 1415, 1442, 1322, 1209, 1291, 1097, 1134, 1075, 84, 97,  // Amsterdam
    1707, 1734, 1686, 1566, 1517, 1534, 1418, 1303, 1374, 1187, 1217, 1158, 160, 108, 131,  // Zurich
    1664, 1694, 1649, 1527, 1481, 1506, 1387, 1274, 1352, 1160, 1195, 1137, 135, 106, 85, 75,  // Frankfurt
    1743, 1769, 1719, 1601, 1550, 1563, 1448, 1332, 1400, 1215, 1243, 1184, 193, 135, 169, 59, 113,  // Milan
    1712, 1755, 1722, 1590, 1557, 1605, 1480, 1372, 1467, 1266, 1312, 1254, 281, 266, 217, 208, 180, 226,  // Warsaw
    1882, 1923, 1888, 1758, 1722, 1761, 1639, 1528, 1613, 1417, 1456, 1397, 396, 357, 342, 271, 282, 260, 190,  // Bucharest
};
// clang-format on
static_assert(std::size(round_trips) == cities * (cities - 1) / 2);

constexpr Duration within_city = millisecond / 4;
constexpr std::int64_t window = 4 << 20;               // of one flow, table 1
constexpr std::int64_t flow_rate = 1'210'000'000 / 8;  // of one flow, table 2
constexpr std::int64_t interface_rate = 45'000'000'000 / 8;
constexpr Duration table_2_latency = millisecond;  // one way, between any two peers

Duration one_way(std::uint32_t a, std::uint32_t b) {
    if (a == b) return within_city;
    const std::uint32_t high = std::max(a, b), low = std::min(a, b);
    return round_trips[high * (high - 1) / 2 + low] * (millisecond / 10) / 2;
}

PaperRow in_cities(std::string name, std::string where, double seconds, std::initializer_list<City> ring, City master) {
    PaperRow row;
    row.name = std::move(name);
    row.where = std::move(where);
    row.published_seconds = seconds;
    sim::NetworkParameters& n = row.peers;
    n.rate_low = n.rate_high = n.down_low = n.down_high = interface_rate;
    n.window_low = n.window_high = window;
    for (const City from : ring) {
        if (from == master) row.master_near = static_cast<std::uint32_t>(n.regions.size());
        n.regions.push_back(static_cast<std::uint32_t>(n.regions.size()));
        for (const City to : ring) n.region_latency.push_back(one_way(from, to));
    }
    row.reference = ReferenceRing{static_cast<std::uint32_t>(ring.size()), 1, paper_bytes};
    return row;
}

}  // namespace

std::vector<PaperRow> paper_table_1() {
    return {
        in_cities("paper-table1-6", "western Europe", 8.3, {london, paris, amsterdam, zurich, frankfurt, milan},
                  amsterdam),
        in_cities("paper-table1-12", "North America", 35.2,
                  {san_francisco, los_angeles, phoenix, salt_lake_city, denver, dallas, kansas_city, chicago, atlanta,
                   toronto, washington, new_york},
                  chicago),
        in_cities("paper-table1-18", "North America and Europe", 90.5,
                  {san_francisco, los_angeles, phoenix, denver, dallas, chicago, atlanta, toronto, washington, new_york,
                   london, paris, amsterdam, zurich, frankfurt, milan, warsaw, bucharest},
                  new_york),
    };
}

std::vector<PaperRow> paper_table_2() {
    static constexpr struct {
        std::uint32_t connections;
        double gigabits;
    } published[] = {{8, 11.25}, {16, 18.17}, {32, 34.29}, {64, 44.47}, {100, 44.55}, {128, 45.74}};
    std::vector<PaperRow> rows;
    for (const auto& [connections, gigabits] : published) {
        PaperRow row;
        row.name = "paper-table2";
        row.where = formatted("{} connections", connections);
        sim::NetworkParameters& n = row.peers;
        n.rate_low = n.rate_high = n.down_low = n.down_high = interface_rate;
        n.flow_rate = flow_rate;
        n.window_low = n.window_high = window;
        n.regions.assign(6, 0);
        n.region_latency = {table_2_latency};
        row.reference = ReferenceRing{6, connections, paper_bytes / connections / 4 * 4};
        row.published_seconds = ring_rate(row, 1) / (gigabits * 1e9 / 8);
        rows.push_back(std::move(row));
    }
    return rows;
}

double ring_rate(const PaperRow& row, double seconds) {
    const double w = row.reference.peers;
    return 2 * (w - 1) / w * static_cast<double>(paper_bytes) / seconds;
}

double ring_bound_seconds(const PaperRow& row, std::uint32_t flows) {
    const sim::NetworkParameters& n = row.peers;
    std::size_t regions = 1;
    while (regions * regions < n.region_latency.size()) ++regions;
    double slowest = static_cast<double>(n.rate_low);
    for (std::uint32_t i = 0; i < row.reference.peers; ++i) {
        const std::size_t from = n.regions[i], to = n.regions[(i + 1) % row.reference.peers];
        const Duration round_trip = n.region_latency[from * regions + to] + n.region_latency[to * regions + from];
        double flow = static_cast<double>(n.window_low) * 1e9 / static_cast<double>(round_trip);
        if (n.flow_rate != 0) flow = std::min(flow, static_cast<double>(n.flow_rate));
        slowest = std::min(slowest, flow * flows);
    }
    return ring_rate(row, 1) / slowest;
}

Scenario paper_scenario(const PaperRow& row, std::uint32_t stripes, std::uint64_t scratch_bytes) {
    Scenario s;
    s.seed = 1;
    s.world.network = row.peers;
    s.world.symbolic = true;
    s.limits.eager_bytes = Limits{}.eager_bytes;
    s.limits.scratch_bytes = scratch_bytes;
    s.world.network.regions.insert(s.world.network.regions.begin(), row.peers.regions[row.master_near]);
    for (std::uint32_t i = 0; i < row.reference.peers; ++i) {
        PeerPlan plan;
        plan.start = i * 500 * millisecond;  // they join one after another, so the ring has this order
        plan.stripes = stripes;
        plan.turns = 1;
        plan.rejoins = false;
        s.peers.push_back(plan);
    }
    Workload& w = s.workload;
    w.sync = false;
    w.tags = 1;
    w.elements_min = w.elements_max = static_cast<std::uint32_t>(paper_bytes / 4);
    w.f32_sum = true;
    w.world_min = row.reference.peers;
    w.in_place_per_mille = 0;
    s.stop_after = 3600 * second;
    s.patience = 60 * second;
    return s;
}

}  // namespace pccl::harness
