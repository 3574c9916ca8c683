// Sections without the GIL. If a thread takes the GIL back while the interpreter ends, Python unwinds it through C++
// frames, which ends the process. So at the end the main thread waits for threads inside; threads that enter later
// never return.
#pragma once

#include <nanobind/nanobind.h>

namespace pccl_python {

// The thread that runs Python's signal handlers and ends the interpreter. Set at import and after fork.
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

// For a child of fork(), which has only the calling thread. A signal handler within a waiting call may have forked.
void no_other_is_inside();

// On the main thread, at exit: waits until the other threads have the GIL back, for 3 seconds at most.
void end_of_interpreter();

}  // namespace pccl_python
