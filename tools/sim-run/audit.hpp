// The command --audit-excuses: finds out which excuses of oracles are needed.
#pragma once

#include <cstdint>

namespace pccl::tools {

// Runs each seed of a range, and again without each excuse that was used. Prints how often each was used and needed.
// Returns the exit code of the program.
int audit_excuses(std::uint64_t first, std::uint64_t last, std::uint32_t jobs, std::uint32_t classes);

}  // namespace pccl::tools
