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
    CHECK_FALSE(edges.try_stuck_again(ring, 2 * second));
    CHECK(edges.stuck(a, b, 2 * second));
    edges.release_unwanted({{a, {c}}, {c, {b}}, {b, {a}}}, 0, steady);
    CHECK_FALSE(edges.try_stuck_again({a, c}, 3 * second));
    edges.want(a, b, 3 * second);
    CHECK(edges.try_stuck_again(ring, 4 * second));
    CHECK_FALSE(edges.stuck(a, b, 4 * second));
    CHECK(edges.find(a, b)->down_since == 4 * second);
    // It carries nothing again: it is marked for twice as long and not tried again.
    edges.mark_stuck(a, b, 5 * second, 16 * second);
    edges.release_unwanted({{a, {c}}, {c, {b}}, {b, {a}}}, 0, steady);
    CHECK_FALSE(edges.try_stuck_again(ring, 6 * second));
    CHECK(edges.stuck(a, b, 36 * second));
    CHECK_FALSE(edges.stuck(a, b, 37 * second));
}

TEST_CASE("edges that were down in an earlier ring are dialled again together, seldom") {
    const std::vector<Uuid> members{a, b, c};
    const Duration lasts = 5 * second;
    EdgeTable edges;
    const auto dialled = [&](Instant now) { return edges.dialled_again(members, now); };
    edges.want(a, b, 0);
    edges.want(b, c, 0);
    edges.want(c, a, 0);  // no mark
    edges.mark(a, b, 200 * second);
    edges.mark(b, c, 200 * second);
    edges.dial_again(members, second, lasts, rarely);
    CHECK(dialled(second).empty());  // they are wanted, so they are dialled already
    edges.release_unwanted({}, second, steady);
    edges.dial_again({a, c}, 2 * second, lasts, rarely);
    CHECK(dialled(2 * second).empty());
    edges.dial_again(members, 2 * second, lasts, rarely);
    CHECK(dialled(2 * second).size() == 2);
    // They keep their marks until they open.
    CHECK(edges.marked(a, b, 2 * second));
    open(edges, a, b, 3 * second);
    CHECK_FALSE(edges.marked(a, b, 3 * second));
    CHECK(edges.marked(b, c, 3 * second));
    CHECK(dialled(7 * second).empty());
    edges.dial_again(members, rarely, lasts, rarely);
    CHECK(dialled(rarely).empty());
    edges.dial_again(members, rarely + 2 * second, lasts, rarely);
    CHECK(dialled(rarely + 2 * second).size() == 1);
    // A time in which the master did not run is left out.
    edges.shift_clocks(100 * second, rarely + 103 * second);
    CHECK(dialled(rarely + 106 * second).size() == 1);
    CHECK(dialled(rarely + 107 * second).empty());
}

TEST_CASE("an edge that broke soon after it opened is not dialled again, one that was not wanted any more is") {
    EdgeTable edges;
    const auto is_dialled_again = [&](Instant now) {
        edges.mark(a, b, now + 100 * second);
        edges.release_unwanted({}, now, steady);
        edges.dial_again(ring, now, second, 0);
        return !edges.dialled_again(ring, now).empty();
    };
    open(edges, a, b, 0);
    edges.report_down(a, b, false, steady, steady);
    CHECK(is_dialled_again(10 * second));
    open(edges, a, b, 20 * second);
    edges.report_down(a, b, false, 20 * second + steady / 2, steady);
    CHECK_FALSE(is_dialled_again(30 * second));
    open(edges, a, b, 40 * second);
    edges.release_unwanted({}, 40 * second + steady / 2, steady);
    CHECK_FALSE(is_dialled_again(50 * second));
    open(edges, a, b, 60 * second);
    edges.release_unwanted({}, 60 * second + steady, steady);
    CHECK(is_dialled_again(70 * second));
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
