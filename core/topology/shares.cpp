#include "core/topology/shares.hpp"

#include "core/base/assert.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

// All shares are numbers of 1 / shares_whole. A rate is at most `fastest`, and a time is what an edge of that rate
// needs for `fastest` shares.
constexpr std::uint64_t whole = shares_whole;
constexpr std::uint64_t fastest = 1u << 16;
constexpr std::uint64_t gain_least_percent = 10;

using Numbers = std::vector<std::uint64_t>;

// What each pair of neighbours must finish together, so that the edge behind the first one needs `time` at most.
void needs(const Numbers& rates, std::uint64_t time, Numbers& need) {
    for (std::size_t p = 0; p < rates.size(); ++p) {
        const std::uint64_t carried = time * rates[p] / fastest;
        need[p] = carried >= 2 * whole ? 0 : 2 * whole - carried;
    }
}

// The least shares for these needs, if position 0 has `first` or more: each position gets what the edge before it still
// needs. Later shares serve two edges, so no other choice is smaller.
std::uint64_t fill(const Numbers& need, std::uint64_t first, Numbers& shares) {
    const std::size_t world = need.size();
    shares[0] = first;
    std::uint64_t sum = first;
    for (std::size_t p = 1; p < world; ++p) {
        shares[p] = need[p - 1] > shares[p - 1] ? need[p - 1] - shares[p - 1] : 0;
        sum += shares[p];
    }
    // The edge behind the last position is closed by position 0.
    const std::uint64_t both = shares[world - 1] + first;
    if (both < need[world - 1]) {
        shares[world - 1] += need[world - 1] - both;
        sum += need[world - 1] - both;
    }
    return sum;
}

// True: shares whose sum is at most the whole fulfil the needs. Then `shares` has them. The sum is a convex function of
// the first share.
bool fulfil(const Numbers& need, Numbers& shares) {
    std::uint64_t low = 0, high = 2 * whole;
    while (low < high) {
        const std::uint64_t middle = (low + high) / 2;
        const std::uint64_t here = fill(need, middle, shares);
        if (here <= whole) return true;
        if (here <= fill(need, middle + 1, shares))
            high = middle;
        else
            low = middle + 1;
    }
    return fill(need, low, shares) <= whole;
}

}  // namespace

std::vector<std::uint32_t> shares_for(std::span<const std::uint64_t> given) {
    const std::size_t world = given.size();
    // With two members each edge carries S, whatever the shares are.
    if (world < 3 || world > shares_whole / 16) return {};
    const std::uint64_t best = *std::max_element(given.begin(), given.end());
    Numbers rates;
    for (const std::uint64_t rate : given) {
        if (rate == 0) return {};
        const auto scaled = static_cast<unsigned __int128>(rate) * fastest / best;
        rates.push_back(std::max<std::uint64_t>(static_cast<std::uint64_t>(scaled), 1));
    }
    const std::uint64_t slowest = *std::min_element(rates.begin(), rates.end());
    const std::uint64_t equal = (2 * whole * (world - 1) / world + 1) * fastest / slowest;
    Numbers need(world), shares(world);
    // The least time that can be kept: with `high` it can, and below `low` not.
    std::uint64_t low = whole, high = equal;
    while (low < high) {
        const std::uint64_t middle = low + (high - low) / 2;
        needs(rates, middle, need);
        if (fulfil(need, shares))
            high = middle;
        else
            low = middle + 1;
    }
    if (high * 100 > equal * (100 - gain_least_percent)) return {};
    needs(rates, high, need);
    if (!fulfil(need, shares)) return {};
    // What is left goes to the smallest shares, because many parts use all edges from the beginning.
    std::uint64_t left = whole;
    for (const std::uint64_t share : shares) left -= share;
    Numbers sorted = shares;
    std::sort(sorted.begin(), sorted.end());
    std::uint64_t level = sorted[0], count = 1, rest = left;
    for (; count < world; ++count) {
        const std::uint64_t cost = (sorted[count] - level) * count;
        if (cost > rest) break;
        rest -= cost;
        level = sorted[count];
    }
    level += rest / count;
    rest %= count;
    std::vector<std::uint32_t> result;
    std::uint64_t sum = 0;
    for (const std::uint64_t share : shares) {
        std::uint64_t own = std::max(share, level);
        if (share < level + 1 && rest > 0) {
            own = level + 1;
            --rest;
        }
        sum += own;
        result.push_back(static_cast<std::uint32_t>(own));
    }
    ASSERT(sum == whole);
    return result;
}

}  // namespace pccl::core
