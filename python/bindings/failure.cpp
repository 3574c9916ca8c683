#include "bindings/failure.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace pccl_python {

void raise_failure(pcclResult_t result, const char* function, const std::string& cause) {
    // The message begins with the function's name. The exception adds that name itself.
    const std::string prefix = std::string(function) + ": ";
    const std::string text = cause.compare(0, prefix.size(), prefix) == 0 ? cause.substr(prefix.size()) : cause;
    const nb::object error =
        nb::module_::import_("pccl._errors").attr("error_for")(static_cast<int>(result), function, text);
    PyErr_SetObject(error.type().ptr(), error.ptr());
    throw nb::python_error();
}

}  // namespace pccl_python
