#include "harness/distil.hpp"

#include <algorithm>
#include <cmath>
#include <queue>

namespace pccl::harness {

namespace {

constexpr std::uint32_t covers = 4;

// The value of a rare mark that `reached` chosen runs have reached already.
std::uint32_t worth(std::uint32_t reached) { return reached < covers ? 1u << (covers - 1 - reached) : 0; }

}  // namespace

void Distillery::add(std::uint64_t seed, std::uint64_t events, std::span<const Mark> marks) {
    runs_.push_back(Run{seed, events, marks.size()});
    marks_.insert(marks_.end(), marks.begin(), marks.end());
}

Distillery::Choice Distillery::choose(std::size_t most) const {
    // Each rare mark gets a number: its index in `reached`. `places` holds these numbers, run after run.
    std::vector<Mark> rare;
    {
        std::vector<Mark> all = marks_;
        std::sort(all.begin(), all.end());
        for (std::size_t i = 0, end = 0; i < all.size(); i = end) {
            while (end < all.size() && all[end] == all[i]) ++end;
            if (end - i >= runs_least && end - i <= runs_.size() / 100) rare.push_back(all[i]);
        }
    }
    std::vector<std::uint32_t> reached(rare.size());
    struct Part {
        std::size_t first = 0, end = 0;  // a range in `places`
        double price = 1;
    };
    std::vector<Part> parts;
    std::vector<std::uint32_t> places;
    std::size_t at = 0;
    for (const Run& run : runs_) {
        Part part;
        part.first = places.size();
        for (const std::size_t end = at + run.marks; at < end; ++at) {
            const auto found = std::lower_bound(rare.begin(), rare.end(), marks_[at]);
            if (found != rare.end() && *found == marks_[at])
                places.push_back(static_cast<std::uint32_t>(found - rare.begin()));
        }
        part.end = places.size();
        // A run has a cost even if hardly anything happens in it.
        part.price = std::sqrt(static_cast<double>(run.events) + 300);
        parts.push_back(part);
    }
    const auto value = [&](const Part& part) {
        std::uint64_t sum = 0;
        for (std::size_t i = part.first; i < part.end; ++i) sum += worth(reached[places[i]]);
        return static_cast<double>(sum) / part.price;
    };
    struct Offer {
        double value = 0;
        std::size_t run = 0;
        bool operator<(const Offer& other) const {
            return value != other.value ? value < other.value : run > other.run;
        }
    };
    // Values only fall. So an offer that is still the best after it was computed again is the best of all.
    std::priority_queue<Offer> offers;
    for (std::size_t i = 0; i < parts.size(); ++i) offers.push(Offer{value(parts[i]), i});
    Choice choice;
    choice.rare = rare.size();
    while (choice.seeds.size() < most && !offers.empty()) {
        Offer best = offers.top();
        offers.pop();
        if (best.value <= 0) break;
        const double now = value(parts[best.run]);
        if (now < best.value) {
            best.value = now;
            offers.push(best);
            continue;
        }
        choice.seeds.push_back(runs_[best.run].seed);
        for (std::size_t i = parts[best.run].first; i < parts[best.run].end; ++i) {
            if (reached[places[i]]++ == 0) ++choice.reached;
        }
    }
    return choice;
}

}  // namespace pccl::harness
