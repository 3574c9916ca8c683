// Passes log lines of the library to a Python function.
#pragma once

#include <nanobind/nanobind.h>

namespace pccl_python {

void bind_log(nanobind::module_& module);

}  // namespace pccl_python
