#include "harness/rings.hpp"

#include "core/base/format.hpp"
#include "harness/injector.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

namespace pccl::harness {

using namespace core;

namespace {

constexpr std::uint64_t picoseconds = 1'000'000'000'000;
constexpr std::uint64_t better_per_cent = 99;   // a ring is replaced only by one that costs less than this share of it
constexpr std::uint64_t dearest = 125'000'000;  // ps per byte; the cost of all slower edges
constexpr std::uint64_t unmeasured_factor = 4;  // times the cost of the worst measured edge

std::uint64_t number_at(std::string_view text) {
    std::uint64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

std::string_view next_word(std::string_view& text) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return word;
}

}  // namespace

// Tries all orders; the first node keeps its place.
std::uint64_t cheapest_ring(const std::vector<std::uint64_t>& costs, std::size_t nodes) {
    std::vector<std::size_t> order(nodes);
    std::iota(order.begin(), order.end(), 0);
    std::uint64_t best = ~std::uint64_t{0};
    do {
        std::uint64_t cost = 0;
        for (std::size_t i = 0; i < nodes; ++i) cost += costs[order[i] * nodes + order[(i + 1) % nodes]];
        best = std::min(best, cost);
    } while (nodes > 1 && std::next_permutation(order.begin() + 1, order.end()));
    return best;
}

// Parses "bandwidth from peer A to peer B: R ...".
void Rings::heard_rate(std::string_view text) {
    for (int i = 0; i < 3; ++i) next_word(text);
    const std::string from(next_word(text));
    next_word(text);
    next_word(text);
    std::string to(next_word(text));
    if (!to.empty()) to.pop_back();
    if (const std::uint64_t rate = number_at(text); rate != 0) rates_[{from, to}] = rate;
}

// The master logs a test that failed, too. Tests with a member that leaves have no outcome. So have those that are late, but
// then the survey takes longer than survey_time_.
void Rings::follow_survey(std::string_view text) {
    static constexpr std::string_view begins = "optimizing the topology: ";
    if (text.starts_with(begins)) {
        survey_ = Survey{world_.now(), number_at(text.substr(begins.size())), 0, changes_};
    } else if (survey_ && (text.starts_with("bandwidth from peer ") || text.starts_with("the bandwidth from peer "))) {
        ++survey_->outcomes;
    } else if (survey_ && text.starts_with("ring of group ")) {
        const Survey over = *std::exchange(survey_, std::nullopt);
        if (over.outcomes >= over.edges || over.changes != changes_ || world_.now() - over.began >= survey_time_)
            return;
        world_.violate("rings", formatted("an optimize ended with the outcomes of {} of {} measurements", over.outcomes,
                                          over.edges));
    }
}

void Rings::logged(const std::string& text) {
    static constexpr std::string_view ring = "ring of group ";
    if (world_.now() < first_fault_) follow_survey(text);
    if (text.starts_with("peer ") &&
        (text.find(" removed: ") != std::string::npos || text.find(" admitted to group ") != std::string::npos))
        ++changes_;
    if (!listens_) return;
    if (text.starts_with("bandwidth from peer ")) return heard_rate(text);
    // From now on the ring may avoid an edge that cannot be connected, and use worse ones.
    if (text.find(" cannot reach peer ") != std::string::npos ||
        text.find(" does not get through") != std::string::npos)
        listens_ = false;
    if (text.starts_with(ring) && text.find(" ps per byte over its edges") != std::string::npos) {
        const std::uint64_t group = number_at(std::string_view(text).substr(ring.size()));
        changes_before_[static_cast<GroupId>(group)] = changes_;
        world_.schedule_script(world_.now(), look_at_ring, group);
    }
}

// Judges the ring after an optimize: either a new one was adopted, or the old one was good enough.
void Rings::look_at(GroupId id, const std::vector<Uuid>& liars) {
    if (!listens_ || world_.master_machine() == nullptr || changes_ != changes_before_[id]) return;
    const MasterStatus status = world_.master_machine()->status();
    for (const MasterStatus::Group& group : status.groups) {
        const std::size_t nodes = group.ring.size();
        if (group.id != id || nodes < 3 || nodes > tried_max) continue;
        std::vector<std::string> names;
        for (const Uuid& uuid : group.ring) names.push_back(short_name(uuid));
        std::vector<std::uint64_t> costs(nodes * nodes, 0);
        std::uint64_t worst = 1;
        for (std::size_t from = 0; from < nodes; ++from) {
            for (std::size_t to = 0; to < nodes; ++to) {
                const auto rate = rates_.find({names[from], names[to]});
                if (rate == rates_.end()) continue;
                costs[from * nodes + to] = std::clamp<std::uint64_t>(picoseconds / rate->second, 1, dearest);
                worst = std::max(worst, costs[from * nodes + to]);
            }
        }
        for (std::uint64_t& cost : costs) cost = cost == 0 ? worst * unmeasured_factor : cost;
        std::uint64_t cost = 0;
        for (std::size_t i = 0; i < nodes; ++i) cost += costs[i * nodes + (i + 1) % nodes];
        if (lies_) cost *= 2;
        const auto lies = [&](std::size_t node) {
            return std::find(liars.begin(), liars.end(), group.ring[node]) != liars.end();
        };
        for (std::size_t from = 0; from < nodes; ++from) {
            for (std::size_t to = 0; to < nodes; ++to)
                if (lies(from) || lies(to)) costs[from * nodes + to] = worst * unmeasured_factor;
        }
        const std::uint64_t best = cheapest_ring(costs, nodes);
        if (cost * better_per_cent <= (best + 1) * 100) continue;
        std::string text;
        for (const std::string& name : names) text += " " + name;
        return world_.violate("rings", formatted("an optimize left the ring{}, which takes {} ps per byte over its "
                                                 "edges; the best one takes {}",
                                                 text, cost, best));
    }
}

}  // namespace pccl::harness
