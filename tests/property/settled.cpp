// What settle() makes of a drawn scenario: it can be played, and its limits fit its workload.
#include "harness/draw_units.hpp"
#include "harness/even_world.hpp"
#include "harness/run.hpp"
#include "harness/scenario_text.hpp"
#include "harness/settle.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>

using namespace pccl;
using namespace pccl::core;
using namespace pccl::harness;

namespace {

Scenario read(const std::string& name) {
    std::ifstream file(std::string(PCCL_SETTLED) + "/" + name + ".scenario");
    std::stringstream text;
    text << file.rdbuf();
    ScenarioError error;
    const auto scenario = parse_scenario(text.str(), error);
    INFO("line " << error.line << ": " << error.expected);
    REQUIRE(scenario);
    return *scenario;
}

}  // namespace

TEST_CASE("a drawn way is wide enough for the words of all operations that run at once") {
    const Scenario drawn = read("words-fill-a-narrow-way");
    Scenario scenario = drawn;
    settle(scenario);
    CHECK(scenario.world.network.window_low > drawn.world.network.window_low);
    CHECK(run(scenario, {}).held());
}

TEST_CASE("the patience of a drawn run counts the rounds of operations that wait for each other") {
    Scenario scenario = read("many-tags-one-after-another-around-a-large-ring");
    settle(scenario);
    CHECK(scenario.patience > 700 * second);
}

TEST_CASE("the patience of a drawn run counts the operations that a liar makes fail one after another") {
    Scenario scenario = read("liar-makes-one-after-another-of-many-tags-fail");
    CHECK_FALSE(run(scenario, {}).held());
    settle(scenario);
    CHECK(run(scenario, {}).held());
}

TEST_CASE("full windows of huge arrays in an even world leave in a small part of a peer time-out") {
    GeneratorOptions options;
    options.classes = class_even;
    int drawn = 0;
    for (std::uint64_t seed = 1; seed <= 200'000; ++seed) {
        const Scenario scenario = generate(seed, options);
        if (!scenario.even || !is_huge(scenario)) continue;
        ++drawn;
        const auto& network = scenario.world.network;
        CHECK(second * network.window_high / network.rate_low < scenario.timeouts.peer / 2);
    }
    CHECK(drawn > 0);
}
