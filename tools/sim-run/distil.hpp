// The command --distil: chooses the seeds of a range that together reach the most rare marks (harness/distil.hpp). Also
// reads files of seeds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::tools {

struct DistilChoice {
    std::uint64_t first = 0, last = 0;
    std::uint32_t jobs = 1;
    std::uint32_t classes = 0xffffffffu;
    std::uint32_t most = 0;  // number of seeds to choose
    std::string file;        // the file to write
    std::string command;     // the command line that is noted in the file
    std::string replay;      // options for the replay of a failing seed
};

// Returns the exit code of the program. A seed that fails is printed, and the command fails.
int distil(const DistilChoice& choice);

// One seed per line; # begins a comment. If the file cannot be read, prints the reason on standard error.
bool read_seeds(const std::string& file, std::vector<std::uint64_t>& seeds);

}  // namespace pccl::tools
