#include "harness/fault_refs.hpp"
#include "harness/run.hpp"
#include "harness/scenario_text.hpp"
#include "harness/settle.hpp"

#include <algorithm>
#include <functional>

namespace pccl::harness {

namespace {

// The scenario without one peer. References to later peers are renumbered.
Scenario without_peer(const Scenario& scenario, std::uint32_t node) {
    Scenario s = scenario;
    s.peers.erase(s.peers.begin() + (node - 1));
    const auto move = [node](std::uint32_t& x) {
        if (x > node) --x;
    };
    const auto names_it = [node](const Fault& f) {
        return names_a_node(f.kind) && (f.a == node || (f.b == node && names_two(f.kind)));
    };
    remove_faults(s.faults, names_it, Followers::stay);
    for (Fault& f : s.faults) {
        if (f.kind == FaultKind::partition && node < 31) {
            const std::uint32_t below = (1u << node) - 1;
            f.a = (f.a & below) | ((f.a >> 1) & ~below);
        } else if (names_a_node(f.kind)) {
            move(f.a);
            if (names_two(f.kind)) move(f.b);
        } else if (chooses_a_connection(f.kind) && (f.b & aim_named) != 0) {
            move(f.a);
        }
    }
    std::erase(s.core, node);
    for (std::uint32_t& x : s.core) move(x);
    if (s.core.size() < 2) {
        s.core.clear();
        s.claim = Claim::all_end;
    }
    return s;
}

class Shrinker {
public:
    Shrinker(const Scenario& scenario, const sim::Violation& violation, const std::function<bool()>& go_on)
        : best_(scenario), violation_(violation), go_on_(go_on) {}

    Scenario shrink() {
        // Each part tries large steps first. The scenario is minimal when a whole round, down to single steps, changed
        // nothing.
        for (bool better = true; better && go_on_();) {
            better = remove_faults();
            better |= remove_peers();
            better |= reduce_work();
            better |= calm_the_world();
        }
        simplify_numbers();
        return best_;
    }

private:
    bool attempt(const Scenario& candidate) {
        if (!go_on_()) return false;
        RunOptions options;
        options.items_max = 1'000'000;
        // The claim must stay possible: lasting faults that leave the core whole must still do so.
        if (!sound(candidate) || (faults_may_last(best_) && !faults_may_last(candidate))) return false;
        if (!same_kind(run(candidate, options).violation)) return false;
        best_ = candidate;
        return true;
    }
    static bool faults_may_last(const Scenario& s) {
        return std::all_of(s.faults.begin(), s.faults.end(),
                           [&](const Fault& f) { return !f.forever || may_last(s, f); });
    }
    // The same oracle, and a reason that begins in the same way. Calls that hang are another failure than work that
    // never succeeds.
    bool same_kind(const sim::Violation& found) const {
        return found.oracle == violation_.oracle && found.reason.compare(0, 20, violation_.reason, 0, 20) == 0;
    }
    bool change(const std::function<void(Scenario&)>& edit) {
        Scenario candidate = best_;
        edit(candidate);
        return attempt(candidate);
    }

    bool remove_faults() {
        bool better = false;
        for (std::size_t part = best_.faults.size(); part != 0; part /= 2) {
            for (std::size_t at = 0; at < best_.faults.size() && go_on_();) {
                const std::size_t count = std::min(part, best_.faults.size() - at);
                const bool followed = std::any_of(best_.faults.begin(), best_.faults.end(),
                                                  [](const Fault& f) { return f.follows != 0; });
                const auto without = [&](Followers followers) {
                    return change([&](Scenario& s) {
                        const Fault* first = s.faults.data() + at;
                        harness::remove_faults(
                            s.faults, [&](const Fault& f) { return &f >= first && &f < first + count; }, followers);
                    });
                };
                const bool gone = without(Followers::go) || (followed && without(Followers::stay));
                better |= gone;
                if (!gone) at += count;
            }
        }
        return better;
    }

    bool remove_peers() {
        bool better = false;
        for (auto node = static_cast<std::uint32_t>(best_.peers.size()); node != 0 && best_.peers.size() > 1; --node)
            better |= attempt(without_peer(best_, node));
        if (best_.claim != Claim::all_end) {
            better |= change([](Scenario& s) {
                s.claim = Claim::all_end;
                s.core.clear();
            });
        }
        return better;
    }

    // Lowers a number as far as the run still fails: to the least value at once, by halves, or by ones.
    template <class Number>
    bool lower(Number& (*field)(Scenario&, std::size_t), std::size_t index, Number least) {
        bool better = false;
        while (go_on_()) {
            const Number now = field(best_, index);
            if (now <= least) break;
            const Number half = static_cast<Number>(least + (now - least) / 2);
            const auto to = [&](Number value) { return change([&](Scenario& s) { field(s, index) = value; }); };
            if (!to(least) && (half == now - 1 || !to(half)) && !to(static_cast<Number>(now - 1))) break;
            better = true;
        }
        return better;
    }

