// A failure of the C interface as an exception of the package.
#pragma once

#include "include/pccl.h"

#include <string>

namespace pccl_python {

// With the GIL. Raises the exception of pccl._errors that belongs to the result.
[[noreturn]] void raise_failure(pcclResult_t result, const char* function, const std::string& cause);

// Raises unless it is success; the cause is what the library told this thread.
inline void require(pcclResult_t result, const char* function) {
    if (result != pcclSuccess) raise_failure(result, function, pcclGetLastErrorMessage(nullptr));
}

}  // namespace pccl_python
