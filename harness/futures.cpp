#include "harness/futures.hpp"

#include "core/base/format.hpp"
#include "net-sim/draw.hpp"

#include <algorithm>
#include <cstdlib>

namespace pccl::harness {

using namespace core;

namespace {

// Whether a fault begins by the clock, after `at`.
bool comes_later(const Fault& fault, Instant at) { return fault.trigger == 0 && fault.at > at; }

Scenario with_other_times(const Scenario& scenario, Instant at, sim::Draw& draw) {
    Scenario other = scenario;
    for (Fault& fault : other.faults) {
        if (!comes_later(fault, at)) continue;
        const Duration ahead = (fault.at - at) / 1000 * draw.between(500, 1500);
        fault.at = at + std::clamp<Duration>(ahead, 1, std::max<Duration>(scenario.chaos_end - at, 1));
    }
    return other;
}

class Points {
public:
    Points(const Scenario& scenario, const Verdict& failed, const std::function<bool()>& go_on, std::uint32_t each)
        : scenario_(scenario), failed_(failed), go_on_(go_on), each_(each) {}

    bool add(Instant at) {
        Futures point;
        point.at = at;
        while (point.drawn < each_ && go_on_()) {
            const std::uint64_t salt =
                sim::mix(sim::mix(scenario_.seed, static_cast<std::uint64_t>(at)), ++point.drawn);
            sim::Draw draw(sim::mix(salt, 1));
            RunOptions options;
            options.redraw_at = at;
            options.redraw_seed = salt;
            if (run(with_other_times(scenario_, at, draw), options).violation.oracle == failed_.violation.oracle)
                ++point.failed;
        }
        if (point.drawn < each_) return false;
        points_.insert(std::upper_bound(points_.begin(), points_.end(), at,
                                        [](Instant time, const Futures& other) { return time < other.at; }),
                       point);
        return true;
    }
    // The middle between the two neighbours whose shares differ most; of equal ones the first.
    Instant next() const {
        Instant best = never;
        std::uint32_t most = 0;
        for (std::size_t i = 1; i < points_.size(); ++i) {
            const auto step = static_cast<std::uint32_t>(
                std::abs(static_cast<int>(points_[i].failed) - static_cast<int>(points_[i - 1].failed)));
            if (step <= most || points_[i].at - points_[i - 1].at < 2) continue;
            most = step;
            best = points_[i - 1].at + (points_[i].at - points_[i - 1].at) / 2;
        }
        return best;
    }
    std::vector<Futures> take() { return std::move(points_); }

private:
    const Scenario& scenario_;
    const Verdict& failed_;
    const std::function<bool()>& go_on_;
    std::uint32_t each_;
    std::vector<Futures> points_;
};

}  // namespace

std::vector<Futures> draw_futures(const Scenario& scenario, const Verdict& failed, const std::function<bool()>& go_on,
                                  std::uint32_t points, std::uint32_t each) {
    Points found(scenario, failed, go_on, each);
    // A call that never ends is decided long before patience is over, so that time is not sampled.
    const Instant end = std::min(failed.simulated, scenario.chaos_end + scenario.stop_after);
    const std::uint32_t first = std::max(points / 3, 2u);
    std::uint32_t drawn = 0;
    for (; drawn < first; ++drawn) {
        if (!found.add(end / (first - 1) * drawn)) return found.take();
    }
    for (; drawn < points; ++drawn) {
        const Instant at = found.next();
        if (at == never || !found.add(at)) break;
    }
    return found.take();
}

std::size_t decided_before(const std::vector<Futures>& futures) {
    std::size_t decided = 0;
    for (std::size_t i = 1; i < futures.size(); ++i) {
        if (futures[i].failed >= futures[i - 1].failed + (futures[i].drawn + 1) / 2) decided = i;
    }
    return decided;
}

std::string to_text(const std::vector<Futures>& futures) {
    std::string text = "futures drawn anew from an instant, and how many of them fail in the same way:\n";
    for (const Futures& point : futures) {
        const std::string bar(point.drawn == 0 ? 0 : 20 * point.failed / point.drawn, '#');
        text += formatted("{:16.6f} ms  {:2} of {:2}  {}\n", static_cast<double>(point.at) / 1e6, point.failed,
                          point.drawn, bar);
    }
    const std::size_t decided = decided_before(futures);
    if (decided == 0) return text;
    return text + formatted("  it was mostly decided between {:.6f} and {:.6f} ms\n",
                            static_cast<double>(futures[decided - 1].at) / 1e6,
                            static_cast<double>(futures[decided].at) / 1e6);
}

}  // namespace pccl::harness
