#include "net-real/callback_thread.hpp"

#include "net-real/log.hpp"
#include "net-real/workers.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace pccl::real {

namespace {
thread_local bool in_callback = false;
}

// Shared with the thread, which may outlive its owner: a callback may end the object that it belongs to.
struct CallbackThread::State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> waiting;
    bool stopping = false;
    std::thread thread;

    void run() {
        name_this_thread("pccl-callback");
        in_callback = true;
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

void CallbackThread::push(std::function<void()> callback) {
    {
        const std::lock_guard lock(state_->mutex);
        state_->waiting.push_back(std::move(callback));
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
    if (in_callback)
        ending.detach();
    else
        ending.join();
}

}  // namespace pccl::real
