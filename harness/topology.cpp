#include "harness/topology.hpp"

#include "net-sim/draw.hpp"

#include <algorithm>
#include <sstream>

namespace pccl::harness {

using namespace core;

Scenario path_scenario(const PathNetwork& network, bool optimize) {
    Scenario s;
    s.seed = 1;
    s.world.symbolic = true;
    sim::NetworkParameters& n = s.world.network;
    n.rate_low = n.rate_high = n.down_low = n.down_high = network.host_rate;
    n.window_low = n.window_high = network.window;
    // Node 0 is the master. It has its own region, at the same distance.
    const std::uint32_t regions = network.peers + 1;
    for (std::uint32_t from = 0; from < regions; ++from) {
        for (std::uint32_t to = 0; to < regions; ++to) {
            n.region_latency.push_back(network.latency);
            const bool path = from != 0 && to != 0 && !network.paths.empty();
            n.region_rate.push_back(path ? network.paths[(from - 1) * network.peers + to - 1] : 0);
        }
        n.regions.push_back(from);
    }
    for (std::uint32_t i = 0; i < network.peers; ++i) {
        PeerPlan plan;
        plan.start = i * 200 * millisecond;
        plan.stripes = 4;
        plan.turns = 1;
        plan.rejoins = false;
        s.peers.push_back(plan);
    }
    Workload& w = s.workload;
    w.sync = false;
    w.tags = 1;
    w.elements_min = w.elements_max = network.elements;
    w.f32_sum = true;
    w.world_min = network.peers;
    w.optimize_per_mille = optimize ? 1000 : 0;
    s.stop_after = 3600 * second;
    s.patience = 60 * second;
    return s;
}

PathNetwork network_with_good_ring(std::uint32_t peers, std::uint64_t seed, std::int64_t low, std::int64_t high,
                                   std::int64_t best, std::vector<std::uint32_t>& good_ring) {
    sim::Draw draw(sim::mix(seed, 900));
    PathNetwork network;
    network.peers = peers;
    network.host_rate = best;
    for (std::uint32_t i = 0; i < peers * peers; ++i) network.paths.push_back(draw.log_uniform(low, high));
    good_ring.clear();
    for (std::uint32_t i = 0; i < peers; ++i) good_ring.push_back(i);
    for (std::size_t i = peers; i > 1; --i) std::swap(good_ring[i - 1], good_ring[draw.below(i)]);
    for (std::uint32_t i = 0; i < peers; ++i) network.paths[good_ring[i] * peers + good_ring[(i + 1) % peers]] = best;
    return network;
}

TopologyFacts watch_topology(const Scenario& scenario, std::uint64_t items_max) {
    TopologyFacts facts;
    Observation observation;
    observation.recorder = sim::Recorder({0, 0});
    observation.recorder.listen([&](const std::string& text) {
        std::istringstream words(text);
        const auto skip = [&](int count) {
            for (std::string word; count-- > 0;) words >> word;
        };
        if (text.starts_with("bandwidth from peer ")) {
            std::string from, to;
            std::uint64_t rate = 0;
            skip(3);
            words >> from;
            skip(2);
            words >> to >> rate;
            to.pop_back();  // the colon
            facts.bandwidths[{from, to}] = rate;
        } else if (text.starts_with("took up the run")) {
            facts.bandwidths.clear();
        } else if (text.find(" cannot reach peer ") != std::string::npos) {
            facts.edges_failed = true;
        } else if (text.starts_with("ring of group ") && text.find(" changed from ") != std::string::npos) {
            RingChange change;
            change.bandwidths = facts.bandwidths;
            skip(6);
            std::vector<std::string>* side = &change.before;
            for (std::string name; words >> name;) {
                if (name == "to")
                    side = &change.after;
                else
                    side->push_back(name);
            }
            facts.changes.push_back(std::move(change));
        }
    });
    RunOptions options;
    options.items_max = items_max;
    options.observation = &observation;
    facts.verdict = run(scenario, options);
    facts.nodes = observation.recorder.names();
    Instant begin = 0, end = 0;
    for (const VoteFact& vote : observation.ledger.votes) {
        if (vote.kind != CallKind::optimize || vote.end == open_end) continue;
        if (vote.begin > end) begin = 0;
        begin = std::max(begin, vote.begin);
        end = vote.end;
        facts.longest_vote = std::max(facts.longest_vote, end - begin);
    }
    return facts;
}

}  // namespace pccl::harness
