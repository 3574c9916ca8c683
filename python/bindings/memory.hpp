// Memory of arrays, through the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

namespace pccl_python {

void bind_memory(nanobind::module_& module);

}  // namespace pccl_python
