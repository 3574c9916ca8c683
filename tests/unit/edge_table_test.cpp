// The edge table alone: what the master records about the edges between peers, and for how long.
#include "core/base/ids.hpp"
#include "core/topology/edge_table.hpp"
#include "tests/unit/name.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <set>
#include <vector>

using namespace pccl::core;

namespace {

const Uuid a = name(1), b = name(2), c = name(3);
const std::vector<Uuid> ring{a, b};
constexpr Duration steady = 2 * second, rarely = 64 * second;

void open(EdgeTable& edges, const Uuid& from, const Uuid& to, Instant at) {
    edges.want(from, to, at);
    edges.report_up(from, to, at);
    edges.report_incoming(from, to, true, at);
}

}  // namespace

TEST_CASE("a break that is said again is as old as it was") {
    EdgeTable edges;
    open(edges, a, b, 0);
    edges.report_down(a, b, false, 10 * second, steady);
    CHECK(edges.ring_neighbour_lost(b, ring, 10 * second));
    edges.report_down(a, b, false, 12 * second, steady);
    CHECK_FALSE(edges.ring_neighbour_lost(b, ring, 11 * second));
    edges.report_incoming(a, b, false, 13 * second);
    CHECK_FALSE(edges.ring_neighbour_lost(a, ring, 11 * second));
    // A new connection that breaks is a new report.
    open(edges, a, b, 14 * second);
    edges.report_down(a, b, false, 15 * second, steady);
    CHECK(edges.ring_neighbour_lost(b, ring, 15 * second));
}

TEST_CASE("an edge that carried nothing in an earlier ring is tried again, one of this ring is not") {
    EdgeTable edges;
    open(edges, a, b, 0);
    edges.mark_stuck(a, b, second, 16 * second);
    CHECK_FALSE(edges.try_again(ring, 2 * second, rarely));
    CHECK(edges.stuck(a, b, 2 * second));
    edges.release_unwanted({{a, {c}}, {c, {b}}, {b, {a}}}, 0, steady);
    CHECK_FALSE(edges.try_again({a, c}, 3 * second, rarely));
    edges.want(a, b, 3 * second);
    CHECK(edges.try_again(ring, 4 * second, rarely));
    CHECK_FALSE(edges.stuck(a, b, 4 * second));
    CHECK(edges.find(a, b)->down_since == 4 * second);
    // It carries nothing again: it is marked for twice as long and not tried again.
    edges.mark_stuck(a, b, 5 * second, 16 * second);
    edges.release_unwanted({{a, {c}}, {c, {b}}, {b, {a}}}, 0, steady);
    CHECK_FALSE(edges.try_again(ring, 6 * second, rarely));
    CHECK(edges.stuck(a, b, 36 * second));
    CHECK_FALSE(edges.stuck(a, b, 37 * second));
}

TEST_CASE("a good edge that was down in an earlier ring is tried again, seldom") {
    EdgeTable edges;
    const auto breaks = [&](Instant now, Duration lived) {
        open(edges, a, b, now - lived);
        edges.report_down(a, b, false, now, steady);
        edges.mark(a, b, now + 100 * second);
        return edges.marked(a, b, now);
    };
    CHECK(breaks(10 * second, 9 * second));
    CHECK_FALSE(edges.try_again(ring, 11 * second, rarely));  // it is wanted, so it belongs to this ring
    edges.release_unwanted({}, 0, steady);
    CHECK(edges.try_again(ring, 12 * second, rarely));
    CHECK_FALSE(edges.marked(a, b, 12 * second));
    CHECK(breaks(22 * second, 9 * second));
    edges.release_unwanted({}, 0, steady);
    CHECK_FALSE(edges.try_again(ring, 23 * second, rarely));
    CHECK(edges.try_again(ring, 12 * second + rarely, rarely));
    // An edge that opens and breaks at once is not tried.
    CHECK(breaks(200 * second, steady / 2));
    edges.release_unwanted({}, 0, steady);
    CHECK_FALSE(edges.try_again(ring, 201 * second, rarely));
}

TEST_CASE("an edge that was good when it was not wanted any more is a good one") {
    EdgeTable edges;
    open(edges, a, b, 0);
    edges.release_unwanted({}, 10 * second, steady);
    edges.want(a, b, 11 * second);
    edges.mark(a, b, 100 * second);
    edges.release_unwanted({}, 12 * second, steady);
    CHECK(edges.try_again(ring, 13 * second, rarely));
    CHECK_FALSE(edges.marked(a, b, 13 * second));
}

TEST_CASE("an edge that carried nothing long ago is marked as if for the first time") {
    EdgeTable edges;
    edges.mark_stuck(a, b, second, 16 * second);
    edges.mark_stuck(a, b, 18 * second, 16 * second);
    CHECK(edges.stuck(a, b, 49 * second));
    edges.mark_stuck(a, b, 200 * second, 16 * second);
    CHECK(edges.stuck(a, b, 215 * second));
    CHECK_FALSE(edges.stuck(a, b, 216 * second));
}

TEST_CASE("the clock of an edge begins anew when one of its ends is heard again, a few times") {
    EdgeTable edges;
    open(edges, a, b, 0);
    edges.report_down(a, b, false, 10 * second, steady);
    edges.heard_again(b, 15 * second);
    CHECK(edges.find(a, b)->down_since == 15 * second);
    for (int i = 16; i < 30; ++i) edges.heard_again(b, i * second);
    CHECK(edges.find(a, b)->down_since == 17 * second);
}
