#include "core/base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace pccl::core {

namespace {
AssertionHandler current_handler = nullptr;
}

void set_assertion_handler(AssertionHandler handler) { current_handler = handler; }

void assertion_failed(const char* expression, const char* file, int line) {
    if (current_handler != nullptr) current_handler(expression, file, line);
    std::fprintf(stderr, "pccl: broken invariant: %s (%s:%d)\n", expression, file, line);
    std::abort();
}

}  // namespace pccl::core
