// ASSERT states an invariant of this code base; it stays on in release builds.
//
// Never used on anything that a remote or a user can cause: such input is validated, refused and counted.
// The handler is a plain function pointer so that the simulator can turn a broken invariant into a failed run;
// the default prints and aborts (in assert.cpp, the only place of core that may end a process).
#pragma once

namespace pccl::core {

using AssertionHandler = void (*)(const char* expression, const char* file, int line);

// Replaces the handler for the whole process; it must not return. Null restores the default.
void set_assertion_handler(AssertionHandler handler);
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace pccl::core

#define ASSERT(expression)                                                                                             \
    (static_cast<bool>(expression) ? void(0) : ::pccl::core::assertion_failed(#expression, __FILE__, __LINE__))
