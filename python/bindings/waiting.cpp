#include "bindings/waiting.hpp"

#include <algorithm>
#include <chrono>

namespace nb = nanobind;

namespace pccl_python {

namespace {

using Clock = std::chrono::steady_clock;
thread_local std::optional<Clock::time_point> deadline;

}  // namespace

void set_time_limit(std::optional<double> seconds) {
    deadline.reset();
    if (!seconds) return;
    // Clamped to a week, so that the deadline does not overflow the clock.
    const std::chrono::duration<double> limit(std::clamp(*seconds, 0.0, 604800.0));
    deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
}

bool Interruption::possible() { return on_main_thread() || deadline; }

bool Interruption::check() noexcept {
    if (deadline && Clock::now() >= *deadline) {
        expired_ = true;
        return true;
    }
    if (!on_main_thread()) return false;
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

void Interruption::raise(pcclResult_t result, const char* function) {
    if (expired_ && result != pcclSuccess) {
        const nb::object error =
            nb::module_::import_("pccl._errors").attr("left_for_time")(static_cast<int>(result), function);
        PyErr_SetObject(error.type().ptr(), error.ptr());
        throw nb::python_error();
    }
    if (!raised_) return;
    PyErr_Restore(type_.release().ptr(), value_.release().ptr(), traceback_.release().ptr());
    throw nb::python_error();
}

}  // namespace pccl_python
