// Texts of causes for users of the C interface and of the programs: the core's text, and the setting or function that
// helps. The core names neither.
#pragma once

#include "core/base/cause.hpp"

#include <string>

namespace pccl::real {

std::string told(const core::Cause& cause);

}  // namespace pccl::real
