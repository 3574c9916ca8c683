// The time after which a slice is late.
#include "core/all_reduce/flow.hpp"

#include <catch2/catch.hpp>

using namespace pccl::core;

TEST_CASE("a slice is late when it takes longer than the measured ones, and by more the more they differ") {
    AnswerTime even;
    for (int i = 0; i < 100; ++i) even.measured(40 * millisecond, 1000);
    CHECK(even.bytes == 1000);
    CHECK(even.patience() > 55 * millisecond);
    CHECK(even.patience() < 65 * millisecond);

    AnswerTime uneven;
    for (int i = 0; i < 100; ++i) uneven.measured((i % 2 == 0 ? 20 : 100) * millisecond, 1000);
    CHECK(uneven.patience() > 100 * millisecond);
    CHECK(uneven.patience() < 300 * millisecond);
}

TEST_CASE("each copy doubles the patience, up to a bound, until a slice that left once is acknowledged") {
    AnswerTime time;
    time.measured(100 * millisecond, 1000);
    const Duration once = time.patience();
    CHECK(once == 300 * millisecond);
    time.hedges = 2;
    CHECK(time.patience() == 4 * once);
    time.hedges = 1000;
    CHECK(time.patience() == 256 * once);
    time.measured(100 * millisecond, 500);
    CHECK(time.patience() < once);
    CHECK(time.bytes == 1000);
}
