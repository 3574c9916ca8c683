// The future of a run, redrawn from some instant.
#include "harness/futures.hpp"

#include <catch2/catch.hpp>

using namespace pccl;
using namespace pccl::harness;

namespace {

Verdict with_hashes(const Scenario& scenario, Instant redraw_at) {
    RunOptions options;
    options.keep_hashes = true;
    options.redraw_at = redraw_at;
    options.redraw_seed = 99;
    return run(scenario, options);
}

}  // namespace

TEST_CASE("a future that is drawn anew begins where it is said to") {
    Scenario scenario = generate(7);
    scenario.world.network.jitter_per_mille = 300;
    const Verdict as_it_was = with_hashes(scenario, -1);
    const Verdict other = with_hashes(scenario, as_it_was.simulated / 2);
    const Verdict early = with_hashes(scenario, 0);
    REQUIRE(as_it_was.held());
    CHECK(other.held());
    CHECK(early.held());
    CHECK(other.trace_hash != as_it_was.trace_hash);
    CHECK(early.trace_hash != other.trace_hash);
    const auto same = [&](const Verdict& verdict) {
        std::size_t events = 0;
        while (events < verdict.hashes.size() && events < as_it_was.hashes.size() &&
               verdict.hashes[events] == as_it_was.hashes[events])
            ++events;
        return events;
    };
    CHECK(same(early) < as_it_was.hashes.size() / 10);
    CHECK(same(other) > same(early));
    CHECK(with_hashes(scenario, as_it_was.simulated / 2).trace_hash == other.trace_hash);
}

TEST_CASE("futures of a run that must fail all fail, and are the same each time") {
    Scenario scenario = generate(7);
    scenario.patience = 1;  // no program ends in time
    const Verdict failed = run(scenario);
    REQUIRE(failed.violation.oracle == "progress");
    const auto always = [] { return true; };
    const std::vector<Futures> futures = draw_futures(scenario, failed, always, 6, 3);
    REQUIRE(futures.size() >= 2);
    CHECK(futures.front().at == 0);
    for (const Futures& point : futures) {
        CHECK(point.drawn == 3);
        CHECK(point.failed == 3);
    }
    CHECK(to_text(futures) == to_text(draw_futures(scenario, failed, always, 6, 3)));
    CHECK(draw_futures(
              scenario, failed, [] { return false; }, 6, 3)
              .empty());
}
