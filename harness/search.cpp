#include "harness/search.hpp"

#include "harness/scenario_text.hpp"
#include "harness/triggers.hpp"

#include <algorithm>
#include <bit>

namespace pccl::harness {

using namespace core;
using sim::mix;

namespace {

constexpr std::size_t corpus_most = 4'000;
constexpr std::size_t rare_most = 48;    // marks kept with a scenario
constexpr std::uint32_t candidates = 6;  // generated scenarios, of which one is run
constexpr std::uint32_t fresh_share = 500'000;
constexpr std::uint64_t weigh_every = 50;

std::uint32_t kinds_of(const Scenario& scenario) {
    std::uint64_t kinds = 0;
    for (const Fault& fault : scenario.faults) kinds |= 1ull << static_cast<unsigned>(fault.kind);
    return static_cast<std::uint32_t>(std::popcount(kinds));
}

std::uint32_t pair_of(std::uint32_t a, std::uint32_t b) { return a << 16 | b; }

class Traits {
public:
    // Each call has its own number. A value other than 0 adds a trait, which consists of the number and the value.
    void add(std::uint64_t value) {
        if (value != 0) traits.push_back(number_ << 4 | static_cast<std::uint32_t>(std::min<std::uint64_t>(value, 15)));
        ++number_;
    }
    void size(std::uint64_t value) { add(static_cast<std::uint64_t>(std::bit_width(value))); }
    std::vector<std::uint32_t> traits;

private:
    std::uint32_t number_ = 0;
};

}  // namespace

std::vector<std::uint32_t> traits_of(const Scenario& s) {
    Traits t;
    std::array<std::uint32_t, fault_kinds> kinds{};
    std::array<std::uint32_t, phases_last + 2> triggers{};  // all probes count as one
    std::uint32_t forever = 0, followers = 0, repeated = 0, places = 0;
    for (const Fault& fault : s.faults) {
        ++kinds[static_cast<std::size_t>(fault.kind)];
        ++triggers[std::min(fault.trigger, phases_last + 1)];
        followers |= fault.follows != 0 ? 1 : 0;
        repeated |= fault.again != 0 ? 1 : 0;
        places |= fault.place != FaultPlace::named ? 1 : 0;
        forever |= fault.forever ? 1 : 0;
    }
    for (const std::uint32_t count : kinds) t.add(std::min(count, 2u));
    for (const std::uint32_t count : triggers) t.add(std::min(count, 1u));
    for (const std::uint32_t value : {forever, followers, repeated, places}) t.add(value);
    t.add(s.faults.empty() ? 1 : 0);
    const Workload& w = s.workload;
    for (const bool value : {w.pump,
                             w.sync,
                             w.exact,
                             w.async_sync,
                             w.checkpoints,
                             w.own_entries_per_mille != 0,
                             w.mismatch_per_mille != 0,
                             w.twice_per_mille != 0,
                             w.leave_in_flight_per_mille != 0,
                             w.visit_per_mille != 0,
                             w.drift_per_mille != 0,
                             w.hasty_revision_per_mille != 0,
                             w.schema_per_mille != 0,
                             w.odd_strategy_per_mille != 0,
                             w.cross_per_mille != 0,
                             w.early_update_per_mille != 0,
                             w.quantized_per_mille != 0,
                             w.collectives_per_mille != 0,
                             w.pieces_per_mille != 0,
                             w.sends_per_mille != 0,
                             w.optimize_per_mille != 0,
                             w.key_bytes != 0,
                             w.entries > 4,
                             w.tags == 0,
                             w.tags > 9,
                             w.many_window != 0,
                             w.compute_max > second / 4})
        t.add(value ? 1 : 0);
    t.size(w.tags);
    t.size(w.elements_max / 32);
    t.size(w.state_elements_max / 300);
    const Limits& l = s.limits;
    for (const bool value :
         {l.concurrent_ops == 1, l.eager_bytes == l.slice_bytes, l.min_slots < 4,
          l.scratch_bytes == std::uint64_t{l.slice_bytes} * l.min_slots, l.chunks_in_flight == 1,
          l.operation_bytes_max != 0, l.control_bytes_max < 1u << 14, l.journal_records <= 60,
          l.ids_per_incarnation != ~0u, l.newcomer_links_max <= 6, s.uneven_limits, s.timeouts.vote != 0,
          s.timeouts.journal != 0, s.timeouts.master == 0, s.timeouts.master < 5 * second,
          s.timeouts.peer<2 * second, s.world.allocation_fails_per_million != 0, s.world.wrong_chunks_per_million != 0,
                          s.world.long_texts_per_million != 0, s.world.staging_max != 0, s.world.drift_ppm != 0,
                          s.world.compute_max> 5 *
              millisecond,
          s.claim == Claim::core})
        t.add(value ? 1 : 0);
    const sim::NetworkParameters& n = s.world.network;
    t.size(static_cast<std::uint64_t>(n.latency_high / (4 * millisecond)));
    t.size(static_cast<std::uint64_t>(100'000'000 / std::max<std::int64_t>(n.rate_low, 1)));
    t.size(static_cast<std::uint64_t>(65'535 / std::max<std::int64_t>(n.window_low, 1)));
    for (const bool value :
         {n.tail_per_million != 0, n.split_per_million != 0, n.refuse_per_million != 0, n.black_hole_per_million != 0,
          n.accept_close_per_million != 0, n.down_low != 0, n.flow_rate != 0, n.loses_packets()})
        t.add(value ? 1 : 0);
    t.add(std::min<std::uint64_t>(s.peers.size(), 5));
    std::uint32_t late = 0, groups = 0, stripes = 0, leaves = 0;
    for (const PeerPlan& plan : s.peers) {
        late |= plan.start > 300 * millisecond ? 1 : 0;
        groups |= plan.group != s.peers.front().group ? 1 : 0;
        stripes |= plan.stripes > 1 ? 1 : 0;
        leaves |= plan.rejoins ? 0 : 1;
    }
    for (const std::uint32_t value : {late, groups, stripes, leaves}) t.add(value);
    return std::move(t.traits);
}

Search::Search(std::uint64_t seed, const GeneratorOptions& options, std::uint32_t job, std::uint32_t jobs)
    : options_(options), job_(job), jobs_(jobs), draw_(mix(mix(seed, job), 900)),
      next_seed_(mix(mix(seed, job), 901) >> 16) {}

void Search::note_traits(const Scenario& scenario) {
    const std::vector<std::uint32_t> traits = traits_of(scenario);
    for (std::size_t i = 0; i < traits.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) ++traits_[pair_of(traits[j], traits[i])];
    }
}

// Draws several scenarios and returns the one whose pairs of traits were in the fewest runs.
Scenario Search::fresh() {
    Scenario best;
    std::uint64_t best_score = 0;
    for (std::uint32_t i = 0; i < candidates; ++i) {
        Scenario scenario = generate(next_seed_++, options_);
        const std::vector<std::uint32_t> traits = traits_of(scenario);
        std::uint64_t score = 0, pairs = 1;
        for (std::size_t a = 0; a < traits.size(); ++a) {
            for (std::size_t b = 0; b < a; ++b, ++pairs) {
                const auto found = traits_.find(pair_of(traits[b], traits[a]));
                score += 1'000'000 / (1 + (found == traits_.end() ? 0 : found->second));
            }
        }
        // The mean, because many faults alone do not make a scenario unusual.
        score = score / pairs + 1;
        if (score <= best_score) continue;
        best_score = score;
        best = std::move(scenario);
    }
    return best;
}

Scenario Search::next() {
    parent_ = none;
    if (corpus_.empty() || draw_.chance(fresh_share)) return fresh();
    for (int tries = 0; tries < 4; ++tries) {
        const std::size_t parent = choose();
        const Scenario donor = draw_.chance(500'000) ? corpus_[choose()].scenario : generate(next_seed_++, options_);
        ++corpus_[parent].chosen;
        Scenario child = mutate(corpus_[parent].scenario, donor, corpus_[parent].effects, draw_);
        if (!sound(child)) continue;
        ++mutated_;
        parent_ = parent;
        return child;
    }
    return fresh();
}

// Weighted by energy.
std::size_t Search::choose() {
    if (weighed_ == 0 || runs_ - weighed_ >= weigh_every) weigh();
    std::uint64_t at = draw_.below(std::max<std::uint64_t>(energy_, 1));
    for (std::size_t i = 0; i < corpus_.size(); ++i) {
        if (at < corpus_[i].energy) return i;
        at -= corpus_[i].energy;
    }
    return corpus_.size() - 1;
}

void Search::weigh() {
    weighed_ = runs_;
    for (Kept& kept : corpus_) {
        std::uint64_t rarity = 0;
        for (const Mark mark : kept.rare) rarity += 1'000'000 / marks_.runs_of(mark);
        // A long run takes the time of others, so it gets less energy.
        const std::uint64_t price = 1 + kept.events / 4'000;
        kept.energy = 1 + rarity / (1 + kept.chosen) / (price * price) / (2 + kept.kinds);
    }
    if (corpus_.size() > corpus_most) {
        std::stable_sort(corpus_.begin(), corpus_.end(),
                         [](const Kept& x, const Kept& y) { return x.energy > y.energy; });
        corpus_.resize(corpus_most * 3 / 4);
    }
    energy_ = 0;
    for (const Kept& kept : corpus_) energy_ += kept.energy;
}

// Replaces its parent if it has fewer faults and reached the rarest marks of the parent.
bool Search::takes_the_place(const Scenario& scenario, const Verdict& verdict, const Coverage& coverage) {
    if (parent_ == none) return false;
    Kept& parent = corpus_[parent_];
    if (scenario.faults.size() >= parent.scenario.faults.size()) return false;
    const std::size_t rarest = std::min<std::size_t>(parent.rare.size(), 4);
    for (std::size_t i = 0; i < rarest; ++i) {
        if (std::find(coverage.marks().begin(), coverage.marks().end(), parent.rare[i]) == coverage.marks().end())
            return false;
    }
    parent.scenario = scenario;
    parent.effects = verdict.effects;
    parent.events = verdict.events;
    parent.kinds = kinds_of(scenario);
    return true;
}

bool Search::learn(const Scenario& scenario, const Verdict& verdict, const Coverage& coverage) {
    const auto run = static_cast<std::uint32_t>(runs_++ * jobs_ + job_);
    states_.add(run, coverage.states());
    note_traits(scenario);
    const bool is_new = marks_.add(run, coverage.marks()) != 0;
    if (!verdict.held()) return false;
    if (takes_the_place(scenario, verdict, coverage)) return true;
    if (!is_new) return false;
    Kept kept;
    kept.scenario = scenario;
    kept.effects = verdict.effects;
    kept.events = verdict.events;
    kept.run = run;
    kept.kinds = kinds_of(scenario);
    kept.rare.assign(coverage.marks().begin(), coverage.marks().end());
    const auto rarer = [this](Mark x, Mark y) {
        const std::uint32_t a = marks_.runs_of(x), b = marks_.runs_of(y);
        return a != b ? a < b : x < y;
    };
    const std::size_t most = std::min(rare_most, kept.rare.size());
    std::partial_sort(kept.rare.begin(), kept.rare.begin() + static_cast<std::ptrdiff_t>(most), kept.rare.end(), rarer);
    kept.rare.resize(most);
    // A provisional value, until weigh() sets it.
    kept.energy = 1'000'000;
    energy_ += kept.energy;
    corpus_.push_back(std::move(kept));
    return true;
}

}  // namespace pccl::harness
