// How the extension waits: without the GIL, and so that a Python signal handler that raises ends the wait.
//
// Python runs signal handlers only on its main thread, so only that thread checks for them. Other threads wait until
// their call returns, or until their time limit. A call returns when the main thread's exception makes the communicator
// leave the run, or closes it.
#pragma once

#include "bindings/failure.hpp"
#include "bindings/gil.hpp"

#include <nanobind/nanobind.h>

#include <chrono>
#include <optional>
#include <utility>

namespace pccl_python {

// A context manager. Limits the calls that this thread makes within it, all together: a call that still waits after so
// many seconds leaves the run. It is no Python code: a signal handler could raise between two steps of that, and the
// limit would stay.
class TimeLimit {
public:
    explicit TimeLimit(double seconds) : seconds_(seconds) {}
    void enter();
    // Sets the former limit again. A signal handler may use limits while another one counts.
    void exit();

private:
    using Clock = std::chrono::steady_clock;
    const double seconds_;
    std::optional<Clock::time_point> former_;
};

// Why a waiting call was ended: the exception that a signal handler raised, or the time limit of its thread.
class Interruption {
public:
    // Whether a call of this thread can be interrupted at all.
    static bool possible();
    // On the main thread, takes the GIL and runs pending signal handlers. They may wait in calls of their own; the time
    // limit does not count for these. True: one raised, and this object holds its exception; or the time limit is over.
    bool check() noexcept;
    // Needs the GIL. Raises the held exception, if any. Its attribute pccl_succeeded tells whether the call succeeded
    // all the same: then it has succeeded for all members, and its results are there. A handler whose signal came
    // during the call runs here at the latest, so that its exception has the attribute too. If the time limit ended the
    // call, raises unless the call succeeded.
    void raise(pcclResult_t result, const char* function);
    // The same for a call that has no outcome of its own: without the attribute.
    void raise();

private:
    // Needs the GIL. Whether a signal handler raised.
    bool run_handlers() noexcept;
    nanobind::object type_, value_, traceback_;
    bool raised_ = false;
    bool expired_ = false;
};

// Sets an Interruption as the check of this thread (pcclSetWaitCheck), and in the end the former one again: a signal
// handler may wait within a call that waits.
class Checked {
public:
    explicit Checked(Interruption* interruption);
    ~Checked();
    Checked(const Checked&) = delete;
    Checked& operator=(const Checked&) = delete;

private:
    Interruption* const former_;
};

// Runs `call` (a function of pccl.h) without the GIL. A failure becomes an exception. `launches`: the call makes
// something, so its success is not the outcome of an operation.
template <class Call>
void wait_for(const char* function, Call&& call, bool launches = false) {
    Interruption interruption;
    pcclResult_t result;
    {
        const WithoutGil released;
        const Checked checked(Interruption::possible() ? &interruption : nullptr);
        result = std::forward<Call>(call)();
    }
    if (launches)
        interruption.raise();
    else
        interruption.raise(result, function);
    require(result, function);
}

}  // namespace pccl_python
