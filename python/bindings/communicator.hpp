// The functions of a pcclComm_t as a Python object that takes numbers and pointers. The Python package wraps it.
#pragma once

#include <nanobind/nanobind.h>

namespace pccl_python {

void bind_communicator(nanobind::module_& module);

}  // namespace pccl_python
