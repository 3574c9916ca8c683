// predict: what the simulator says about an all-reduce on the links of `./dev bench wan`, one JSON line per size.
//
// The simulated network has latency, a rate per flow and a window, as docs/bandwidth-model.md describes. It has no
// processors, so reductions and copies cost no time. Without --loss-percent its windows are constant, as if TCP was
// always warm; with it, windows grow and shrink as in Reno.
#include "harness/run.hpp"
#include "statistics.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>

namespace {

using namespace pccl;

struct Path {
    unsigned peers = 2, connections = 8, turns = 8;
    double latency_ms = 20, flow_mbit = 1000, interface_mbit = 0, queue_ms = 50, loss_percent = 0;
    std::string scratch = "256M";
};

harness::Scenario scenario_for(const Path& path, std::size_t bytes, std::size_t scratch_bytes) {
    harness::Scenario s;
    s.seed = 1;
    s.limits.eager_bytes = core::Limits{}.eager_bytes;
    s.limits.scratch_bytes = scratch_bytes;
    s.limits.vote_input_bytes_max = core::Limits{}.vote_input_bytes_max;
    s.limits.pairwise_bytes_max = core::Limits{}.pairwise_bytes_max;
    s.world.symbolic = bytes > s.limits.vote_input_bytes_max;  // a vote carries content
    sim::NetworkParameters& n = s.world.network;
    // Region 1 is the master and the first peer, which share a host; each other peer is a region of its own.
    const auto latency = static_cast<core::Duration>(path.latency_ms * 1e6);
    for (unsigned from = 0; from < path.peers; ++from)
        for (unsigned to = 0; to < path.peers; ++to)
            n.region_latency.push_back(from == to ? core::millisecond / 50 : latency);
    n.regions.push_back(0);
    for (unsigned i = 0; i < path.peers; ++i) n.regions.push_back(i);
    const double rate = path.flow_mbit * 1e6 / 8;
    const double interface = path.interface_mbit > 0 ? path.interface_mbit * 1e6 / 8 : 12.5e9;
    n.rate_low = n.rate_high = n.down_low = n.down_high = static_cast<std::int64_t>(interface);
    n.flow_rate = static_cast<std::int64_t>(rate);
    // A flow fills its path and the queue in front of it.
    const double bandwidth = rate > 0 ? rate : interface;
    n.window_low = n.window_high =
        static_cast<std::int64_t>(bandwidth * (2 * path.latency_ms + path.queue_ms) / 1e3) + 65'536;
    if (path.loss_percent > 0) {
        n.loss_per_million = static_cast<std::uint32_t>(path.loss_percent * 1e4);
        n.queue_max = static_cast<core::Duration>(path.queue_ms * 1e6);
    }
    for (unsigned i = 0; i < path.peers; ++i) {
        harness::PeerPlan plan;
        plan.start = i * core::millisecond;
        plan.stripes = path.connections;
        plan.turns = path.turns;
        plan.rejoins = false;
        s.peers.push_back(plan);
    }
    harness::Workload& w = s.workload;
    w.sync = false;
    w.tags = 1;
    w.elements_min = w.elements_max = static_cast<std::uint32_t>(bytes / 4);
    w.f32_sum = true;
    w.world_min = path.peers;
    w.in_place_per_mille = 1000;
    s.stop_after = 3600 * core::second;
    s.patience = 60 * core::second;
    return s;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Predicts the time of an all-reduce on the links of ./dev bench wan, by the simulator."};
    Path path;
    std::vector<std::string> sizes{"4K", "64K", "1M", "16M", "64M", "256M"};
    app.add_option("--sizes", sizes)->delimiter(',');
    app.add_option("--peers", path.peers)->check(CLI::Range(2, 64))->capture_default_str();
    app.add_option("--connections", path.connections)->check(CLI::Range(1, 64))->capture_default_str();
    app.add_option("--latency-ms", path.latency_ms, "one way")->capture_default_str();
    app.add_option("--flow-mbit", path.flow_mbit)->capture_default_str();
    app.add_option("--interface-mbit", path.interface_mbit)->capture_default_str();
    app.add_option("--queue-ms", path.queue_ms)->capture_default_str();
    app.add_option("--loss-percent", path.loss_percent)->capture_default_str();
    app.add_option("--scratch", path.scratch, "memory for partial sums in flight")->capture_default_str();
    app.add_option("--turns", path.turns,
                   "of each peer, some of them before all have joined; the last one is predicted")
        ->capture_default_str();
    bool trace = false;
    app.add_flag("--trace", trace, "print every event");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    std::size_t scratch_bytes = 0;
    if (!bench::parse_size(path.scratch, scratch_bytes)) return 2;
    for (const std::string& size : sizes) {
        std::size_t bytes = 0;
        if (!bench::parse_size(size, bytes) || bytes < 4 || bytes > std::size_t{8} << 30) {
            std::fprintf(stderr, "predict: not a size: %s\n", size.c_str());
            return 2;
        }
        harness::RunOptions options;
        options.items_max = 2'000'000'000;
        if (trace) options.trace = stdout;
        const harness::Verdict verdict = harness::run(scenario_for(path, bytes, scratch_bytes), options);
        if (!verdict.held()) {
            std::fprintf(stderr, "predict: %zu bytes: oracle %s: %s\n", bytes, verdict.violation.oracle.c_str(),
                         verdict.violation.reason.c_str());
            return 1;
        }
        std::printf("{\"bytes\":%zu,\"peers\":%u,\"connections\":%u,\"predicted_ms\":%.4f,\"events\":%llu}\n", bytes,
                    path.peers, path.connections, static_cast<double>(verdict.reduce_time) / 1e6,
                    static_cast<unsigned long long>(verdict.events));
        std::fflush(stdout);
    }
    return 0;
}
