// Nothing waits needlessly: on an even network without faults every call returns as soon as the last bytes that it needs
// have come, so time-outs a hundred times as long change no instant. A lost wake-up that a tick, a resend or a redial heals
// shows as a call that returns later then.
#include "harness/run.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <tuple>

using namespace pccl;
using namespace pccl::core;
using namespace pccl::harness;

namespace {

// What the seed draws, on a network and a disk that do the same at all times and to everybody.
Scenario even(std::uint64_t seed) {
    GeneratorOptions options;
    options.classes = class_shape | class_sync | class_limits | class_latency | class_segmentation;
    Scenario s = generate(seed, options);
    s.faults.clear();
    sim::NetworkParameters& n = s.world.network;
    n.latency_high = n.latency_low;
    n.jitter_per_mille = 0;
    n.stop_faults();
    n.window_low = n.window_high = 64 << 20;
    n.rate_low = n.rate_high = 10'000'000'000;
    n.down_low = n.down_high = n.flow_rate = 0;
    n.regions.clear();
    s.world.drift_ppm = 0;
    s.world.timer_late_max = 0;
    s.world.disk_low = s.world.disk_high = 10 * microsecond;
    s.world.allocation_fails_per_million = 0;
    s.world.staging_max = 0;
    s.world.wrong_chunks_per_million = 0;
    s.timeouts.vote = 0;
    // A dial that nobody answers is a wait, and a needed one.
    for (PeerPlan& plan : s.peers) plan.masters = PeerPlan{}.masters;
    return s;
}

// Everything that waits for something else than bytes: how long a bandwidth test takes is no time-out.
Scenario patient(Scenario s) {
    Timeouts& t = s.timeouts;
    for (Duration* time : {&t.peer, &t.master, &t.handshake, &t.dial, &t.redial_min, &t.redial_max, &t.vote_warn})
        *time *= 100;
    return s;
}

struct Fact {
    std::string who;
    Instant begin = 0, end = 0;
};

std::vector<Fact> facts_of(const Scenario& scenario) {
    Observation observation;
    RunOptions options;
    options.observation = &observation;
    const Verdict verdict = run(scenario, options);
    INFO("seed " << scenario.seed << ": " << verdict.violation.oracle << " " << verdict.violation.reason);
    REQUIRE(verdict.held());
    std::vector<Fact> facts;
    const Ledger& ledger = observation.ledger;
    const auto add = [&](const auto& list, const char* what) {
        for (const auto& fact : list) facts.push_back({ledger.name(fact.life) + " " + what, fact.begin, fact.end});
    };
    add(ledger.votes, "call of the run");
    add(ledger.launches, "reduction");
    add(ledger.syncs, "synchronization");
    // One process after the other: what two of them begin at once has no order.
    std::stable_sort(facts.begin(), facts.end(),
                     [](const Fact& a, const Fact& b) { return std::tie(a.who, a.begin) < std::tie(b.who, b.begin); });
    return facts;
}

// Heartbeats take their part of the uplink, and a record of the disk: microseconds. A tick is 10 ms at least.
bool same(const Fact& a, const Fact& b) {
    return a.who == b.who && std::abs(a.begin - b.begin) < millisecond && std::abs(a.end - b.end) < millisecond;
}

}  // namespace

TEST_CASE("time-outs a hundred times as long change no instant") {
    std::size_t calls = 0;
    for (std::uint64_t seed = 1; seed <= 600; ++seed) {
        const Scenario scenario = even(seed);
        const std::vector<Fact> facts = facts_of(scenario), others = facts_of(patient(scenario));
        const auto [fact, other] = std::mismatch(facts.begin(), facts.end(), others.begin(), others.end(), same);
        INFO("seed " << seed << ", "
                     << (fact == facts.end() ? "one call more"
                                             : fact->who + " that began at " + std::to_string(fact->begin) +
                                                   " ns returned at " + std::to_string(fact->end)));
        INFO("with longer time-outs at " << (other == others.end() ? 0 : other->end));
        REQUIRE((fact == facts.end() && other == others.end()));
        calls += facts.size();
    }
    CHECK(calls > 30'000);
}
