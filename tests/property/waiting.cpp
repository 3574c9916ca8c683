// No call waits needlessly: on an even network without faults, every call returns as soon as the last bytes that it
// needs have arrived.
#include "harness/run.hpp"

#include <catch2/catch.hpp>

using namespace pccl;
using namespace pccl::harness;

TEST_CASE("time-outs a hundred times as long change no instant") {
    GeneratorOptions options;
    options.classes = class_even;
    std::uint64_t calls = 0;
    for (std::uint64_t seed = 1; seed <= 1200; ++seed) {
        Ledger ledger;
        RunOptions with_ledger;
        with_ledger.ledger = &ledger;
        const Scenario scenario = generate(seed, options);
        const Verdict verdict = run(scenario, with_ledger);
        INFO("seed " << seed << ": " << verdict.violation.oracle << " " << verdict.violation.reason);
        REQUIRE(verdict.held());
        if (scenario.even) calls += ledger.votes.size() + ledger.launches.size() + ledger.syncs.size();
    }
    CHECK(calls > 30'000);
}
