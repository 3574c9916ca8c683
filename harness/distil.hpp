// Chooses, from many runs, a few that together reached most of the rare marks. A hunt begins with their seeds.
#pragma once

#include "harness/coverage.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pccl::harness {

class Distillery {
public:
    struct Run {
        std::uint64_t seed = 0;
        std::uint64_t events = 0;  // the cost of the run
        std::uint64_t marks = 0;   // how many entries of marks() belong to it
    };
    void add(std::uint64_t seed, std::uint64_t events, std::span<const Mark> marks);

    struct Choice {
        std::vector<std::uint64_t> seeds;  // the best first
        std::size_t rare = 0;              // marks that counted as rare
        std::size_t reached = 0;           // of these, the ones that the chosen runs reached
    };
    // Greedy: each step takes the run that adds the most value per square root of its cost. A mark counts if at least
    // `runs_least` runs and at most one in a hundred reached it; marks of fewer runs are chance. A mark counts 1 the
    // first time, 1/2 the second time, then 1/4 and 1/8, and nothing after that: what happens around a rare state
    // differs from run to run.
    Choice choose(std::size_t most) const;

    // All data, to merge what several processes saw. Marks are in the order of the runs.
    const std::vector<Run>& runs() const { return runs_; }
    const std::vector<Mark>& marks() const { return marks_; }

    static constexpr std::uint32_t runs_least = 5;

private:
    std::vector<Run> runs_;
    std::vector<Mark> marks_;
};

}  // namespace pccl::harness
