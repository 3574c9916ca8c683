// The search for scenarios, and the statistics on how thorough runs were.
#include "harness/search.hpp"
#include "harness/scenario_text.hpp"
#include "harness/settle.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace pccl;
using namespace pccl::harness;

namespace {

// Runs a search of `runs` runs and returns the texts of the scenarios that it kept.
std::vector<std::string> corpus_of(std::uint64_t seed, int runs, std::uint64_t* changed = nullptr) {
    Search search(seed, {});
    Coverage coverage(Coverage::Detail::all);
    RunOptions options;
    options.coverage = &coverage;
    for (int i = 0; i < runs; ++i) {
        const Scenario scenario = search.next();
        (void)search.learn(scenario, run(scenario, options), coverage);
    }
    std::vector<std::string> texts;
    for (const Search::Kept& kept : search.corpus()) texts.push_back(to_text(kept.scenario));
    if (changed != nullptr) *changed = search.mutated();
    return texts;
}

// Whether a correct run can do what the scenario asks for.
void require_feasible(const Scenario& s) {
    REQUIRE(s.limits.peers_max >= s.peers.size());
    REQUIRE(s.limits.tags_max >= s.workload.tags);
    REQUIRE(s.limits.entries_max >= s.workload.entries);
    for (const PeerPlan& plan : s.peers) REQUIRE(s.limits.stripes_max >= plan.stripes);
    REQUIRE(s.world.staging_max <= staging_time_outs * s.timeouts.peer);
    // One kind of collective runs beside updates, and a limit on votes leaves the calls time.
    if (s.workload.beside != 0) {
        REQUIRE_FALSE((s.workload.sync && s.workload.tags != 0));
        REQUIRE((s.timeouts.vote == 0 || s.timeouts.vote >= 5 * pccl::core::second + 2 * s.workload.compute_max));
    }
    // The others of a gang are lost with a liar, and no program breaks rules beside it.
    if (has_liars(s)) {
        REQUIRE(std::all_of(s.peers.begin(), s.peers.end(), [](const PeerPlan& plan) { return plan.gang.none(); }));
        REQUIRE(s.workload.mismatch_per_mille + s.workload.cross_per_mille == 0);
    }
    // A lasting fault does not touch the core, wherever its trigger happens.
    for (const Fault& fault : s.faults)
        REQUIRE_FALSE((fault.forever && fault.place != FaultPlace::named && !s.core.empty()));
}

}  // namespace

TEST_CASE("times that depend on each other fit, whichever was drawn last") {
    // A race lowered the time-outs, or lengthened the paths, for which another draw had chosen its times.
    require_feasible(generate(46521589));
    const Scenario far_master = generate(46544297);
    CHECK(far_master.timeouts.dial >= 4 * far_master.world.network.latency_high);
}

