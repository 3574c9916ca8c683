// The functions of a pcclMasterInstance_t as a Python object.
#pragma once

#include <nanobind/nanobind.h>

namespace pccl_python {

void bind_master(nanobind::module_& module);

}  // namespace pccl_python
