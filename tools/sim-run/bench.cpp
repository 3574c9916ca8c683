#include "tools/sim-run/bench.hpp"

#include "core/base/format.hpp"
#include "harness/paper.hpp"
#include "harness/run.hpp"
#include "harness/scale.hpp"
#include "harness/settle.hpp"
#include "harness/topology.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>

namespace pccl::tools {
namespace {

using namespace pccl::harness;

constexpr std::uint32_t stripe_counts[] = {1, 4, 16, 64};
constexpr std::uint64_t scratch_mib[] = {16, 256};  // too little for long links, and the default
static_assert(core::Limits{}.scratch_bytes == scratch_mib[1] << 20);

// CPU seconds of this process, so that other work on the machine does not count.
class Stopwatch {
public:
    double seconds() const { return now() - start_; }

private:
    static double now() {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        const auto of = [](const timeval& t) {
            return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
        };
        return of(usage.ru_utime) + of(usage.ru_stime);
    }
    double start_ = now();
};

double peak_memory_gib() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

RunOptions unbounded() {
    RunOptions options;
    options.items_max = 2'000'000'000;
    return options;
}

double gigabits(double bytes_per_second) { return bytes_per_second * 8 / 1e9; }

double reference_seconds(const PaperRow& row) {
    return static_cast<double>(reference_ring_time(row.peers, row.reference)) / 1e9;
}

// Prints the time of this core on the row's links. False if a promise was broken.
bool print_prediction(const PaperRow& row, std::uint64_t scratch_bytes) {
    for (const std::uint32_t stripes : stripe_counts) {
        const Verdict v = run(paper_scenario(row, stripes, scratch_bytes), unbounded());
        if (!v.held()) {
            std::printf("\n%s with %u stripes FAILED  oracle %s\n  %s\n", row.name.c_str(), stripes,
                        v.violation.oracle.c_str(), v.violation.reason.c_str());
            return false;
        }
        const double seconds = static_cast<double>(v.reduce_time) / 1e9;
        std::printf("   %7.2f s (%6.2f)", seconds, ring_bound_seconds(row, stripes));
    }
    std::printf("\n");
    return true;
}

bool print_predictions(const PaperRow& row, const char* where) {
    for (const std::uint64_t mib : scratch_mib) {
        std::printf("%-26s %4" PRIu64 " MiB", where, mib);
        if (!print_prediction(row, mib << 20)) return false;
    }
    return true;
}

void print_prediction_head() {
    std::printf(
        "\nThis core, one all-reduce of the same bytes (in brackets: the bound 2(w-1)/w S/B of any ring on these "
        "links)\n%-26s %8s",
        "", "scratch");
    for (const std::uint32_t stripes : stripe_counts)
        std::printf("   %2u stripe%s        ", stripes, stripes == 1 ? " " : "s");
    std::printf("\n");
}

bool bench_paper() {
    bool good = true;
    const auto judge = [&](double deviation) {
        good = good && deviation <= 15 && deviation >= -15;
        return deviation;
    };
    const Stopwatch watch;
    std::printf("Table 1: one flow of window 4 MiB per neighbour\n");
    std::printf("%-26s %5s %10s %14s %10s\n", "", "peers", "published", "reference ring", "deviation");
    const std::vector<PaperRow> table_1 = paper_table_1(), table_2 = paper_table_2();
    for (const PaperRow& row : table_1) {
        const double seconds = reference_seconds(row);
        std::printf("%-26s %5u %8.1f s %12.1f s %+9.1f %%\n", row.where.c_str(), row.reference.peers,
                    row.published_seconds, seconds, judge(100 * (seconds / row.published_seconds - 1)));
    }
    print_prediction_head();
    for (const PaperRow& row : table_1) {
        if (!print_predictions(row, row.where.c_str())) return false;
    }
    std::printf("\nTable 2: concurrent operations, one flow of 1.21 Gbit/s each, interface 45 Gbit/s, 6 peers\n");
    std::printf("%-26s %13s %14s %10s\n", "", "published", "reference ring", "deviation");
    for (const PaperRow& row : table_2) {
        const double published = gigabits(ring_rate(row, row.published_seconds));
        const double reference = gigabits(ring_rate(row, reference_seconds(row)));
        std::printf("%-26s %6.2f Gbit/s %7.2f Gbit/s %+9.1f %%\n", row.where.c_str(), published, reference,
                    judge(100 * (reference / published - 1)));
    }
    print_prediction_head();
    if (!print_predictions(table_2.front(), "the network of table 2")) return false;
    std::printf("\n%s the published figures; computed in %.1f s\n",
                good ? "All rows of the reference ring are within 15 % of"
                     : "NOT all rows of the reference ring are near",
                watch.seconds());
    return good;
}

// Leaves few collectives of few slices without content, to measure the cost of the protocol alone under the same
// faults.
void reduce_to_protocol(Scenario& scenario) {
    scenario.world.symbolic = true;
    Workload& w = scenario.workload;
    w.tags = std::min(w.tags, 1u);
    w.elements_max = std::min(w.elements_max, 64u);
    for (PeerPlan& plan : scenario.peers) plan.turns = std::min(plan.turns, 4u);
    scenario.expectations.clear();  // they count on members that stay longer
    fit_collectives(scenario);
}

// Measures seeds per second on one core. False if a seed failed.
bool seeds(const char* name, bool protocol_only, std::uint64_t last) {
    const Stopwatch watch;
    double simulated = 0;
    std::uint64_t events = 0, failed = 0;
    for (std::uint64_t seed = 1; seed <= last; ++seed) {
        Scenario scenario = generate(seed);
        if (protocol_only) reduce_to_protocol(scenario);
        const Verdict v = run(scenario);
        if (!v.held()) {
            ++failed;
            std::printf("seed %" PRIu64 "%s FAILED  oracle %s\n  %s\n", seed, protocol_only ? " (protocol only)" : "",
                        v.violation.oracle.c_str(), v.violation.reason.c_str());
        }
        simulated += static_cast<double>(v.simulated) / 1e9;
        events += v.events;
    }
    const double cpu = watch.seconds();
    std::printf("%-16s %6.0f seeds/s, %6.0f simulated s/s, %8.0f events/s, %" PRIu64 " of %" PRIu64 " failed\n", name,
                static_cast<double>(last) / cpu, simulated / cpu, static_cast<double>(events) / cpu, failed, last);
    return failed == 0;
}

bool bench_speed() {
    const bool whole = seeds("default mix", false, 2000);
    return seeds("protocol only", true, 5000) && whole;
}

bool bench_scale() {
    const Stopwatch watch;
    const Verdict v = run(scale_scenario(), unbounded());
    const double cpu = watch.seconds();
    std::printf("1,000 peers: %.1f s of one core, %.0f s simulated, %" PRIu64
                " events, peak memory %.2f GiB; reductions "
                "committed %" PRIu64 ", aborted %" PRIu64 ", connects %" PRIu64 ", lost %" PRIu64 "\n",
                cpu, static_cast<double>(v.simulated) / 1e9, v.events, peak_memory_gib(), v.counters.committed,
                v.counters.aborted, v.counters.connects, v.counters.lost);
    if (!v.held())
        std::printf("FAILED  oracle %s\n  %.2000s\n", v.violation.oracle.c_str(), v.violation.reason.c_str());
    // Each peer commits the first and the last reduction, and each of the 980 survivors commits the second one.
    const bool as_planned = v.counters.committed == 1000 + 980 + 1000 && v.counters.lost == 0;
    if (v.held() && !as_planned) std::printf("FAILED  the run did not go as planned: three reductions, nobody lost\n");
    return v.held() && as_planned;
}

// Compares what optimize_topology measures with the links of the network, and checks the ring that it chooses.
bool survey(const char* name, const PathNetwork& network, const std::vector<std::uint32_t>& good_ring) {
    const Stopwatch watch;
    const TopologyFacts facts = watch_topology(path_scenario(network, true), unbounded().items_max);
    const Verdict before = run(path_scenario(network, false), unbounded());
    if (!facts.verdict.held() || !before.held()) {
        std::printf("%s FAILED  %s\n", name, facts.verdict.violation.reason.c_str());
        return false;
    }
    double worst = 0;
    for (const auto& [ends, rate] : facts.bandwidths) {
        const std::uint32_t from = facts.nodes.at(ends.first) - 1, to = facts.nodes.at(ends.second) - 1;
        std::int64_t width = network.paths.empty() ? 0 : network.paths[from * network.peers + to];
        if (width == 0) width = network.host_rate;
        worst = std::max(worst, std::abs(static_cast<double>(rate) / static_cast<double>(width) - 1) * 100);
    }
    std::vector<std::uint32_t> ring;
    if (!facts.changes.empty()) {
        for (const std::string& peer : facts.changes.back().after) ring.push_back(facts.nodes.at(peer) - 1);
        std::rotate(ring.begin(), std::find(ring.begin(), ring.end(), good_ring.front()), ring.end());
    }
    const double seconds = static_cast<double>(facts.longest_vote) / 1e9;
    const std::size_t edges = std::size_t{network.peers} * (network.peers - 1);
    const bool good = facts.bandwidths.size() == edges && worst <= 10 && seconds <= 10 && ring == good_ring;
    std::printf("%-44s %3zu of %3zu edges in %5.2f s, off by %4.1f %% at most, %s; all-reduce %6.2f s -> %6.2f s  "
                "(%.1f s of a core)%s\n",
                name, facts.bandwidths.size(), edges, seconds, worst,
                ring.empty()        ? "ring as it was"
                : ring == good_ring ? "the best ring"
                                    : "another ring",
                static_cast<double>(before.reduce_time) / 1e9, static_cast<double>(facts.verdict.reduce_time) / 1e9,
                watch.seconds(), good ? "" : "  MISSED");
    return good;
}

// One of 12 peers has an eighth of the others' uplink. Once the master knows, it cuts the vector into unequal parts.
bool slow_uplink(std::int64_t rate) {
    PathNetwork network;
    network.peers = 12;
    network.host_rate = rate;
    network.window = 512 << 10;
    network.elements = 16u << 20;
    constexpr std::uint32_t slow = 5;
    network.paths.assign(std::size_t{network.peers} * network.peers, 0);
    for (std::uint32_t to = 0; to < network.peers; ++to) network.paths[slow * network.peers + to] = rate / 8;
    const Verdict equal = run(path_scenario(network, false), unbounded());
    const Verdict unequal = run(path_scenario(network, true), unbounded());
    const double before = static_cast<double>(equal.reduce_time) / 1e9;
    const double after = static_cast<double>(unequal.reduce_time) / 1e9;
    const bool good = equal.held() && unequal.held() && after <= 0.6 * before;
    std::printf("12 peers, one with an eighth of the uplink; all-reduce of 64 MiB %6.2f s -> %6.2f s, x %.2f%s\n",
                before, after, after / before, good ? "" : "  MISSED");
    return good;
}

bool bench_topology() {
    constexpr std::int64_t megabit = 1'000'000 / 8;
    bool good = true;
    std::printf("8 peers, 20 ms round trip, windows of 160 KiB; target: 10 s, 10 %%\n");
    for (const std::int64_t rate : {100, 300, 1000}) {
        PathNetwork network;
        network.host_rate = rate * megabit;
        good = survey(core::formatted("links of {} Mbit/s", rate).c_str(), network, {}) && good;
    }
    std::vector<std::uint32_t> ring;
    PathNetwork network = network_with_good_ring(8, 1, 100 * megabit, 400 * megabit, 1000 * megabit, ring);
    good = survey("paths of 100-400 Mbit/s, a ring of 1 Gbit/s", network, ring) && good;
    good = slow_uplink(1000 * megabit) && good;
    network = network_with_good_ring(8, 2, 10 * megabit, 40 * megabit, 100 * megabit, ring);
    good = survey("paths of 10-40 Mbit/s, a ring of 100 Mbit/s", network, ring) && good;
    std::printf("Outside of the target, for comparison:\n");
    network = network_with_good_ring(8, 3, 100 * megabit, 400 * megabit, 1000 * megabit, ring);
    network.latency = 50 * core::millisecond;
    network.window = 1 << 20;
    (void)survey("the first widths, 100 ms, windows of 1 MiB", network, ring);
    return good;
}

}  // namespace

int bench(const std::string& what) {
    bool good = true;
    const bool all = what == "all";
    if (all || what == "paper") good = bench_paper();
    if (all) std::printf("\n");
    if (all || what == "speed") good = bench_speed() && good;
    if (all || what == "topology") good = bench_topology() && good;
    if (all || what == "scale") good = bench_scale() && good;
    if (all || what == "quantized") good = bench_quantized() && good;
    return good ? 0 : 1;
}

}  // namespace pccl::tools