TEST_CASE("a dial has the time for a round trip after a change of the latency") {
    Scenario far = generate(1);
    sim::NetworkParameters& n = far.world.network;
    n.latency_high = 1'500 * core::millisecond;
    n.jitter_per_mille = 100;
    far.timeouts.dial = core::second;
    settle(far);
    CHECK(far.timeouts.dial >= 3'300 * core::millisecond);
}

TEST_CASE("what the generator draws is settled") {
    // Some of its scenarios break such a rule on purpose: those about the limit on votes, or about windows. Beside a member
    // that lies the limit is always short.
    std::size_t unchanged = 0, without_liar = 0;
    for (std::uint64_t seed = 1; seed <= 3'000; ++seed) {
        const Scenario scenario = generate(seed);
        Scenario settled = scenario;
        settle(settled);
        const std::string text = to_text(settled);
        without_liar += has_liars(scenario) ? 0 : 1;
        unchanged += !has_liars(scenario) && text == to_text(scenario) ? 1 : 0;
        INFO("seed " << seed);
        REQUIRE(sound(settled));
        require_feasible(scenario);
        REQUIRE(scenario.timeouts.dial >= 2 * scenario.world.network.latency_high);
        settle(settled);
        REQUIRE(to_text(settled) == text);
    }
    CHECK(without_liar > 2'700);
    CHECK(unchanged * 100 > without_liar * 88);
}

TEST_CASE("a changed scenario is sound, settled, and survives its text") {
    sim::Draw draw(17);
    EffectCounts effects;
    effects.fill(200);
    Scenario parent = generate(1);
    for (std::uint64_t seed = 2; seed <= 3'000; ++seed) {
        const Scenario donor = generate(seed);
        const Scenario child = mutate(parent, donor, effects, draw);
        INFO("seed " << seed << "\n" << to_text(child));
        REQUIRE(sound(child));
        require_feasible(child);
        ScenarioError error;
        const auto read = parse_scenario(to_text(child), error);
        INFO(error.line << ": " << error.expected);
        REQUIRE(read.has_value());
        REQUIRE(to_text(*read) == to_text(child));
        Scenario again = child;
        settle(again);
        REQUIRE(to_text(again) == to_text(child));
        // Changes accumulate, as in a search.
        parent = seed % 20 == 0 ? donor : child;
    }
}

TEST_CASE("what a run of a changed scenario keeps fits into a small machine") {
    sim::Draw draw(18);
    EffectCounts effects;
    effects.fill(200);
    Scenario parent = generate(1);
    Workload& w = parent.workload;
    w.state_elements_min = w.state_elements_max = 1 << 20;
    w.entries = 3;
    for (PeerPlan& plan : parent.peers) plan.turns = 60;
    for (std::uint64_t seed = 2; seed <= 100; ++seed) {
        const Scenario child = mutate(parent, generate(seed), effects, draw);
        std::uint64_t turns = 0;
        for (const PeerPlan& plan : child.peers) turns += plan.turns;
        INFO(to_text(child));
        REQUIRE(turns * child.workload.entries * child.workload.state_elements_max * 16 <= std::uint64_t{1} << 30);
    }
}

TEST_CASE("the same search keeps the same scenarios") {
    std::uint64_t changed = 0;
    const std::vector<std::string> first = corpus_of(5, 150, &changed);
    CHECK(changed > 30);
    CHECK(first.size() > 50);
    CHECK(first == corpus_of(5, 150));
    CHECK(first != corpus_of(6, 150));
}

TEST_CASE("what a run reaches is observed only") {
    for (const Coverage::Detail detail : {Coverage::Detail::states, Coverage::Detail::all}) {
        Coverage coverage(detail);
        RunOptions options;
        options.coverage = &coverage;
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
            const Scenario scenario = generate(seed);
            CHECK(run(scenario, options).trace_hash == run(scenario).trace_hash);
            CHECK(coverage.states().size() > 5);
            CHECK(coverage.marks().empty() == (detail == Coverage::Detail::states));
        }
    }
}

TEST_CASE("Good-Turing says how likely the next run shows something new") {
    // Five runs. They reach 1 and 2 in several runs, 3 and 4 in the second only, 5 in the last only.
    Census census;
    CHECK(census.chance_of_new() == 1);
    const std::vector<std::vector<Mark>> runs = {{1, 2}, {1, 3, 4}, {1, 2}, {2}, {1, 5}};
    std::size_t novel = 0;
    for (std::uint32_t i = 0; i < runs.size(); ++i) novel += census.add(i, runs[i]);
    CHECK(novel == 5);
    CHECK(census.size() == 5);
    CHECK(census.runs() == 5);
    CHECK(census.seen_once() == 3);
    CHECK(census.chance_of_new() == Approx(2.0 / 5));  // two runs reached what no other run did
    CHECK(census.size_within(1) == 2);
    CHECK(census.size_within(4) == 4);
    CHECK(census.runs_of(1) == 4);
    CHECK(census.runs_of(7) == 0);

    // The counts of two processes: only both together show what was seen once.
    Census even, odd;
    for (std::uint32_t i = 0; i < runs.size(); ++i) (i % 2 == 0 ? even : odd).add(i, runs[i]);
    even.merge(odd.entries(), odd.runs());
    CHECK(even.runs() == 5);
    CHECK(even.size() == 5);
    CHECK(even.seen_once() == 3);
    CHECK(even.chance_of_new() == Approx(2.0 / 5));
    CHECK(even.size_within(1) == 2);

    // A uniform draw from a thousand marks: after n runs, the share (1 - 1/1000)^n of them is unseen.
    sim::Draw draw(3);
    Census uniform;
    for (std::uint32_t i = 0; i < 1'500; ++i) {
        const Mark mark = static_cast<Mark>(draw.below(1'000));
        uniform.add(i, {&mark, 1});
    }
    CHECK(uniform.chance_of_new() == Approx(0.223).margin(0.04));
    CHECK(uniform.chance_of_new() == Approx(1 - static_cast<double>(uniform.size()) / 1'000).margin(0.04));
}
