// The command --search: looks for failures by mutating scenarios that reached something new (harness/search.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::tools {

struct SearchChoice {
    std::uint64_t seed = 1;
    std::uint64_t runs = 10'000;
    double minutes = 0;                      // if not 0, the search ends after this time, and `runs` is ignored
    std::uint32_t jobs = 1;                  // processes, which share the runs
    std::uint32_t classes = 0xffffffffu;     // bits of FaultClass that may be drawn
    bool stop_at_first = false;              // each process ends at its first failure
    std::vector<std::uint64_t> first_seeds;  // played before the search draws any
    std::string list_file;                   // file of first_seeds; for the printed command only
    std::string scenarios;                   // folder of scenarios to begin with; empty: none
    std::string corpus;                      // folder of scenarios to begin with; kept ones are added; empty: none
    std::string save;                        // folder for failing scenarios; empty: they are printed
};

// Returns the exit code of the program.
int search(const SearchChoice& choice);

}  // namespace pccl::tools
