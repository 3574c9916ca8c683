#include "core/topology/tour.hpp"

#include "core/base/assert.hpp"

#include <algorithm>
#include <limits>

namespace pccl::core {

namespace {
constexpr std::uint64_t unreached = std::numeric_limits<std::uint64_t>::max() / 2;
constexpr std::size_t near_max = 12;
constexpr std::size_t segment_max = 50;  // of a perturbation: a short one can be repaired in few steps
}  // namespace

TourSearch::TourSearch(std::vector<std::uint32_t> costs, std::vector<Node> start, std::uint64_t seed,
                       std::uint64_t budget)
    : n_(start.size()), costs_(std::move(costs)), best_(std::move(start)), budget_(budget), random_(seed),
      stage_(Stage::over) {
    ASSERT(n_ <= nodes_max && costs_.size() == n_ * n_);
    best_cost_ = cost_of(best_);
    if (n_ < 3) {
        proved_ = true;
        lower_bound_ = best_cost_;
    } else if (n_ <= exact_max) {
        stage_ = Stage::exact;
        const std::size_t others = n_ - 1;
        path_.assign((std::size_t{1} << others) * others, unreached);
        before_.assign(path_.size(), 0);
        for (std::size_t end = 0; end < others; ++end)
            path_[(std::size_t{1} << end) * others + end] = cost(static_cast<Node>(others), static_cast<Node>(end));
    } else {
        stage_ = Stage::assign;
        row_value_.assign(n_ + 1, 0);
        column_value_.assign(n_ + 1, 0);
        assigned_to_.assign(n_ + 1, 0);
    }
}

std::uint64_t TourSearch::cost_of(const std::vector<Node>& tour) const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < tour.size() && tour.size() > 1; ++i) sum += cost(tour[i], tour[(i + 1) % tour.size()]);
    return sum;
}

void TourSearch::take(const std::vector<Node>& tour) {
    const std::uint64_t sum = cost_of(tour);
    if (sum < best_cost_) {
        best_cost_ = sum;
        best_ = tour;
    }
    if (lower_bound_ != 0 && best_cost_ == lower_bound_) {
        proved_ = true;
        stage_ = Stage::over;
    }
}

bool TourSearch::run(std::uint64_t steps) {
    const std::uint64_t until = steps_ + steps;
    while (stage_ != Stage::over && steps_ < until) {
        switch (stage_) {
        case Stage::exact: exact_subset(); break;
        case Stage::assign: assign_row(); break;
        case Stage::patch: patch(); break;
        case Stage::improve: improve_one(); break;
        case Stage::over: break;
        }
        if (stage_ != Stage::exact && steps_ >= budget_) stage_ = Stage::over;
    }
    return over();
}

// ---- exact ---------------------------------------------------------------------------------------------------------

void TourSearch::exact_subset() {
    const std::size_t others = n_ - 1;
    if (subset_ == std::uint32_t{1} << others) return exact_result();
    for (std::size_t end = 0; end < others; ++end) {
        const std::uint64_t so_far = path_[subset_ * others + end];
        if (so_far >= unreached) continue;
        for (std::size_t next = 0; next < others; ++next) {
            if ((subset_ >> next & 1) != 0) continue;
            const std::size_t at = (subset_ | std::size_t{1} << next) * others + next;
            const std::uint64_t sum = so_far + cost(static_cast<Node>(end), static_cast<Node>(next));
            if (sum >= path_[at]) continue;
            path_[at] = sum;
            before_[at] = static_cast<std::uint8_t>(end);
        }
    }
    steps_ += others * others;
    ++subset_;
}

void TourSearch::exact_result() {
    const std::size_t others = n_ - 1;
    std::size_t set = (std::size_t{1} << others) - 1;
    std::size_t last = 0;
    std::uint64_t least = unreached;
    for (std::size_t end = 0; end < others; ++end) {
        const std::uint64_t sum = path_[set * others + end] + cost(static_cast<Node>(end), static_cast<Node>(others));
        if (sum >= least) continue;
        least = sum;
        last = end;
    }
    std::vector<Node> tour{static_cast<Node>(others)};
    while (set != 0) {
        tour.push_back(static_cast<Node>(last));
        const std::size_t earlier = before_[set * others + last];
        set &= ~(std::size_t{1} << last);
        last = earlier;
    }
    std::reverse(tour.begin() + 1, tour.end());
    lower_bound_ = least;
    path_ = {};
    before_ = {};
    stage_ = Stage::over;
    proved_ = true;
    take(tour);
}

// ---- assignment: each node gets one successor, the sum is least; cycles are allowed ------------------------------------