    bool reduce_work() {
        bool better = false;
        const auto turns = [](Scenario& s, std::size_t i) -> std::uint32_t& { return s.peers[i].turns; };
        const auto all_turns = [](std::uint32_t turns_max) {
            return [turns_max](Scenario& s) {
                for (PeerPlan& p : s.peers) p.turns = std::min(p.turns, turns_max);
            };
        };
        for (const std::uint32_t most : {1u, 2u, 4u}) {
            const bool longer = std::any_of(best_.peers.begin(), best_.peers.end(),
                                            [most](const PeerPlan& p) { return p.turns > most; });
            if (longer && change(all_turns(most))) better = true;
        }
        for (std::size_t i = 0; i < best_.peers.size(); ++i) {
            better |= lower<std::uint32_t>(turns, i, 1);
            if (best_.peers[i].stripes > 1) better |= change([i](Scenario& s) { s.peers[i].stripes = 1; });
            if (best_.peers[i].group != 0) better |= change([i](Scenario& s) { s.peers[i].group = 0; });
            if (best_.peers[i].start != 0) better |= change([i](Scenario& s) { s.peers[i].start = 0; });
            if (best_.peers[i].advertises) better |= change([i](Scenario& s) { s.peers[i].advertises = false; });
            if (best_.peers[i].translator != sim::Translator::none)
                better |= change([i](Scenario& s) { s.peers[i].translator = sim::Translator::none; });
            if (best_.peers[i].host != 0) better |= change([i](Scenario& s) { s.peers[i].host = 0; });
            if (best_.peers[i].two_interfaces)
                better |= change([i](Scenario& s) { s.peers[i].two_interfaces = false; });
            for (std::size_t at = 0; at < best_.peers[i].masters.size(); ++at) {
                if (best_.peers[i].masters[at] == MasterAddress::right) continue;
                better |= change([i, at](Scenario& s) {
                    s.peers[i].masters.erase(s.peers[i].masters.begin() + static_cast<std::ptrdiff_t>(at));
                });
            }
            if (!best_.peers[i].gang.none()) better |= change([i](Scenario& s) { s.peers[i].gang = {}; });
            if (best_.peers[i].gang_patience != 0) better |= change([i](Scenario& s) { s.peers[i].gang_patience = 0; });
            if (best_.peers[i].rejoins) better |= change([i](Scenario& s) { s.peers[i].rejoins = false; });
        }
        const auto tags = [](Scenario& s, std::size_t) -> std::uint32_t& { return s.workload.tags; };
        const auto entries = [](Scenario& s, std::size_t) -> std::uint32_t& { return s.workload.entries; };
        const auto elements = [](Scenario& s, std::size_t) -> std::uint32_t& { return s.workload.elements_max; };
        better |= lower<std::uint32_t>(tags, 0, 0);
        if (best_.workload.sync) better |= change([](Scenario& s) { s.workload.sync = false; });
        if (best_.workload.sync) better |= lower<std::uint32_t>(entries, 0, 1);
        if (best_.workload.pump) better |= change([](Scenario& s) { s.workload.pump = false; });
        better |= lower<std::uint32_t>(elements, 0, 1);
        return better;
    }

    // Gives every setting its default value if the run still fails.
    bool calm_the_world() {
        bool better = false;
        for (std::size_t i = 0; i < world_settings(); ++i) {
            Scenario candidate = best_;
            if (reset_world_setting(candidate, i)) better |= attempt(candidate);
        }
        return better;
    }

    // Rounds numbers for the reader. Each one is tried only once, because this makes nothing smaller.
    void simplify_numbers() {
        for (std::size_t i = 0; i < best_.faults.size() && go_on_(); ++i) {
            const auto rounded = [](Duration d) {
                return d < core::millisecond ? d : d / core::millisecond * core::millisecond;
            };
            if (rounded(best_.faults[i].at) != best_.faults[i].at)
                change([&](Scenario& s) { s.faults[i].at = rounded(s.faults[i].at); });
            if (rounded(best_.faults[i].duration) != best_.faults[i].duration)
                change([&](Scenario& s) { s.faults[i].duration = rounded(s.faults[i].duration); });
            if (best_.faults[i].again != 0) {
                change([&](Scenario& s) { s.faults[i].again = 0; }) ||
                    change([&](Scenario& s) { s.faults[i].again /= 2; });
            }
            for (const std::uint64_t mask : {0xffull, 0xffffffffffull}) {
                const std::uint64_t value = best_.faults[i].value & mask;
                if (value != best_.faults[i].value && change([&](Scenario& s) { s.faults[i].value = value; })) break;
            }
        }
    }

    Scenario best_;
    const sim::Violation& violation_;
    const std::function<bool()>& go_on_;
};

}  // namespace

Scenario shrink(const Scenario& scenario, const sim::Violation& violation, const std::function<bool()>& go_on) {
    return Shrinker(scenario, violation, go_on).shrink();
}

std::size_t operations_of(const Scenario& scenario) {
    std::size_t turns = 0;
    for (const PeerPlan& peer : scenario.peers) turns = std::max<std::size_t>(turns, peer.turns);
    return turns * (scenario.workload.tags + (scenario.workload.sync ? 1 : 0));
}

}  // namespace pccl::harness
