#include "bindings/log.hpp"

#include "bindings/failure.hpp"
#include "bindings/gil.hpp"

namespace nb = nanobind;

namespace pccl_python {

namespace {

// Leaks what it replaces: the library's thread may hold the former one at the moment, without the GIL.
PyObject* receiver = nullptr;

void deliver(pcclLogLevel_t level, const char* line, void*) {
    if (!nb::is_alive() || !Py_IsInitialized()) return;
    const nb::gil_scoped_acquire acquire;
    const nb::handle function(receiver);
    try {
        // The line may hold bytes of a foreign host; a log line is no place to fail.
        const nb::object text = nb::steal(PyUnicode_DecodeUTF8(line, static_cast<Py_ssize_t>(strlen(line)), "replace"));
        function(static_cast<int>(level), text);
    } catch (nb::python_error& error) {
        error.discard_as_unraisable("a log line of pccl");
    }
}

// None: lines go to standard error again. Must have been called with None before the interpreter ends.
void set_log_receiver(const nb::object& function) {
    pcclResult_t result;
    if (!function.is_none()) receiver = nb::object(function).release().ptr();
    {
        // Waits for the receiver to return, which needs the GIL.
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
