// The search for a ring, compared with an exact one.
#include "core/base/random.hpp"
#include "core/topology/ring_search.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

using namespace pccl::core;

namespace {

class Graph {
public:
    explicit Graph(std::size_t nodes) : nodes_(nodes), allowed_(nodes * nodes, true) {}
    std::size_t nodes() const { return nodes_; }
    bool allowed(std::size_t from, std::size_t to) const { return allowed_[from * nodes_ + to]; }
    void set(std::size_t from, std::size_t to, bool allowed) { allowed_[from * nodes_ + to] = allowed; }

    std::optional<std::vector<std::size_t>> search() const {
        return find_ring(nodes_, [&](std::size_t from, std::size_t to) { return allowed(from, to); });
    }

    // Exact, by dynamic programming over the sets of nodes that a path from node 0 visits.
    bool has_ring() const {
        if (nodes_ < 2) return true;
        std::vector<std::uint32_t> ends(std::size_t{1} << nodes_, 0);  // the nodes at which such a path can end
        std::vector<std::uint32_t> into(nodes_, 0);
        for (std::size_t from = 0; from < nodes_; ++from) {
            for (std::size_t to = 0; to < nodes_; ++to) {
                if (allowed(from, to)) into[to] |= 1u << from;
            }
        }
        ends[1] = 1;
        for (std::uint32_t set = 3; set < ends.size(); set += 2) {
            for (std::size_t node = 1; node < nodes_; ++node) {
                const std::uint32_t bit = 1u << node;
                if ((set & bit) != 0 && (ends[set & ~bit] & into[node]) != 0) ends[set] |= bit;
            }
        }
        return (ends.back() & into[0]) != 0;
    }

private:
    std::size_t nodes_;
    std::vector<bool> allowed_;
};

bool is_ring(const Graph& graph, std::vector<std::size_t> ring) {
    if (ring.size() != graph.nodes() || ring.front() != 0) return false;
    for (std::size_t at = 0; at < ring.size(); ++at) {
        if (ring.size() > 1 && !graph.allowed(ring[at], ring[(at + 1) % ring.size()])) return false;
    }
    std::sort(ring.begin(), ring.end());
    for (std::size_t at = 0; at < ring.size(); ++at) {
        if (ring[at] != at) return false;
    }
    return true;
}

// A graph in which `per_mille` of the pairs cannot connect.
Graph with_bad_pairs(std::size_t nodes, std::uint64_t per_mille, Random& random) {
    Graph graph(nodes);
    for (std::size_t a = 0; a < nodes; ++a) {
        for (std::size_t b = 0; b < a; ++b) {
            const bool allowed = random.below(1000) >= per_mille;
            graph.set(a, b, allowed);
            graph.set(b, a, allowed);
        }
    }
    return graph;
}

// Connects the last `newcomers` nodes with only a few of the others, one way each.
void connect_little(Graph& graph, std::size_t newcomers, Random& random) {
    const std::size_t members = graph.nodes() - newcomers;
    for (std::size_t node = members; node < graph.nodes(); ++node) {
        for (std::size_t other = 0; other < graph.nodes(); ++other) {
            graph.set(node, other, false);
            graph.set(other, node, false);
        }
        for (std::uint64_t ways = 1 + random.below(2); ways-- != 0;) {
            graph.set(random.below(members), node, true);
            graph.set(node, random.below(members), true);
        }
    }
}

}  // namespace

TEST_CASE("a ring is found where there is one") {
    Random random(1);
    int rings = 0, missed = 0;
    for (int i = 0; i < 6000; ++i) {
        const std::size_t nodes = 2 + random.below(13);
        Graph graph = with_bad_pairs(nodes, random.below(700), random);
        if (nodes > 3 && i % 2 == 0) connect_little(graph, 1 + random.below(2), random);
        const auto found = graph.search();
        if (found) REQUIRE(is_ring(graph, *found));
        if (!graph.has_ring()) {
            REQUIRE(!found);
            continue;
        }
        ++rings;
        if (!found) ++missed;
    }
    CAPTURE(rings);
    CHECK(rings > 2000);
    CHECK(missed == 0);
}

TEST_CASE("rings of a thousand members take in who is connected with two of them") {
    Random random(2);
    for (int i = 0; i < 20; ++i) {
        Graph graph = with_bad_pairs(1001, random.below(20), random);
        for (std::size_t at = 0; at + 1 < 1000; ++at) graph.set(at, at + 1, true);
        for (std::size_t node = 0; node < 1000; ++node) {
            graph.set(node, 1000, false);
            graph.set(1000, node, false);
        }
        const std::size_t from = random.below(1000), to = (from + 1 + random.below(999)) % 1000;
        graph.set(from, 1000, true);
        graph.set(1000, to, true);
        const auto found = graph.search();
        CAPTURE(i, from, to);
        REQUIRE(found);
        CHECK(is_ring(graph, *found));
    }
}
