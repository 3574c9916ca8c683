// Runs callbacks of the program one after the other, on a thread of its own.
//
// I/O threads must never wait, so they never run code of the program: it may be slow, and it may call the library,
// which waits for the I/O thread. The callback thread starts at the first use. It holds no lock while a callback runs.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <utility>

namespace pccl::real {

class CallbackThread {
public:
    CallbackThread();
    ~CallbackThread();  // finish()
    CallbackThread(const CallbackThread&) = delete;
    CallbackThread& operator=(const CallbackThread&) = delete;

    // Any thread. Does nothing if the thread runs, or after finish(). Throws std::system_error if no thread can be
    // started.
    void start();
    // One callback, with the memory that its place in the queue needs.
    using Prepared = std::list<std::function<void()>>;
    static Prepared prepare(std::function<void()> callback);
    // Any thread, after start(). Does not wait, and needs no memory. After finish() the callback runs only if an
    // earlier one is still running.
    void push(Prepared callback) noexcept;
    void push(std::function<void()> callback) { push(prepare(std::move(callback))); }
    // Returns when all callbacks have run. Within a callback (of any CallbackThread) it cannot wait for that: it
    // returns at once, and the thread ends after the remaining callbacks. Idempotent.
    void finish();

private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace pccl::real
