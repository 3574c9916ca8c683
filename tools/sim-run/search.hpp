// The command --search: hunts with scenarios that are kept and changed (harness/search.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::tools {

struct SearchChoice {
    std::uint64_t seed = 1;
    std::uint64_t runs = 10'000;
    double minutes = 0;  // not 0: ends then, and `runs` does not count
    std::uint32_t jobs = 1;
    std::uint32_t classes = 0xffffffffu;
    bool stop_at_first = false;
    std::vector<std::uint64_t> first_seeds;  // run before the search draws
    std::string list_file;                   // where they stand
    std::string corpus;                      // folder; empty: none
    std::string save;                        // folder for failing scenarios; empty: they are printed
};

// The exit code of the program.
int search(const SearchChoice& choice);

}  // namespace pccl::tools
