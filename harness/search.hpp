// Searches for failures: keeps scenarios whose runs reached something new, and mutates them.
//
// Each run takes either a new scenario from the generator, the most unusual one of several, or a mutated kept scenario
// (mutate.hpp). A kept scenario is chosen more often if few runs reached what it reached, if it has few kinds of
// faults, and if it runs fast. A mutated scenario that reaches the same with fewer faults replaces the kept one,
// because oracles forgive more when more happens. Everything is drawn from the seed of the search: the same seed and
// the same results of runs give the same scenarios.
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
    // This is search number `job` of `jobs` searches whose counts are merged.
    Search(std::uint64_t seed, const GeneratorOptions& options, std::uint32_t job = 0, std::uint32_t jobs = 1);

    Scenario next();
    // Takes the result of a run. The scenario is the last one from next(), or was read from a folder. True: it is kept.
    bool learn(const Scenario& scenario, const Verdict& verdict, const Coverage& coverage);

    struct Kept {
        Scenario scenario;
        EffectCounts effects{};
        std::vector<Mark> rare;  // its rarest marks when it was kept
        std::uint64_t events = 0;
        std::uint32_t run = 0;
        std::uint32_t chosen = 0;
        std::uint32_t kinds = 0;  // different kinds of faults
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
    std::size_t parent_ = none;  // of the scenario that next() returned last
    std::uint64_t energy_ = 0;   // sum of the whole corpus
    std::uint64_t weighed_ = 0;
    Census states_, marks_;
    std::unordered_map<std::uint32_t, std::uint32_t> traits_;  // by pair of traits: how many runs had both
};

// The traits of a scenario, one number each: kinds of faults, habits of its programs, settings that matter.
std::vector<std::uint32_t> traits_of(const Scenario& scenario);

}  // namespace pccl::harness