void TourSearch::assign_row() {
    if (row_ > n_) return assigned();
    // Finds the shortest augmenting path from this row. Rows and columns are numbered from 1; column 0 stands for the
    // row itself.
    constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max() / 4;
    std::vector<std::int64_t> least(n_ + 1, far);
    std::vector<std::size_t> way(n_ + 1, 0);
    std::vector<bool> used(n_ + 1, false);
    assigned_to_[0] = row_;
    std::size_t column = 0;
    do {
        used[column] = true;
        const std::size_t row = assigned_to_[column];
        std::int64_t delta = far;
        std::size_t next = 0;
        for (std::size_t j = 1; j <= n_; ++j) {
            if (used[j]) continue;
            const std::int64_t edge = row == j ? far / 2 : costs_[(row - 1) * n_ + j - 1];
            const std::int64_t reduced = edge - row_value_[row] - column_value_[j];
            if (reduced < least[j]) {
                least[j] = reduced;
                way[j] = column;
            }
            if (least[j] < delta) {
                delta = least[j];
                next = j;
            }
        }
        for (std::size_t j = 0; j <= n_; ++j) {
            if (used[j]) {
                row_value_[assigned_to_[j]] += delta;
                column_value_[j] -= delta;
            } else {
                least[j] -= delta;
            }
        }
        steps_ += 2 * n_;
        column = next;
    } while (assigned_to_[column] != 0);
    do {
        const std::size_t earlier = way[column];
        assigned_to_[column] = assigned_to_[earlier];
        column = earlier;
    } while (column != 0);
    ++row_;
}

void TourSearch::assigned() {
    successor_.resize(n_);
    lower_bound_ = 0;
    for (std::size_t j = 1; j <= n_; ++j) {
        const auto from = static_cast<Node>(assigned_to_[j] - 1);
        successor_[from] = static_cast<Node>(j - 1);
        lower_bound_ += cost(from, successor_[from]);
    }
    std::vector<bool> seen(n_, false);
    for (Node first = 0; first < n_; ++first) {
        if (seen[first]) continue;
        cycles_.emplace_back();
        for (Node node = first; !seen[node]; node = successor_[node]) {
            seen[node] = true;
            cycles_.back().push_back(node);
        }
    }
    row_value_ = {};
    column_value_ = {};
    assigned_to_ = {};
    stage_ = Stage::patch;
}

// Joins the two longest cycles by the exchange of two edges that costs least.
void TourSearch::patch() {
    std::stable_sort(cycles_.begin(), cycles_.end(), [](const auto& x, const auto& y) { return x.size() > y.size(); });
    if (cycles_.size() == 1) {
        std::vector<Node> tour = std::move(cycles_.front());
        cycles_.clear();
        take(tour);
        if (stage_ == Stage::over) return;
        return begin_improving(best_);
    }
    const std::vector<Node>& large = cycles_[0];
    const std::vector<Node>& small = cycles_[1];
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::size_t at_large = 0, at_small = 0;
    const auto edge = [&](Node from, Node to) { return static_cast<std::int64_t>(cost(from, to)); };
    for (std::size_t i = 0; i < large.size(); ++i) {
        const Node a = large[i], after_a = large[(i + 1) % large.size()];
        for (std::size_t k = 0; k < small.size(); ++k) {
            const Node b = small[k], after_b = small[(k + 1) % small.size()];
            const std::int64_t delta = edge(a, after_b) + edge(b, after_a) - edge(a, after_a) - edge(b, after_b);
            if (delta >= least) continue;
            least = delta;
            at_large = i;
            at_small = k;
        }
    }
    steps_ += large.size() * small.size();
    std::vector<Node> joined(large.begin(), large.begin() + static_cast<std::ptrdiff_t>(at_large) + 1);
    for (std::size_t k = 1; k <= small.size(); ++k) joined.push_back(small[(at_small + k) % small.size()]);
    joined.insert(joined.end(), large.begin() + static_cast<std::ptrdiff_t>(at_large) + 1, large.end());
    cycles_[0] = std::move(joined);
    cycles_.erase(cycles_.begin() + 1);
}

// ---- local search ----------------------------------------------------------------------------------------------------

void TourSearch::begin_improving(std::vector<Node> tour) {
    near_.resize(n_);
    for (Node from = 0; from < n_; ++from) {
        std::vector<Node>& near = near_[from];
        for (Node to = 0; to < n_; ++to) {
            if (to != from) near.push_back(to);
        }
        const std::size_t count = std::min(near_max, near.size());
        std::partial_sort(
            near.begin(), near.begin() + static_cast<std::ptrdiff_t>(count), near.end(),
            [&](Node x, Node y) { return cost(from, x) != cost(from, y) ? cost(from, x) < cost(from, y) : x < y; });
        near.resize(count);
        near.shrink_to_fit();
    }
    steps_ += n_ * n_;
    tour_ = std::move(tour);
    tour_cost_ = cost_of(tour_);
    place_.resize(n_);
    for (std::size_t i = 0; i < n_; ++i) place_[tour_[i]] = i;
    kept_ = tour_;
    kept_cost_ = tour_cost_;
    queued_.assign(n_, false);
    for (std::size_t i = 0; i < n_; ++i) wake(tour_[i]);
    stage_ = Stage::improve;
}

