// The choice of seeds with which a search begins.
#include "harness/distil.hpp"
#include "harness/run.hpp"
#include "harness/scenario.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace pccl;
using namespace pccl::harness;

namespace {

// 1,000 runs with the seeds 1 to 1,000. `marks_of` gives the marks of each run, `events_of` its cost.
template <class MarksOf, class EventsOf>
Distillery distillery_of(MarksOf marks_of, EventsOf events_of) {
    Distillery distillery;
    for (std::uint64_t seed = 1; seed <= 1'000; ++seed) distillery.add(seed, events_of(seed), marks_of(seed));
    return distillery;
}

constexpr auto as_dear_as_all = [](std::uint64_t) { return std::uint64_t{1'000}; };

}  // namespace

TEST_CASE("only what neither chance nor everybody reaches counts") {
    const auto marks_of = [](std::uint64_t seed) {
        std::vector<Mark> marks{1};               // all runs
        if (seed <= 11) marks.push_back(2);       // 11 runs: one too many to be rare
        if (seed % 100 == 7) marks.push_back(3);  // one run in a hundred
        if (seed > 20 && seed <= 25) marks.push_back(4);
        if (seed > 30 && seed <= 34) marks.push_back(5);  // 4 runs: one too few
        return marks;
    };
    const Distillery::Choice choice = distillery_of(marks_of, as_dear_as_all).choose(1'000);
    CHECK(choice.rare == 2);
    CHECK(choice.reached == 2);
    // Each of the two marks counts four times, and they take turns. After that no seed adds anything.
    CHECK(choice.seeds == std::vector<std::uint64_t>{7, 21, 22, 107, 23, 207, 24, 307});
}

TEST_CASE("who reaches more for its price comes first") {
    const auto marks_of = [](std::uint64_t seed) {
        std::vector<Mark> marks;
        for (Mark mark = 0; mark < 8; ++mark) {
            // The seeds 1 and 2 reach all eight marks, the others one each.
            if (seed <= 2 || (seed <= 66 && seed % 8 == mark)) marks.push_back(mark);
        }
        return marks;
    };
    const auto events_of = [](std::uint64_t seed) -> std::uint64_t { return seed == 1 ? 100'000 : 1'000; };
    const Distillery::Choice choice = distillery_of(marks_of, events_of).choose(3);
    REQUIRE(choice.seeds.size() == 3);
    CHECK(choice.reached == 8);
    CHECK(choice.seeds[0] == 2);
    // Eight marks for the second time at the high price are worth less than one mark at the low price.
    CHECK(choice.seeds[1] != 1);
    CHECK(distillery_of(marks_of, as_dear_as_all).choose(2).seeds == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("seeds are chosen from what runs reached, joined from several processes or not") {
    Coverage coverage(Coverage::Detail::all);
    RunOptions options;
    options.coverage = &coverage;
    Distillery all;
    for (std::uint64_t seed = 1; seed <= 600; ++seed) {
        const Verdict verdict = run(generate(seed), options);
        all.add(seed, verdict.events, coverage.marks());
    }
    const Distillery::Choice chosen = all.choose(30);
    REQUIRE(chosen.seeds.size() == 30);
    CHECK(chosen.reached > chosen.rare / 3);
    CHECK(all.choose(10).seeds == std::vector<std::uint64_t>(chosen.seeds.begin(), chosen.seeds.begin() + 10));

    Distillery joined;
    const Mark* at = all.marks().data();
    for (const Distillery::Run& run : all.runs()) {
        joined.add(run.seed, run.events, {at, run.marks});
        at += run.marks;
    }
    CHECK(joined.choose(30).seeds == chosen.seeds);
}
