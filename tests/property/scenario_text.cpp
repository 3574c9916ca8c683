// Scenarios as text: a written scenario is read back as the same run, and other text is refused with a position.
#include "harness/scenario_text.hpp"
#include "harness/run.hpp"

#include <catch2/catch.hpp>
#include <rapidcheck.h>
#include <rapidcheck/catch.h>

using namespace pccl;
using namespace pccl::harness;

namespace {

ScenarioError error_of(const std::string& text) {
    ScenarioError error;
    REQUIRE_FALSE(parse_scenario(text, error).has_value());
    return error;
}

void refused(const std::string& text, std::uint32_t line, std::uint32_t column, const std::string& part) {
    const ScenarioError error = error_of(text);
    INFO(text << " -> " << error.expected);
    CHECK(error.line == line);
    CHECK(error.column == column);
    CHECK(error.expected.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a generated scenario survives its text") {
    rc::prop("text, value and text again are the same", [] {
        const Scenario scenario = generate(*rc::gen::resize(1000, rc::gen::inRange<std::uint64_t>(1, 1'000'000'000)));
        ScenarioError error;
        const std::string text = to_text(scenario);
        const auto read = parse_scenario(text, error);
        if (!read) RC_FAIL(std::to_string(error.line) + ":" + std::to_string(error.column) + ": " + error.expected);
        RC_ASSERT(to_text(*read) == text);
    });
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        ScenarioError error;
        const Scenario scenario = generate(seed);
        const auto read = parse_scenario(to_text(scenario), error);
        REQUIRE(read.has_value());
        CHECK(run(*read).trace_hash == run(scenario).trace_hash);
    }
}

TEST_CASE("every class draws scenarios that are read back") {
    for (const std::uint32_t classes : {GeneratorOptions{}.classes, std::uint32_t{class_steady}}) {
        GeneratorOptions options;
        options.classes = classes;
        for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
            const std::string text = to_text(generate(seed, options));
            ScenarioError error;
            const auto read = parse_scenario(text, error);
            INFO("seed " << seed << ", line " << error.line << ": " << error.expected);
            REQUIRE(read.has_value());
            REQUIRE(to_text(*read) == text);
        }
    }
}

TEST_CASE("comments, blank lines and defaults") {
    ScenarioError error;
    const auto read =
        parse_scenario("# first\n\npccl-scenario 1  # version\r\n peer turns=2\n\tfaults_end 1.5ms\n", error);
    REQUIRE(read.has_value());
    CHECK(read->peers.size() == 1);
    CHECK(read->peers[0].turns == 2);
    CHECK(read->chaos_end == 1'500'000);
    CHECK(read->workload.tags == Workload{}.tags);
}

TEST_CASE("latencies by region survive their text") {
    ScenarioError error;
    const auto read = parse_scenario(
        "pccl-scenario 1\nregion 1ms 40ms\nregion 50ms 2ms\nmaster region=1\npeer region=1\npeer turns=1\n", error);
    REQUIRE(read.has_value());
    CHECK(read->world.network.regions == std::vector<std::uint32_t>{1, 1, 0});
    CHECK(read->world.network.region_latency[2] == 50'000'000);
    const auto again = parse_scenario(to_text(*read), error);
    REQUIRE(again.has_value());
    CHECK(again->world.network.regions == read->world.network.regions);
    CHECK(again->world.network.region_latency == read->world.network.region_latency);
    refused("pccl-scenario 1\nregion 1ms 2ms\npeer\n", 3, 1, "as many latencies");
    refused("pccl-scenario 1\nregion 1ms\npeer region=1\n", 3, 1, "a region line");
}

TEST_CASE("what is not a scenario is refused with line, column and what was expected") {
    refused("", 1, 1, "expected pccl-scenario 1");
    refused("seed 4\n", 1, 1, "expected pccl-scenario 1, found \"seed\"");
    refused("pccl-scenario 2\npeer\n", 1, 15, "version 1");
    refused("pccl-scenario 1\nseed 12x\n", 2, 6, "a number");
    refused("pccl-scenario 1\nseed 99999999999999999999\n", 2, 6, "a number");
    refused("pccl-scenario 1\npeer start=2\n", 2, 12, "a duration");
    refused("pccl-scenario 1\npeer start=1.0000000001s\n", 2, 12, "a duration");
    refused("pccl-scenario 1\npeer speed=2\n", 2, 6, "start=");
    refused("pccl-scenario 1\nlimits.min_slots 0\n", 2, 18, "from 1 to 64");
    refused("pccl-scenario 1\nnetwork.latency 2ms 1ms\n", 2, 21, "from 2ms");
    refused("pccl-scenario 1\nworkload.pump maybe\n", 2, 15, "yes or no");
    refused("pccl-scenario 1\nfault flood at=1ms\n", 2, 7, "the name of a fault");
    refused("pccl-scenario 1\nfault reset after=payload\n", 2, 19, "an effect and a number");
    refused("pccl-scenario 1\nfault reset after=payload*0\n", 2, 27, "from 1");
    refused("pccl-scenario 1\npeer turns=1 extra\n", 2, 14, "rejoins");
    refused("pccl-scenario 1\nseed 1 2\n", 2, 8, "the end of the line");
    refused("pccl-scenario 1\nnetwork.weather 1\n", 2, 1, "the name of a setting");
    refused("pccl-scenario 1\nseed 1\n", 2, 1, "at least one peer");
    refused("pccl-scenario 1\npeer\nworkload.tags 1\nclaim core\ncore 1\n", 5, 1, "a core of at least two");
    refused("pccl-scenario 1\npeer\nexpect luck 1\n", 3, 8, "committed, aborted, removed");
    refused("pccl-scenario 1\npeer\nexpect committed many\n", 3, 18, "a number");
    refused("pccl-scenario 1\npeer\nlimits.slice_bytes 12\n", 3, 1, "multiples of 8");
    refused("pccl-scenario 1\npeer\nmemory.symbolic yes\nworkload.sends_per_mille 1\n", 4, 1, "sends_per_mille of 0");
}

TEST_CASE("a run is judged by what its scenario expects") {
    const std::string plain = "pccl-scenario 1\nseed 3\npeer turns=2\npeer turns=2\nfaults_end 1s\npatience 60s\n";
    const auto judged = [&](const std::string& expectations) {
        ScenarioError error;
        const auto scenario = parse_scenario(plain + expectations, error);
        INFO("line " << error.line << ": " << error.expected);
        REQUIRE(scenario);
        CHECK(to_text(*parse_scenario(to_text(*scenario), error)) == to_text(*scenario));
        return run(*scenario).violation;
    };
    CHECK(judged("expect committed 1\nexpect removed 0 0\nexpect open 1\nexpect joiner_unreachable 0 0\n")
              .oracle.empty());
    CHECK(judged("expect committed 1000\n").oracle == "expect");
    CHECK(judged("expect removed 1 1\n").reason == "removed is 0, and the scenario expects 1 to 1");
    CHECK(judged("expect simulated-ms 0 0\n").oracle == "expect");
}
