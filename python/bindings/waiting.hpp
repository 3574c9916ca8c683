// How the extension waits: without the GIL, and so that a Python signal handler that raises ends the wait.
//
// Python runs signal handlers only on its main thread, so only that thread checks for them. Other threads wait until
// their call returns. It does when the main thread's exception makes the communicator leave the run, or closes it.
#pragma once

#include "bindings/failure.hpp"
#include "bindings/gil.hpp"

#include <nanobind/nanobind.h>

#include <utility>

namespace pccl_python {

// The exception that a signal handler raised while a call waited.
class Interruption {
public:
    // Takes the GIL and runs pending signal handlers. True: one raised, and this object holds its exception.
    bool check() noexcept;
    // Needs the GIL. Raises the held exception, if any.
    void raise();

private:
    nanobind::object type_, value_, traceback_;
    bool raised_ = false;
};

// Runs `call` (a function of pccl.h) without the GIL. A failure becomes an exception.
template <class Call>
void wait_for(const char* function, Call&& call) {
    Interruption interruption;
    pcclResult_t result;
    {
        const WithoutGil released;
        if (on_main_thread()) {
            pcclSetWaitCheck([](void* user) { return static_cast<Interruption*>(user)->check(); }, &interruption);
            result = std::forward<Call>(call)();
            pcclSetWaitCheck(nullptr, nullptr);
        } else {
            result = std::forward<Call>(call)();
        }
    }
    interruption.raise();
    require(result, function);
}

}  // namespace pccl_python
