#define FMT_HEADER_ONLY 1
// A fixed separator: otherwise {fmt} asks for the locale of the process, and the core must not depend on that.
#define FMT_STATIC_THOUSANDS_SEPARATOR ','

#include "core/base/format.hpp"

#include <fmt/format.h>

namespace pccl::core {

std::string format_arguments(fmt::string_view text, fmt::format_args arguments) {
    return fmt::vformat(text, arguments);
}

}  // namespace pccl::core
