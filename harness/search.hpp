// Hunts with scenarios that are kept when their run reached something new, and changed.
//
// Each run is a new scenario from the generator, the most unusual one of several by what it consists of; or a kept one,
// changed (mutate.hpp). A kept scenario is chosen the more often, the fewer runs reached what it reached, the fewer kinds
// of faults it has, and the less it costs. One that reaches the same with fewer faults takes its place: oracles forgive
// more where more happens. Everything is drawn from the seed of the search: the same seed and the same results of runs give the same scenarios.
#pragma once

#include "harness/coverage.hpp"
#include "harness/mutate.hpp"
#include "harness/run.hpp"
#include "harness/scenario.hpp"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace pccl::harness {

class Search {
public:
    // Of several searches whose counts are joined, this is number `job`.
    Search(std::uint64_t seed, const GeneratorOptions& options, std::uint32_t job = 0, std::uint32_t jobs = 1);

    Scenario next();
    // What the run of the scenario showed that next() gave, or that was read from a folder. True: it is kept.
    bool learn(const Scenario& scenario, const Verdict& verdict, const Coverage& coverage);

    struct Kept {
        Scenario scenario;
        EffectCounts effects{};
        std::vector<Mark> rare;  // those of its marks that the fewest runs had reached when it was kept
        std::uint64_t events = 0;
        std::uint32_t run = 0;
        std::uint32_t chosen = 0;
        std::uint32_t kinds = 0;  // of faults
        std::uint64_t energy = 0;
    };
    const std::vector<Kept>& corpus() const { return corpus_; }
    const Census& states() const { return states_; }
    const Census& marks() const { return marks_; }
    std::uint64_t runs() const { return runs_; }
    std::uint64_t mutated() const { return mutated_; }

private:
    Scenario fresh();
    std::size_t choose();
    bool takes_the_place(const Scenario& scenario, const Verdict& verdict, const Coverage& coverage);
    void weigh();
    void note_traits(const Scenario& scenario);

    GeneratorOptions options_;
    std::uint32_t job_, jobs_;
    sim::Draw draw_;
    std::uint64_t next_seed_;
    std::uint64_t runs_ = 0, mutated_ = 0;
    std::vector<Kept> corpus_;
    static constexpr std::size_t none = ~std::size_t{0};
    std::size_t parent_ = none;  // of the scenario that next() gave last
    std::uint64_t energy_ = 0;   // of all
    std::uint64_t weighed_ = 0;
    Census states_, marks_;
    std::unordered_map<std::uint32_t, std::uint32_t> traits_;  // pairs of them: how many runs had both
};

// What a scenario consists of, in a few words each: kinds of faults, habits of its programs, settings that matter.
std::vector<std::uint32_t> traits_of(const Scenario& scenario);

}  // namespace pccl::harness
