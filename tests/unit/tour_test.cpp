// The search for a tour, and the meter of bandwidth.
#include "core/topology/bandwidth.hpp"
#include "core/topology/tour.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

using namespace pccl::core;

namespace {

using Costs = std::vector<std::uint32_t>;
using Tour = std::vector<std::uint32_t>;

Tour in_order(std::uint32_t nodes) {
    Tour tour(nodes);
    std::iota(tour.begin(), tour.end(), 0u);
    return tour;
}

Costs random_costs(std::uint32_t nodes, std::uint64_t seed, std::uint64_t most) {
    Random random(seed);
    Costs costs(std::size_t{nodes} * nodes);
    for (std::uint32_t& cost : costs) cost = static_cast<std::uint32_t>(1 + random.below(most));
    return costs;
}

std::uint64_t length(const Costs& costs, const Tour& tour) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < tour.size(); ++i) sum += costs[tour[i] * tour.size() + tour[(i + 1) % tour.size()]];
    return sum;
}

bool is_tour(Tour tour, std::uint32_t nodes) {
    std::sort(tour.begin(), tour.end());
    return tour == in_order(nodes);
}

// Tries every tour that begins at node 0, and gives one up once it is as long as the best one.
void all_tours(const Costs& costs, std::uint32_t nodes, std::vector<bool>& used, std::uint32_t at, std::uint32_t count,
               std::uint64_t sum, std::uint64_t& best) {
    if (sum >= best) return;
    if (count == nodes) {
        best = std::min(best, sum + costs[at * nodes]);
        return;
    }
    for (std::uint32_t next = 1; next < nodes; ++next) {
        if (used[next]) continue;
        used[next] = true;
        all_tours(costs, nodes, used, next, count + 1, sum + costs[at * nodes + next], best);
        used[next] = false;
    }
}

std::uint64_t brute_force(const Costs& costs, std::uint32_t nodes) {
    std::uint64_t best = std::numeric_limits<std::uint64_t>::max();
    std::vector<bool> used(nodes, false);
    all_tours(costs, nodes, used, 0, 1, 0, best);
    return best;
}

TourSearch finished(const Costs& costs, std::uint32_t nodes, std::uint64_t seed, std::uint64_t budget,
                    std::uint64_t piece) {
    TourSearch search(costs, in_order(nodes), seed, budget);
    while (!search.run(piece)) {
    }
    return search;
}

}  // namespace

TEST_CASE("tours of up to 12 nodes are optimal") {
    for (std::uint32_t nodes = 1; nodes <= 12; ++nodes) {
        for (std::uint64_t seed = 1; seed <= (nodes < 10 ? 60u : 12u); ++seed) {
            // Few different costs give many ties, and many different costs give none.
            const Costs costs = random_costs(nodes, nodes * 1000 + seed, seed % 3 == 0 ? 4 : 1'000'000);
            const TourSearch search = finished(costs, nodes, seed, 0, 500);
            INFO(nodes << " nodes, seed " << seed);
            REQUIRE(is_tour(search.best(), nodes));
            CHECK(search.proved());
            CHECK(search.best_cost() == (nodes == 1 ? 0 : length(costs, search.best())));
            if (nodes > 1) CHECK(search.best_cost() == brute_force(costs, nodes));
        }
    }
}

