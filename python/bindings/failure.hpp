// Turns a failure of the C interface into an exception of the package.
#pragma once

#include "include/pccl.h"

#include <nanobind/nanobind.h>

#include <string>

namespace pccl_python {

// Needs the GIL. A text of the library may contain any bytes: of a path, or of another peer. Those that are not UTF-8 are
// replaced, so that no failure turns into another one.
nanobind::str text_of(const std::string& text);

// Needs the GIL. Raises the exception of pccl._errors that belongs to the result.
[[noreturn]] void raise_failure(pcclResult_t result, const char* function, const std::string& cause);

// Raises unless the result is success. The cause is the library's last message for this thread.
inline void require(pcclResult_t result, const char* function) {
    if (result != pcclSuccess) raise_failure(result, function, pcclGetLastErrorMessage(nullptr));
}

}  // namespace pccl_python
