// Properties of whole runs under churn. rapidcheck draws the seed of the scenario and which of its faults happen. If a
// run fails, it removes faults as long as the run still fails. The message holds the scenario that is left.
#include "harness/fault_refs.hpp"
#include "harness/run.hpp"
#include "harness/scenario_text.hpp"

#include <catch2/catch.hpp>
#include <rapidcheck.h>
#include <rapidcheck/catch.h>

#include <algorithm>

using namespace pccl;
using namespace pccl::harness;

namespace {

Scenario draw_scenario(std::uint32_t classes) {
    GeneratorOptions options;
    options.classes = classes;
    Scenario scenario = generate(*rc::gen::resize(1000, rc::gen::inRange<std::uint64_t>(1, 1'000'000'000)), options);
    scenario.workload.beside = 0;  // programs with a separate thread for collectives run only one kind of them
    scenario.limits.tags_max = core::Limits{}.tags_max;  // the tests below ask for more tags than were drawn
    if (!scenario.faults.empty()) {
        const auto chosen =
            *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, scenario.faults.size()));
        std::vector<Fault> faults;
        for (const std::size_t i : chosen) faults.push_back(untied(scenario.faults, scenario.faults[i]));
        std::stable_sort(faults.begin(), faults.end(), [](const Fault& x, const Fault& y) { return x.at < y.at; });
        scenario.faults = std::move(faults);
    }
    return scenario;
}

void must_hold(const Scenario& scenario) {
    const Verdict verdict = run(scenario);
    if (!verdict.held()) RC_FAIL(verdict.violation.oracle + ": " + verdict.violation.reason + "\n" + to_text(scenario));
    RC_CLASSIFY(verdict.counters.committed != 0, "committed");
    RC_CLASSIFY(verdict.counters.aborted != 0, "aborted");
}

constexpr std::uint32_t churn = class_sync | class_crash | class_connection | class_shape | class_segmentation;

}  // namespace

TEST_CASE("parity: committed bytes are equal on all members and are the operation over their inputs") {
    rc::prop("under crashes, lost connections and random segmentation", [] {
        Scenario scenario = draw_scenario(churn | class_latency | class_application);
        scenario.workload.tags = std::max(scenario.workload.tags, 1u);
        scenario.workload.sync = true;
        must_hold(scenario);
    });
}

TEST_CASE("restore: a failed operation leaves its inputs as they were") {
    rc::prop("in place, with operations aborted by crashes and a master that comes and goes", [] {
        Scenario scenario = draw_scenario(churn | class_master | class_limits);
        scenario.workload.tags = std::max(scenario.workload.tags, 2u);
        scenario.workload.in_place_per_mille = 1000;
        must_hold(scenario);
    });
}

TEST_CASE("liveness: when faults stop, everybody comes to an end") {
    rc::prop("under the whole default mix", [] { must_hold(draw_scenario(0xffffffffu)); });
}

TEST_CASE("determinism: a scenario gives one trace") {
    rc::prop("event by event, with every state compared", [] {
        const Verdict verdict = run_twice(draw_scenario(0xffffffffu));
        if (!verdict.held()) RC_FAIL(verdict.violation.oracle + ": " + verdict.violation.reason);
    });
}

TEST_CASE("many tags in one call: one end for all, whatever the orders and windows") {
    rc::prop("under losses, shapes that differ and a master that comes and goes", [] {
        Scenario scenario = draw_scenario(churn | class_master | class_limits | class_application);
        scenario.workload.tags = *rc::gen::inRange(4u, 13u);
        scenario.workload.elements_max = std::min(scenario.workload.elements_max, 400u);
        scenario.workload.many_window = *rc::gen::inRange(1u, 9u);
        scenario.workload.mismatch_per_mille = *rc::gen::element(0u, 20u);
        must_hold(scenario);
    });
}

TEST_CASE("votes with a limit: who makes no call, or another one, holds up nobody for good") {
    rc::prop("with programs that lose their place and hang", [] {
        Scenario scenario = draw_scenario(churn | class_slow);
        scenario.timeouts.vote =
            *rc::gen::inRange<core::Duration>(5, 20) * core::second + 2 * scenario.workload.compute_max;
        scenario.workload.cross_per_mille = 150;
        scenario.patience += 4 * scenario.timeouts.vote;
        must_hold(scenario);
    });
}