TEST_CASE("larger tours are never worse than the start, keep their books, and end within the budget") {
    for (const std::uint32_t nodes : {15u, 16u, 31u, 60u}) {
        for (std::uint64_t seed = 1; seed <= 6; ++seed) {
            const Costs costs = random_costs(nodes, seed, 1'000'000);
            for (const std::uint64_t budget : {0ull, 1'000ull, 100'000ull, 3'000'000ull}) {
                const TourSearch search = finished(costs, nodes, seed, budget, 10'000);
                INFO(nodes << " nodes, seed " << seed << ", budget " << budget);
                REQUIRE(is_tour(search.best(), nodes));
                CHECK(search.best_cost() == length(costs, search.best()));
                CHECK(search.best_cost() <= length(costs, in_order(nodes)));
                CHECK(search.best_cost() >= search.lower_bound());
                CHECK(search.steps() <= budget + 40ull * nodes * nodes);
            }
        }
    }
}

TEST_CASE("a tour that is known to be best is found among many nodes") {
    // Costs of 1 along a hidden tour, and much more off it.
    for (const std::uint32_t nodes : {20u, 50u, 200u}) {
        Random random(nodes);
        Tour hidden = in_order(nodes);
        for (std::size_t i = hidden.size(); i > 1; --i) std::swap(hidden[i - 1], hidden[random.below(i)]);
        Costs costs = random_costs(nodes, nodes, 1000);
        for (std::uint32_t& cost : costs) cost += 100;
        for (std::size_t i = 0; i < nodes; ++i) costs[hidden[i] * nodes + hidden[(i + 1) % nodes]] = 1;
        const TourSearch search = finished(costs, nodes, 1, 50'000'000, 1'000'000);
        CHECK(search.best_cost() == nodes);
        CHECK(search.proved());
    }
}

TEST_CASE("the result does not depend on how the work is cut") {
    const Costs costs = random_costs(40, 7, 100'000);
    const TourSearch whole = finished(costs, 40, 3, 2'000'000, 100'000'000);
    const TourSearch pieces = finished(costs, 40, 3, 2'000'000, 1'000);
    CHECK(whole.best() == pieces.best());
    CHECK(whole.steps() == pieces.steps());
}

TEST_CASE("a meter tells the rate of a steady stream soon, and of one that grows when it is steady") {
    for (const std::uint64_t rate : {1'000'000ull, 12'500'000ull, 125'000'000ull, 2'000'000'000ull}) {
        const std::uint64_t frame = rate < 10'000'000 ? 4096 : 65'536;
        RateMeter meter(20 * millisecond, second, 1ull << 40);
        Instant now = 5;
        Instant first = 0;
        double speed = static_cast<double>(rate) / 16;
        while (!meter.concluded(now)) {
            // Doubles every 20 ms until it reaches the rate.
            const Instant begun = now;
            now += static_cast<Duration>(static_cast<double>(frame) * 1e9 / speed);
            meter.landed(begun, now, frame);
            if (first == 0) first = now;
            speed = std::min(static_cast<double>(rate),
                             static_cast<double>(rate) / 16 *
                                 static_cast<double>(1 << std::min<Instant>(10, now / (20 * millisecond))));
        }
        const RateMeter::Rate seen = meter.rate();
        const double measured = static_cast<double>(seen.bytes) * 1e9 / static_cast<double>(seen.duration);
        INFO(rate << " bytes per second, measured " << measured << " in " << (now - first) / millisecond << " ms");
        CHECK(measured > 0.9 * static_cast<double>(rate));
        CHECK(measured < 1.1 * static_cast<double>(rate));
        CHECK(now - first <= second + 10 * millisecond);
    }
}

TEST_CASE("frames that grow while they are counted do not change the rate") {
    // Sixteen connections share the path. One after the other doubles its frames, so more and more of the bytes that
    // have arrived belong to frames that are not complete.
    constexpr std::uint64_t rate = 125'000'000;
    constexpr std::size_t connections = 16;
    for (const std::uint64_t doubling : {4u, 8u, 16u, 64u}) {
        RateMeter meter(20 * millisecond, second, 1ull << 40);
        struct Connection {
            std::uint64_t frame = 4'096;
            std::uint64_t come = 0;
            Instant begun = 0;
        };
        std::array<Connection, connections> all{};
        std::uint64_t frames = 0;
        Instant now = 0;
        constexpr std::uint64_t packet = 1'024;
        for (std::size_t next = 0; !meter.concluded(now); next = (next + 1) % connections) {
            now += static_cast<Duration>(packet * static_cast<std::uint64_t>(second) / rate);
            Connection& one = all[next];
            if (one.come == 0) one.begun = now;
            one.come += packet;
            if (one.come < one.frame) continue;
            meter.landed(one.begun, now, one.frame);
            one.come = 0;
            if (++frames % doubling == 0) one.frame = std::min<std::uint64_t>(2 * one.frame, 256 << 10);
        }
        const RateMeter::Rate seen = meter.rate();
        const double measured = static_cast<double>(seen.bytes) * 1e9 / static_cast<double>(seen.duration);
        INFO("one in " << doubling << ": " << measured);
        CHECK(measured > 0.98 * rate);
        CHECK(measured < 1.02 * rate);
    }
}

TEST_CASE("a meter knows nothing of one frame, and concludes when everything has come") {
    RateMeter meter(millisecond, second, 1000);
    CHECK_FALSE(meter.concluded(0));
    meter.landed(0, 10, 600);
    CHECK(meter.rate().bytes == 0);
    CHECK_FALSE(meter.concluded(20));
    meter.landed(10, 10 + millisecond, 400);
    CHECK(meter.concluded(10 + millisecond));
    CHECK(meter.rate().bytes == 400);
    CHECK(meter.rate().duration == millisecond);
}

TEST_CASE("what is not measured costs more than what is, and nothing known makes all edges alike") {
    std::vector<Uuid> nodes(3);
    for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].bytes[0] = static_cast<std::uint8_t>(i + 1);
    BandwidthTable table;
    const Costs blank = table.costs(nodes);
    CHECK(std::all_of(blank.begin(), blank.end(), [&](std::uint32_t cost) { return cost == blank.front(); }));
    table.record(nodes[0], nodes[1], 1'000'000, second, 100);
    table.record(nodes[1], nodes[0], 1, 3600 * second, 100);
    const Costs costs = table.costs(nodes);
    CHECK(costs[1] == 1'000'000);  // picoseconds per byte
    CHECK(costs[2] > costs[3]);
    CHECK(costs[2] <= TourSearch::cost_max);
    CHECK(table.known(nodes[0], nodes[1], 200, 100));
    CHECK_FALSE(table.known(nodes[0], nodes[1], 201, 100));
    table.forget(nodes[1]);
    CHECK(table.size() == 0);
}
