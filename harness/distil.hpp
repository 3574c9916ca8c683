// Of many runs, the few that together reached the most of what few runs reach: the seeds to begin a hunt with.
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
        std::uint64_t events = 0;  // what it costs
        std::uint64_t marks = 0;   // how many of marks() are its own
    };
    void add(std::uint64_t seed, std::uint64_t events, std::span<const Mark> marks);

    struct Choice {
        std::vector<std::uint64_t> seeds;  // the best first
        std::size_t rare = 0;              // marks that counted
        std::size_t reached = 0;           // of these, by the runs chosen
    };
    // Greedy: each time the run that adds the most for the square root of its price. A mark counts if at least
    // `runs_least` runs and at most one in a hundred reached it: what fewer reached is chance. It counts whole the first
    // time, a half the second time, and so on four times: what comes with a rare state differs from run to run.
    Choice choose(std::size_t most) const;

    // All of it, to join what several processes saw. Marks stand in the order of the runs.
    const std::vector<Run>& runs() const { return runs_; }
    const std::vector<Mark>& marks() const { return marks_; }

    static constexpr std::uint32_t runs_least = 5;

private:
    std::vector<Run> runs_;
    std::vector<Mark> marks_;
};

}  // namespace pccl::harness
