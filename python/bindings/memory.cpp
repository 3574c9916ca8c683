#include "bindings/memory.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace nb = nanobind;

namespace pccl_python {

namespace {

// Returns address, number of elements, and the character of the struct module for their type. nullopt: the array cannot
// be used in place, or its type has no such character; the caller finds out which. The buffer is released at once,
// because the caller keeps the array.
std::optional<std::tuple<std::uintptr_t, Py_ssize_t, char>> plain_buffer(nb::handle array, bool written) {
    Py_buffer view;
    const int wanted = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (written ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array.ptr(), &view, wanted) != 0) {
        PyErr_Clear();
        return std::nullopt;
    }
    const bool one_character = view.format != nullptr && view.format[0] != '\0' && view.format[1] == '\0';
    std::optional<std::tuple<std::uintptr_t, Py_ssize_t, char>> found;
    if (one_character && view.itemsize > 0)
        found.emplace(reinterpret_cast<std::uintptr_t>(view.buf), view.len / view.itemsize, view.format[0]);
    PyBuffer_Release(&view);
    return found;
}

}  // namespace

void bind_memory(nb::module_& module) {
    using namespace nb::literals;
    module.def("plain_buffer", &plain_buffer, "array"_a, "written"_a);
}

}  // namespace pccl_python
