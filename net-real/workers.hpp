// A few threads for work that must not hold up the I/O thread: hashes and large copies. They start with the first task.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pccl::real {

// Blocks the calling thread's signals while it starts threads, so that our threads handle no signal of the host.
class SignalsBlocked {
public:
    SignalsBlocked();
    ~SignalsBlocked();
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    alignas(8) unsigned char saved_[128];
};

void name_this_thread(const char* name);  // at most 15 characters
// A thread inherits its rounding mode and its treatment of subnormal numbers from its creator. Members with different
// ones would read different results from the same bytes.
void use_default_arithmetic();

class Workers {
public:
    Workers() = default;
    ~Workers();  // finishes what was submitted
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

    // False: no thread could be started. If it throws (std::bad_alloc), nothing was submitted. An exception of a task
    // is dropped: the task must report its own failure.
    bool submit(std::function<void()> task);
    void finish();

private:
    void work();

    std::mutex mutex_;
    std::condition_variable wakeup_;
    std::deque<std::function<void()>> tasks_;
    std::vector<std::thread> threads_;
    std::size_t idle_ = 0;
    bool stopping_ = false;
};

}  // namespace pccl::real
