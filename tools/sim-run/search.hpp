// The command --search: looks for failures with scenarios that are kept and mutated (harness/search.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::tools {

struct SearchChoice {
    std::uint64_t seed = 1;
    std::uint64_t runs = 10'000;
    double minutes = 0;  // if not 0, the search ends after this time, and `runs` is ignored
    std::uint32_t jobs = 1;
    std::uint32_t classes = 0xffffffffu;
    bool stop_at_first = false;
    std::vector<std::uint64_t> first_seeds;  // played before the search draws any
    std::string list_file;                   // the file that holds them
    std::string corpus;                      // folder; empty: none
    std::string save;                        // folder for failing scenarios; empty: they are printed
};

// Returns the exit code of the program.
int search(const SearchChoice& choice);

}  // namespace pccl::tools
