#include "bindings/waiting.hpp"

#include <atomic>

namespace nb = nanobind;

namespace pccl_python {

namespace {
std::atomic<unsigned long> main_thread{0};
}  // namespace

void set_main_thread(unsigned long ident) { main_thread.store(ident, std::memory_order_relaxed); }

bool on_main_thread() { return PyThread_get_thread_ident() == main_thread.load(std::memory_order_relaxed); }

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
