// The functions of a pcclComm_t as a Python object that speaks numbers and pointers; the package gives them a face.
#pragma once

#include <nanobind/nanobind.h>

namespace pccl_python {

void bind_communicator(nanobind::module_& module);

}  // namespace pccl_python
