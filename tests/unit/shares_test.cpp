// Shares of unequal parts: that each edge then carries as little as can be, against a slow search that shares nothing
// with the code under test, and that nothing changes where nothing is gained.
#include "core/topology/shares.hpp"

#include "core/voting/graph.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

using namespace pccl::core;

namespace {

using Rates = std::vector<std::uint64_t>;

// Time of the slowest edge, for a vector of one byte and rates in bytes per second.
double time_of(const Rates& rates, const std::vector<double>& shares) {
    double most = 0;
    for (std::size_t p = 0; p < rates.size(); ++p)
        most = std::max(most, (2 - shares[p] - shares[(p + 1) % rates.size()]) / static_cast<double>(rates[p]));
    return most;
}

std::vector<double> fractions(const std::vector<std::uint32_t>& shares) {
    std::vector<double> result;
    for (const std::uint32_t share : shares) result.push_back(share / static_cast<double>(shares_whole));
    return result;
}

double equal_time(const Rates& rates) {
    return time_of(rates, std::vector<double>(rates.size(), 1.0 / static_cast<double>(rates.size())));
}

// Moves share between two members as long as that helps; begins at equal shares. Small steps in the end.
double search(const Rates& rates) {
    const std::size_t world = rates.size();
    // The maximum of all edges is flat almost everywhere, so a smooth norm leads the way.
    const auto smooth = [&](const std::vector<double>& shares, double power) {
        double sum = 0;
        for (std::size_t p = 0; p < world; ++p)
            sum += std::pow((2 - shares[p] - shares[(p + 1) % world]) / static_cast<double>(rates[p]) *
                                static_cast<double>(rates[0]),
                            power);
        return sum;
    };
    std::vector<double> shares(world, 1.0 / static_cast<double>(world));
    for (const double power : {4.0, 16.0, 64.0}) {
        for (double step = 0.25; step > 1e-4; step /= 2) {
            for (bool moved = true; moved;) {
                moved = false;
                for (std::size_t from = 0; from < world; ++from) {
                    for (std::size_t to = 0; to < world; ++to) {
                        if (from == to || shares[from] < step) continue;
                        std::vector<double> next = shares;
                        next[from] -= step;
                        next[to] += step;
                        if (smooth(next, power) >= smooth(shares, power) * (1 - 1e-9)) continue;
                        shares = std::move(next);
                        moved = true;
                    }
                }
            }
        }
    }
    return time_of(rates, shares);
}

}  // namespace

TEST_CASE("one slow edge carries the vector once") {
    Rates rates(12, 1'000'000'000);
    rates[5] = 125'000'000;
    const auto shares = shares_for(rates);
    REQUIRE(shares.size() == 12);
    CHECK(std::accumulate(shares.begin(), shares.end(), 0u) == shares_whole);
    CHECK(shares[5] + shares[6] == shares_whole);
    CHECK(time_of(rates, fractions(shares)) < 0.55 * equal_time(rates));
}

TEST_CASE("equal rates, nearly equal rates, unknown rates and pairs keep equal parts") {
    CHECK(shares_for(Rates(8, 1'000'000)).empty());
    CHECK(shares_for(Rates{1000, 990, 1010, 1005}).empty());
    CHECK(shares_for(Rates{1000, 0, 1000, 10}).empty());
    CHECK(shares_for(Rates{1000, 10}).empty());
    CHECK(shares_for(Rates{}).empty());
}

TEST_CASE("shares are as good as a slow search finds, or equal parts are little worse") {
    std::mt19937_64 random(20);
    const auto number = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
    for (int round = 0; round < 300; ++round) {
        Rates rates(number(3, 9));
        for (auto& rate : rates) rate = std::uint64_t{1} << number(20, round % 2 == 0 ? 26 : 22);
        for (auto& rate : rates) rate += number(0, rate / 2);
        INFO("round " << round);
        const auto shares = shares_for(rates);
        const double found = search(rates);
        if (shares.empty()) {
            CHECK(found > 0.88 * equal_time(rates));
            continue;
        }
        REQUIRE(shares.size() == rates.size());
        CHECK(std::accumulate(shares.begin(), shares.end(), 0u) == shares_whole);
        CHECK(time_of(rates, fractions(shares)) <= 1.002 * found);
        CHECK(time_of(rates, fractions(shares)) <= 0.9 * equal_time(rates));
    }
}

TEST_CASE("extreme rates and large rings have shares too") {
    Rates rates(1024, ~std::uint64_t{0});
    rates[1023] = 1;
    const auto shares = shares_for(rates);
    REQUIRE(shares.size() == 1024);
    CHECK(shares[1023] + shares[0] == shares_whole);
}

TEST_CASE("the parts of an all-reduce are cut as the shares say, and cover the vector") {
    const std::vector<Piece> shares{{0, 3}, {0, 0}, {0, 1}, {0, 0}};
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{4096},
                                      std::uint64_t{1} << 62}) {
        const Graph graph = graph_of(CollectiveKind::all_reduce, 4, count, 0, shares);
        REQUIRE(graph.parts.size() == 4);
        std::uint64_t end = 0;
        for (const Part& part : graph.parts) {
            CHECK(part.send_offset == end);
            CHECK(part.receive_offset == end);
            end += part.elements;
        }
        CHECK(end == count);
        CHECK(graph.parts[1].elements == 0);
        CHECK(graph.parts[3].elements == 0);
        if (count % 4 == 0) CHECK(graph.parts[0].elements == count / 4 * 3);
    }
}
