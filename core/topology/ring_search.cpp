#include "core/topology/ring_search.hpp"

#include "core/base/probe.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

constexpr std::size_t none = ~std::size_t{0};
constexpr std::size_t starts_max = 16, steps_max = 20'000;
constexpr std::size_t few = 4;  // a node is watched if it has at most this many ways in, or out

using Allowed = std::function<bool(std::size_t, std::size_t)>;

// Depth-first search over paths from one start. A node with few ways in or out is watched. If its last way in is the
// end of the path, it must be the next node. If no way is left, the path is a dead end. Without this check, the search
// would notice the mistake only at the end of the path, and would try all orders of the nodes in between in vain.
class RingSearch {
public:
    RingSearch(std::size_t nodes, const Allowed& allowed) : nodes_(nodes), allowed_(allowed) {
        for (std::size_t node = 0; node < nodes; ++node) {
            watch(node, into_, [&](std::size_t other) { return allowed(other, node); });
            watch(node, out_of_, [&](std::size_t other) { return allowed(node, other); });
        }
    }

    // Takes at most `steps` steps. Returns an empty list if none of the paths that it tried is a ring.
    std::vector<std::size_t> run(std::size_t first, std::size_t steps) {
        first_ = first;
        path_.clear();
        used_.assign(nodes_, false);
        extend(first);
        for (; steps > 0 && !path_.empty(); --steps) {
            if (path_.size() == nodes_ && allowed_(path_.back().node, first_)) return ring();
            const std::size_t next = next_of(path_.back());
            if (next != none) {
                extend(next);
            } else {
                used_[path_.back().node] = false;
                path_.pop_back();
            }
        }
        return {};
    }
    bool exhausted() const { return path_.empty(); }

private:
    struct Step {
        std::size_t node = 0;
        std::size_t tried = 0;    // successors tried, in the order of their numbers from this node on
        std::size_t only = none;  // the only node that can be next; none: any
        bool dead = false;
    };
    struct Watched {
        std::size_t node = 0;
        std::vector<std::size_t> ways;
    };

    template <class Way>
    void watch(std::size_t node, std::vector<Watched>& list, const Way& way) const {
        Watched watched{node, {}};
        for (std::size_t other = 0; other < nodes_ && watched.ways.size() <= few; ++other) {
            if (other != node && way(other)) watched.ways.push_back(other);
        }
        if (watched.ways.size() <= few) list.push_back(std::move(watched));
    }

    void extend(std::size_t node) {
        used_[node] = true;
        path_.push_back({node});
        look_ahead(path_.back());
    }

    void look_ahead(Step& step) const {
        if (path_.size() == nodes_) return;
        for (const Watched& watched : into_) {
            if (used_[watched.node] && watched.node != first_) continue;
            const auto left = [&](std::size_t from) { return !used_[from]; };
            if (std::any_of(watched.ways.begin(), watched.ways.end(), left)) continue;
            const bool from_here =
                watched.node != first_ && std::ranges::find(watched.ways, step.node) != watched.ways.end();
            step.dead |= !from_here || step.only != none;
            step.only = watched.node;
        }
        for (const Watched& watched : out_of_) {
            const auto left = [&](std::size_t to) { return !used_[to] || to == first_; };
            if (!used_[watched.node] && std::none_of(watched.ways.begin(), watched.ways.end(), left)) step.dead = true;
        }
    }

    std::size_t next_of(Step& step) const {
        while (!step.dead && step.tried < nodes_) {
            const std::size_t next = (step.node + 1 + step.tried++) % nodes_;
            if (used_[next] || (step.only != none && next != step.only) || !allowed_(step.node, next)) continue;
            return next;
        }
        return none;
    }

    std::vector<std::size_t> ring() const {
        std::vector<std::size_t> ring;
        for (const Step& step : path_) ring.push_back(step.node);
        std::rotate(ring.begin(), std::find(ring.begin(), ring.end(), std::size_t{0}), ring.end());
        return ring;
    }

    std::size_t nodes_;
    const Allowed& allowed_;
    std::vector<Watched> into_, out_of_;
    std::size_t first_ = 0;
    std::vector<Step> path_;
    std::vector<bool> used_;
};

}  // namespace

std::optional<std::vector<std::size_t>> find_ring(std::size_t nodes, const Allowed& allowed) {
    std::vector<std::size_t> as_is(nodes);
    for (std::size_t at = 0; at < nodes; ++at) as_is[at] = at;
    bool works = true;
    for (std::size_t at = 0; at < nodes && nodes > 1 && works; ++at) works = allowed(at, (at + 1) % nodes);
    if (works) return as_is;
    // A depth-first search reconsiders its first choices last. So it is run from several starts, each with a share of
    // the steps.
    RingSearch search(nodes, allowed);
    const std::size_t starts = std::min(nodes, starts_max);
    for (std::size_t start = 0; start < starts; ++start) {
        const std::size_t first = (nodes - start * nodes / starts) % nodes;
        if (std::vector<std::size_t> ring = search.run(first, nodes + steps_max / starts); !ring.empty()) {
            PROBE(ring_searched);
            return ring;
        }
        if (search.exhausted()) break;  // no ring exists
    }
    PROBE(ring_not_found);
    return std::nullopt;
}

}  // namespace pccl::core
