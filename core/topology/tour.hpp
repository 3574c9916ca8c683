// The shortest closed tour over all nodes of a complete directed graph (asymmetric travelling salesman), within a
// budget.
//
// Up to exact_max nodes the tour is optimal (dynamic programming over subsets, Held-Karp). For more nodes, the search
// solves the assignment relaxation and patches its cycles into one tour. Then it runs an iterated local search whose
// moves keep the direction of every part: segments change places and none is reversed, so a move costs three edges.
// Work is counted in steps, never in time, and done in pieces. The result depends on costs, start, seed and budget
// alone. The best tour is never worse than the start.
#pragma once

#include "core/base/random.hpp"

#include <cstdint>
#include <vector>

namespace pccl::core {

class TourSearch {
public:
    using Node = std::uint32_t;
    static constexpr std::uint32_t exact_max = 14;
    static constexpr std::uint32_t nodes_max = 1024;
    static constexpr std::uint32_t cost_max = 1'000'000'000;

    // `costs` row by row: costs[from * n + to] <= cost_max. `start` is a tour. `budget` does not limit the exact part.
    TourSearch(std::vector<std::uint32_t> costs, std::vector<Node> start, std::uint64_t seed, std::uint64_t budget);

    // Runs for about `steps` more steps. True when the search is over: the tour is optimal, or the budget is used up.
    bool run(std::uint64_t steps);
    bool over() const { return stage_ == Stage::over; }
    bool proved() const { return proved_; }  // best() is optimal
    const std::vector<Node>& best() const { return best_; }
    std::uint64_t best_cost() const { return best_cost_; }
    // No tour costs less; 0 while that is not known.
    std::uint64_t lower_bound() const { return lower_bound_; }
    std::uint64_t steps() const { return steps_; }
    const std::vector<std::uint32_t>& costs() const { return costs_; }
    std::uint64_t cost_of(const std::vector<Node>& tour) const;

private:
    enum class Stage : std::uint8_t { exact, assign, patch, improve, over };

    std::uint64_t cost(Node from, Node to) const { return costs_[std::size_t{from} * n_ + to]; }
    void take(const std::vector<Node>& tour);
    void exact_subset();
    void exact_result();
    void assign_row();
    void assigned();
    void patch();
    void begin_improving(std::vector<Node> tour);
    void improve_one();
    bool improve_node(Node node);
    void exchange(std::size_t first, std::size_t second, std::size_t third);
    void perturb();
    void wake(Node node);
    std::size_t wrap(std::size_t position) const { return position >= n_ ? position - n_ : position; }

    std::size_t n_;
    std::vector<std::uint32_t> costs_;
    std::vector<Node> best_;
    std::uint64_t best_cost_ = 0;
    std::uint64_t lower_bound_ = 0;
    std::uint64_t steps_ = 0;
    std::uint64_t budget_;
    bool proved_ = false;
    Random random_;
    Stage stage_;

    // exact: cost of the cheapest path from the last node through a subset of the others, by subset and end
    std::vector<std::uint64_t> path_;
    std::vector<std::uint8_t> before_;
    std::uint32_t subset_ = 1;
    // assignment: dual values, the row that each column is assigned to, and the row that comes next
    std::vector<std::int64_t> row_value_, column_value_;
    std::vector<std::size_t> assigned_to_;
    std::size_t row_ = 1;
    std::vector<Node> successor_;
    std::vector<std::vector<Node>> cycles_;
    // local search: the tour being changed, the position of each node in it, and the nodes to examine
    std::vector<Node> tour_, kept_, scratch_;
    std::vector<std::size_t> place_;
    std::uint64_t tour_cost_ = 0, kept_cost_ = 0;
    std::vector<std::vector<Node>> near_;  // the cheapest successors of each node
    std::vector<Node> queue_;
    std::size_t queue_head_ = 0;
    std::vector<bool> queued_;
};

}  // namespace pccl::core
