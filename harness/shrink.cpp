#include "harness/run.hpp"

#include <functional>

namespace pccl::harness {

Scenario shrink(const Scenario& scenario, const std::string& oracle, int runs_max) {
    Scenario best = scenario;
    int runs = 0;
    const auto still_fails = [&](const Scenario& candidate) {
        if (runs >= runs_max) return false;
        ++runs;
        RunOptions options;
        options.items_max = 500'000;
        return run(candidate, options).violation.oracle == oracle;
    };
    const auto attempt = [&](const std::function<void(Scenario&)>& change) {
        Scenario candidate = best;
        change(candidate);
        if (!still_fails(candidate)) return false;
        best = candidate;
        return true;
    };
    for (bool better = true; better && runs < runs_max;) {
        better = false;
        // Faults first: halves, then single ones.
        for (std::size_t part = best.faults.size(); part != 0; part /= 2) {
            for (std::size_t at = 0; at < best.faults.size();) {
                const std::size_t count = std::min(part, best.faults.size() - at);
                const bool gone = attempt([&](Scenario& s) {
                    s.faults.erase(s.faults.begin() + static_cast<std::ptrdiff_t>(at),
                                   s.faults.begin() + static_cast<std::ptrdiff_t>(at + count));
                });
                if (gone)
                    better = true;
                else
                    at += count;
            }
        }
        while (best.peers.size() > 1 && attempt([](Scenario& s) { s.peers.pop_back(); })) better = true;
        for (std::size_t i = 0; i < best.peers.size(); ++i) {
            while (best.peers[i].turns > 1 && attempt([&](Scenario& s) { --s.peers[i].turns; })) better = true;
            if (best.peers[i].stripes > 1 && attempt([&](Scenario& s) { s.peers[i].stripes = 1; })) better = true;
            if (best.peers[i].group != 0 && attempt([&](Scenario& s) { s.peers[i].group = 0; })) better = true;
        }
        while (best.workload.tags > 1 && attempt([](Scenario& s) { --s.workload.tags; })) better = true;
        if (best.workload.sync && attempt([](Scenario& s) { s.workload.sync = false; })) better = true;
        if (best.workload.pump && attempt([](Scenario& s) { s.workload.pump = false; })) better = true;
        const auto zero = [&](std::uint32_t Workload::*field) {
            if (best.workload.*field != 0 && attempt([&](Scenario& s) { s.workload.*field = 0; })) better = true;
        };
        zero(&Workload::mismatch_per_mille);
        zero(&Workload::twice_per_mille);
        zero(&Workload::leave_in_flight_per_mille);
        zero(&Workload::drift_per_mille);
        const auto quiet = [&](std::uint32_t sim::NetworkParameters::*field) {
            if (best.world.network.*field != 0 && attempt([&](Scenario& s) { s.world.network.*field = 0; }))
                better = true;
        };
        quiet(&sim::NetworkParameters::jitter_per_mille);
        quiet(&sim::NetworkParameters::tail_per_million);
        quiet(&sim::NetworkParameters::split_per_million);
        quiet(&sim::NetworkParameters::tiny_read_per_million);
        quiet(&sim::NetworkParameters::refuse_per_million);
        quiet(&sim::NetworkParameters::black_hole_per_million);
        quiet(&sim::NetworkParameters::accept_close_per_million);
        if (best.world.drift_ppm != 0 && attempt([](Scenario& s) { s.world.drift_ppm = 0; })) better = true;
        if (best.world.timer_late_max != 0 && attempt([](Scenario& s) { s.world.timer_late_max = 0; })) better = true;
        if (best.world.compute_max != 0 && attempt([](Scenario& s) { s.world.compute_max = 0; })) better = true;
    }
    return best;
}

}  // namespace pccl::harness
