// How the extension waits: without the GIL, and so that a Python signal handler that raises ends the wait.
//
// Python runs signal handlers only on its main thread, so only that thread checks for them. Other threads wait until
// their call returns, or until their time limit. A call returns when the main thread's exception makes the communicator
// leave the run, or closes it.
#pragma once

#include "bindings/failure.hpp"
#include "bindings/gil.hpp"

#include <nanobind/nanobind.h>

#include <optional>
#include <utility>

namespace pccl_python {

// Limits the calls that this thread makes from now on: a call that still waits after so many seconds leaves the run.
// nullopt: no limit.
void set_time_limit(std::optional<double> seconds);

// Why a waiting call was ended: the exception that a signal handler raised, or the time limit of its thread.
class Interruption {
public:
    // Whether a call of this thread can be interrupted at all.
    static bool possible();
    // On the main thread, takes the GIL and runs pending signal handlers. True: one raised, and this object holds its
    // exception; or the time limit is over.
    bool check() noexcept;
    // Needs the GIL. Raises the held exception, if any. If the time limit ended the call, raises unless it succeeded all
    // the same: then it has succeeded for all members, and its results are there.
    void raise(pcclResult_t result, const char* function);

private:
    nanobind::object type_, value_, traceback_;
    bool raised_ = false;
    bool expired_ = false;
};

// Runs `call` (a function of pccl.h) without the GIL. A failure becomes an exception.
template <class Call>
void wait_for(const char* function, Call&& call) {
    Interruption interruption;
    pcclResult_t result;
    {
        const WithoutGil released;
        if (Interruption::possible()) {
            pcclSetWaitCheck([](void* user) { return static_cast<Interruption*>(user)->check(); }, &interruption);
            result = std::forward<Call>(call)();
            pcclSetWaitCheck(nullptr, nullptr);
        } else {
            result = std::forward<Call>(call)();
        }
    }
    interruption.raise(result, function);
    require(result, function);
}

}  // namespace pccl_python
