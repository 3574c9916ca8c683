#include "bindings/waiting.hpp"

namespace nb = nanobind;

namespace pccl_python {

bool Interruption::check() noexcept {
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() == 0) return false;
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    type_ = nb::steal(type);
    value_ = nb::steal(value);
    traceback_ = nb::steal(traceback);
    raised_ = true;
    return true;
}

void Interruption::raise() {
    if (!raised_) return;
    PyErr_Restore(type_.release().ptr(), value_.release().ptr(), traceback_.release().ptr());
    throw nb::python_error();
}

}  // namespace pccl_python
