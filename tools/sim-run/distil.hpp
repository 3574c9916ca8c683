// The command --distil: the seeds of a range that reach the most of what few of them reach (harness/distil.hpp), and files
// of seeds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::tools {

struct DistilChoice {
    std::uint64_t first = 0, last = 0;
    std::uint32_t jobs = 1;
    std::uint32_t classes = 0xffffffffu;
    std::uint32_t most = 0;  // seeds to choose
    std::string file;        // where they are written
    std::string command;     // as which it is noted there
    std::string replay;      // the options that a failing seed is to be replayed with
};

// The exit code of the program. A seed that fails is printed, and fails the command.
int distil(const DistilChoice& choice);

// A seed a line; what follows a # is a comment. Says on standard error why it could not be read.
bool read_seeds(const std::string& file, std::vector<std::uint64_t>& seeds);

}  // namespace pccl::tools
