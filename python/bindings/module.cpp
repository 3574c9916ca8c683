// pccl._native: the C interface for the package's Python files.
#include "bindings/communicator.hpp"
#include "bindings/gil.hpp"
#include "bindings/log.hpp"
#include "bindings/master.hpp"
#include "bindings/memory.hpp"
#include "bindings/operation.hpp"
#include "bindings/waiting.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;
using namespace pccl_python;

NB_MODULE(_native, module) {
    using namespace nb::literals;
    // Programs may end with objects alive, for example in a process group of torch that nobody destroyed.
    nb::set_leak_warnings(false);
    pcclInit();
    bind_communicator(module);
    bind_master(module);
    bind_log(module);
    bind_memory(module);
    module.def("set_main_thread", &set_main_thread, "ident"_a);
    nb::class_<TimeLimit>(module, "TimeLimit")
        .def(nb::init<double>(), "seconds"_a)
        .def("__enter__", &TimeLimit::enter)
        .def(
            "__exit__", [](TimeLimit& limit, nb::handle, nb::handle, nb::handle) { limit.exit(); }, "kind"_a.none(),
            "error"_a.none(), "traceback"_a.none());
    module.def("end_of_interpreter", &end_of_interpreter);
    module.def("next_completed", &next_completed);
    module.def("stop_completions", &stop_completions);
    module.def("after_fork", [] {
        no_other_is_inside();
        reset_completions();
    });
    module.def("version", [] {
        int major = 0, minor = 0, patch = 0;
        pcclGetVersion(&major, &minor, &patch);
        return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
    });
}
