#include "net-real/workers.hpp"

#include <algorithm>
#include <cfenv>
#include <csignal>
#include <cstring>
#include <exception>
#include <pthread.h>

namespace pccl::real {

SignalsBlocked::SignalsBlocked() {
    sigset_t all, before;
    static_assert(sizeof before <= sizeof saved_);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::memcpy(saved_, &before, sizeof before);
}

SignalsBlocked::~SignalsBlocked() {
    sigset_t before;
    std::memcpy(&before, saved_, sizeof before);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void name_this_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

void use_default_arithmetic() { std::fesetenv(FE_DFL_ENV); }

Workers::~Workers() { finish(); }

bool Workers::submit(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    const std::size_t threads_max = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 4);
    tasks_.push_back(std::move(task));
    if (idle_ < tasks_.size() && threads_.size() < threads_max) {
        const SignalsBlocked blocked;
        try {
            threads_.emplace_back([this] { work(); });
        } catch (const std::exception&) {
            if (threads_.empty()) {
                tasks_.pop_back();
                return false;
            }
        }
    }
    wakeup_.notify_one();
    return true;
}

void Workers::finish() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wakeup_.notify_all();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
}

void Workers::work() {
    name_this_thread("pccl-work");
    use_default_arithmetic();
    std::unique_lock lock(mutex_);
    for (;;) {
        ++idle_;
        wakeup_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
        --idle_;
        if (tasks_.empty()) return;
        auto task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        try {
            task();
            task = nullptr;
        } catch (...) {
            // A task that fails must not affect the other tasks or the process.
        }
        lock.lock();
    }
}

}  // namespace pccl::real
