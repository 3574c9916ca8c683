// The names of fault classes on the command line.
#pragma once

#include <cstdint>
#include <string>

namespace pccl::tools {

// Names with commas between them. False, and said on standard error: one of them is none.
bool read_classes(const std::string& names, std::uint32_t& classes);

}  // namespace pccl::tools
