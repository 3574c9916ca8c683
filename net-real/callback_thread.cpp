#include "net-real/callback_thread.hpp"

#include "net-real/descriptors.hpp"
#include "net-real/log.hpp"
#include "net-real/workers.hpp"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

namespace pccl::real {

namespace {
// The process whose callbacks this thread runs, as its count of forks plus 1; 0: none. In a child that a callback
// forked the number no longer matches, so there it counts as none.
thread_local std::uint64_t callbacks_of = 0;
std::uint64_t this_process() { return descriptors::fork_generation() + 1; }
}  // namespace

// Shared with the thread, which may outlive its owner: a callback may destroy the object that owns the CallbackThread.
struct CallbackThread::State {
    std::mutex mutex;
    std::condition_variable changed;
    Prepared waiting;
    bool stopping = false;
    std::thread thread;

    void run() {
        name_this_thread("pccl-callback");
        callbacks_of = this_process();
        std::unique_lock lock(mutex);
        for (;;) {
            changed.wait(lock, [this] { return stopping || !waiting.empty(); });
            if (waiting.empty()) return;
            {
                const std::function<void()> callback = std::move(waiting.front());
                waiting.pop_front();
                lock.unlock();
                try {
                    callback();
                } catch (...) {
                    log_line(Severity::err, "pccl", "a callback of the program threw an exception; it must return");
                }
            }
            lock.lock();
        }
    }
};

CallbackThread::CallbackThread() : state_(std::make_shared<State>()) {}

CallbackThread::~CallbackThread() { finish(); }

void CallbackThread::start() {
    const std::lock_guard lock(state_->mutex);
    if (state_->stopping || state_->thread.joinable()) return;
    const SignalsBlocked blocked;
    state_->thread = std::thread([state = state_] { state->run(); });
}

CallbackThread::Prepared CallbackThread::prepare(std::function<void()> callback) {
    Prepared prepared;
    prepared.push_back(std::move(callback));
    return prepared;
}

void CallbackThread::push(Prepared callback) noexcept {
    {
        const std::lock_guard lock(state_->mutex);
        state_->waiting.splice(state_->waiting.end(), callback);
    }
    state_->changed.notify_all();
}

void CallbackThread::finish() {
    std::thread ending;
    {
        const std::lock_guard lock(state_->mutex);
        state_->stopping = true;
        ending = std::move(state_->thread);
    }
    state_->changed.notify_all();
    if (!ending.joinable()) return;
    if (callbacks_of == this_process())
        ending.detach();
    else
        ending.join();
}

}  // namespace pccl::real
