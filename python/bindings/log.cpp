#include "bindings/log.hpp"

#include "bindings/failure.hpp"
#include "bindings/gil.hpp"

namespace nb = nanobind;

namespace pccl_python {

namespace {

// A replaced receiver leaks, because the library's thread may be using it without the GIL at that moment.
PyObject* receiver = nullptr;

void deliver(pcclLogLevel_t level, const char* line, void*) {
    if (!nb::is_alive() || !Py_IsInitialized()) return;
    const nb::gil_scoped_acquire acquire;
    const nb::handle function(receiver);
    try {
        function(static_cast<int>(level), text_of(line));
    } catch (nb::python_error& error) {
        error.discard_as_unraisable("a log line of pccl");
    }
}

// None: lines go to standard error again. Must be called with None before the interpreter ends.
void set_log_receiver(const nb::object& function) {
    pcclResult_t result;
    if (!function.is_none()) receiver = nb::object(function).release().ptr();
    {
        // Waits until the receiver returns, and the receiver needs the GIL.
        const WithoutGil released;
        result = pcclSetLogCallback(function.is_none() ? nullptr : &deliver, nullptr);
    }
    require(result, "pcclSetLogCallback");
}

}  // namespace

void bind_log(nb::module_& module) {
    using namespace nb::literals;
    module.def("set_log_receiver", &set_log_receiver, "function"_a.none());
}

}  // namespace pccl_python
