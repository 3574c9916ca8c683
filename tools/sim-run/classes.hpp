// The names of fault classes on the command line.
#pragma once

#include <cstdint>
#include <string>

namespace pccl::tools {

// Reads names that are separated by commas. If one is unknown, returns false and prints that on standard error.
bool read_classes(const std::string& names, std::uint32_t& classes);

}  // namespace pccl::tools
