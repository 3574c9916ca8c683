#include "bindings/failure.hpp"

namespace nb = nanobind;

namespace pccl_python {

nb::str text_of(const std::string& text) {
    PyObject* decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
    if (decoded == nullptr) nb::raise_python_error();
    return nb::steal<nb::str>(decoded);
}

void raise_failure(pcclResult_t result, const char* function, const std::string& cause) {
    // The message begins with the function's name. The exception adds that name itself.
    const std::string prefix = std::string(function) + ": ";
    const std::string text = cause.compare(0, prefix.size(), prefix) == 0 ? cause.substr(prefix.size()) : cause;
    const nb::object error =
        nb::module_::import_("pccl._errors").attr("error_for")(static_cast<int>(result), function, text_of(text));
    PyErr_SetObject(error.type().ptr(), error.ptr());
    throw nb::python_error();
}

}  // namespace pccl_python
