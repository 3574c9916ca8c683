// Turns a failure of the C interface into an exception of the package.
#pragma once

#include "include/pccl.h"

#include <string>

namespace pccl_python {

// Needs the GIL. Raises the exception of pccl._errors that belongs to the result.
[[noreturn]] void raise_failure(pcclResult_t result, const char* function, const std::string& cause);

// Raises unless the result is success. The cause is the library's last message for this thread.
inline void require(pcclResult_t result, const char* function) {
    if (result != pcclSuccess) raise_failure(result, function, pcclGetLastErrorMessage(nullptr));
}

}  // namespace pccl_python
