#include "bindings/gil.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <unistd.h>

namespace pccl_python {

namespace {

constexpr auto patience = std::chrono::seconds(3);

std::atomic<unsigned long> main_thread{0};
std::atomic<int> inside{0};         // of all threads
thread_local int own_inside = 0;    // of this thread: a signal handler may enter again
std::atomic<bool> ending{false};    // from now on only the main thread may enter
std::atomic<bool> given_up{false};  // threads that are still inside stay there

[[noreturn]] void sleep_for_ever() {
    for (;;) ::pause();
}

}  // namespace

void set_main_thread(unsigned long ident) { main_thread.store(ident, std::memory_order_relaxed); }

bool on_main_thread() { return PyThread_get_thread_ident() == main_thread.load(std::memory_order_relaxed); }

WithoutGil::WithoutGil() {
    const bool unwanted = ending.load() && !on_main_thread();
    if (!unwanted) {
        inside.fetch_add(1);
        ++own_inside;
    }
    state_ = PyEval_SaveThread();
    if (unwanted) sleep_for_ever();
}

WithoutGil::~WithoutGil() {
    if (given_up.load() && !on_main_thread()) sleep_for_ever();
    PyEval_RestoreThread(state_);
    inside.fetch_sub(1);
    --own_inside;
}

void no_other_is_inside() { inside.store(own_inside); }

void end_of_interpreter() {
    ending.store(true);
    PyThreadState* const state = PyEval_SaveThread();
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (inside.load() != 0 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    given_up.store(true);
    PyEval_RestoreThread(state);
}

}  // namespace pccl_python