void TourSearch::wake(Node node) {
    if (queued_[node]) return;
    queued_[node] = true;
    queue_.push_back(node);
}

// Examines one queued node. If the queue is empty, keeps the tour or returns to the last one that was kept, then
// perturbs it.
void TourSearch::improve_one() {
    if (queue_head_ < queue_.size()) {
        const Node node = queue_[queue_head_++];
        queued_[node] = false;
        if (improve_node(node)) wake(node);
        return;
    }
    queue_.clear();
    queue_head_ = 0;
    if (tour_cost_ <= kept_cost_) {
        if (tour_cost_ < kept_cost_) take(tour_);
        kept_ = tour_;
        kept_cost_ = tour_cost_;
    } else {
        tour_ = kept_;
        tour_cost_ = kept_cost_;
        for (std::size_t i = 0; i < n_; ++i) place_[tour_[i]] = i;
    }
    steps_ += n_;
    if (stage_ == Stage::improve) perturb();
}

// Replaces the edges node -> b, c -> d and e -> f by node -> d, e -> b and c -> f: the parts b..c and d..e change
// places. d runs over the cheap successors of `node`, e over the rest of the tour.
bool TourSearch::improve_node(Node node) {
    const std::size_t at = place_[node];
    const Node b = tour_[wrap(at + 1)];
    const std::uint64_t removed_first = cost(node, b);
    for (const Node d : near_[node]) {
        ++steps_;
        const std::uint64_t added_first = cost(node, d);
        if (added_first >= removed_first) return false;
        const std::size_t place_d = place_[d];
        const Node c = tour_[place_d == 0 ? n_ - 1 : place_d - 1];
        // The removed edges without the third one, e -> f. The exchange must gain with it included.
        const std::uint64_t removed = removed_first + cost(c, d);
        std::uint64_t best_gain = 0;
        std::size_t best_place = 0;
        std::size_t place = place_d;
        std::uint64_t looked = 0;
        for (Node e = d; e != node; ++looked) {
            const std::size_t behind = wrap(place + 1);
            const Node f = tour_[behind];
            const std::uint64_t before = removed + cost(e, f);
            const std::uint64_t after = added_first + cost(e, b) + cost(c, f);
            if (before > after && before - after > best_gain) {
                best_gain = before - after;
                best_place = place;
            }
            place = behind;
            e = f;
        }
        steps_ += looked;
        if (best_gain == 0) continue;
        const Node e = tour_[best_place], f = tour_[wrap(best_place + 1)];
        exchange(at, place_d, best_place);
        tour_cost_ -= best_gain;
        for (const Node changed : {b, c, d, e, f}) wake(changed);
        return true;
    }
    return false;
}

// Swaps the parts (first, second) and [second, third] behind `first`. Positions wrap around.
void TourSearch::exchange(std::size_t first, std::size_t second, std::size_t third) {
    const std::size_t begin = wrap(first + 1);
    scratch_.clear();
    for (std::size_t i = second;; i = wrap(i + 1)) {
        scratch_.push_back(tour_[i]);
        if (i == third) break;
    }
    for (std::size_t i = begin; i != second; i = wrap(i + 1)) scratch_.push_back(tour_[i]);
    std::size_t at = begin;
    for (const Node node : scratch_) {
        tour_[at] = node;
        place_[node] = at;
        at = wrap(at + 1);
    }
    steps_ += scratch_.size();
}

// Reverses the order of three adjacent segments, but not their directions. Four edges change, so no single move undoes
// it.
void TourSearch::perturb() {
    const std::size_t longest = std::min<std::size_t>(segment_max, (n_ - 1) / 3);
    std::size_t lengths[3];
    for (std::size_t& length : lengths) length = 1 + random_.below(longest);
    const std::size_t start = random_.below(n_);
    std::size_t from[4];
    from[0] = wrap(start + 1);
    for (int i = 0; i < 3; ++i) from[i + 1] = wrap(from[i] + lengths[i]);
    const Node ends[4] = {tour_[start], tour_[from[1]], tour_[from[2]], tour_[from[3]]};
    scratch_.clear();
    for (int i = 2; i >= 0; --i) {
        for (std::size_t k = 0; k < lengths[i]; ++k) scratch_.push_back(tour_[wrap(from[i] + k)]);
    }
    std::size_t at = from[0];
    for (const Node node : scratch_) {
        tour_[at] = node;
        place_[node] = at;
        at = wrap(at + 1);
    }
    tour_cost_ = cost_of(tour_);
    steps_ += n_ + scratch_.size();
    for (const Node node : ends) {
        wake(node);
        wake(tour_[place_[node] == 0 ? n_ - 1 : place_[node] - 1]);
    }
}

}  // namespace pccl::core
