#include "bindings/waiting.hpp"

#include <algorithm>

namespace nb = nanobind;

namespace pccl_python {

namespace {

using Clock = std::chrono::steady_clock;
thread_local std::optional<Clock::time_point> deadline;
thread_local Interruption* check_of_thread = nullptr;

void set_check(Interruption* interruption) {
    check_of_thread = interruption;
    if (interruption == nullptr)
        pcclSetWaitCheck(nullptr, nullptr);
    else
        pcclSetWaitCheck([](void* user) { return static_cast<Interruption*>(user)->check(); }, interruption);
}

// Exceptions that take no attributes go without.
void tell(const nb::object& exception, bool succeeded) noexcept {
    if (PyObject_SetAttrString(exception.ptr(), "pccl_succeeded", succeeded ? Py_True : Py_False) != 0) PyErr_Clear();
    if (!succeeded) return;
    const nb::object noted = nb::steal(PyObject_CallMethod(
        exception.ptr(), "add_note", "s",
        "pccl: the call had succeeded when the signal handler raised; arrays on the CPU hold the result"));
    if (!noted.is_valid()) PyErr_Clear();
}

}  // namespace

void TimeLimit::enter() {
    former_ = deadline;
    // Clamped to a week, so that the deadline does not overflow the clock.
    const std::chrono::duration<double> limit(std::clamp(seconds_, 0.0, 604800.0));
    deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
}

void TimeLimit::exit() { deadline = former_; }

Checked::Checked(Interruption* interruption) : former_(check_of_thread) { set_check(interruption); }
Checked::~Checked() { set_check(former_); }

bool Interruption::possible() { return on_main_thread() || deadline; }

bool Interruption::check() noexcept {
    if (deadline && Clock::now() >= *deadline) {
        expired_ = true;
        return true;
    }
    if (!on_main_thread()) return false;
    const nb::gil_scoped_acquire acquire;
    return run_handlers();
}

bool Interruption::run_handlers() noexcept {
    const auto limit = std::exchange(deadline, std::nullopt);
    const bool returned = PyErr_CheckSignals() == 0;
    deadline = limit;
    if (returned) return false;
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
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
    if (!raised_ && result == pcclSuccess && on_main_thread()) run_handlers();
    if (raised_) tell(value_, result == pcclSuccess);
    raise();
}

void Interruption::raise() {
    if (!raised_) return;
    PyErr_Restore(type_.release().ptr(), value_.release().ptr(), traceback_.release().ptr());
    throw nb::python_error();
}

}  // namespace pccl_python
