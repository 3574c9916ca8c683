// The master's status for spectators, in runs full of faults. After each event it must match what the master promised.
// In the end it must have counted what applications saw. Watching must not change a run.
#include "harness/run.hpp"
#include "harness/scenario_text.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

using namespace pccl;
using namespace pccl::harness;

namespace {

struct Watched {
    Observation observation;
    sim::StatusWatch watch;
    Verdict verdict;
    explicit Watched(const Scenario& scenario) {
        observation.recorder = sim::Recorder(sim::Recorder::Bounds{.skip = ~std::uint64_t{0}});
        observation.recorder = sim::Recorder(sim::Recorder::Bounds{.skip = ~std::uint64_t{0}});
        RunOptions options;
        options.observation = &observation;
        options.status = &watch;
        verdict = run(scenario, options);
        INFO(verdict.violation.oracle << ": " << verdict.violation.reason << "\n" << to_text(scenario));
        REQUIRE(verdict.held());
    }
    // The largest number of collectives that one process saw succeed.
    std::uint64_t seen_by_one() const {
        std::map<std::uint32_t, std::uint64_t> seen;
        std::uint64_t most = 0;
        for (const LaunchFact& fact : observation.ledger.launches) {
            if (fact.end != open_end && fact.completion.result == core::Result::success)
                most = std::max(most, ++seen[fact.process]);
        }
        return most;
    }
};

}  // namespace

TEST_CASE("the status agrees with the promises and the ledger, whatever happens") {
    std::uint64_t committed = 0, looks = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        Scenario scenario = generate(seed);
        scenario.limits.operations_listed = core::Limits{}.operations_listed;  // lists all of them
        const Watched run(scenario);
        CAPTURE(seed);
        CHECK(run.watch.committed() >= run.seen_by_one());
        committed += run.watch.committed();
        looks += run.watch.looks();
    }
    CHECK(committed > 1000);
    CHECK(looks > 50'000);
}

TEST_CASE("of two members without faults each sees what the master counts") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        Scenario scenario;
        scenario.seed = seed;
        for (int i = 0; i < 2; ++i) {
            PeerPlan plan;
            plan.turns = 6;
            scenario.peers.push_back(plan);
        }
        scenario.workload.tags = 3;
        scenario.chaos_end = core::second;
        scenario.stop_after = 200 * core::millisecond;
        scenario.patience = 60 * core::second;
        const Watched run(scenario);
        CHECK(run.watch.committed() == run.seen_by_one());
        CHECK(run.watch.committed() > 0);
    }
}

TEST_CASE("looking on changes nothing") {
    for (std::uint64_t seed = 300; seed < 310; ++seed) {
        const Scenario scenario = generate(seed);
        CHECK(Watched(scenario).verdict.trace_hash == run(scenario).trace_hash);
    }
}
