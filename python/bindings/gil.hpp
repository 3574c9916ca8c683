// Sections without the GIL. A thread that wants the GIL back while the interpreter ends would be unwound by Python through
// C++ frames, which ends the process; so at the end those that are inside are waited for, and later ones never return.
#pragma once

#include <nanobind/nanobind.h>

namespace pccl_python {

// Whose signal handlers run between its steps, and who ends the interpreter; told at import and after fork.
void set_main_thread(unsigned long ident);
bool on_main_thread();

class WithoutGil {
public:
    WithoutGil();
    ~WithoutGil();
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

private:
    PyThreadState* state_;
};

// In a child of fork(), where nobody else is inside.
void nobody_is_inside();

// On the main thread, at exit: waits until the other threads have the GIL back, for some seconds at most.
void end_of_interpreter();

}  // namespace pccl_python
