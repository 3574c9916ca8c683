// Runs callbacks of the program, one after the other, on a thread of its own.
//
// I/O threads wait for nobody, so they never run code of the program: it may be slow, and it may call the library, which waits
// for the I/O thread. The thread is started at the first use. It holds no lock while a callback runs.
#pragma once

#include <functional>
#include <memory>

namespace pccl::real {

class CallbackThread {
public:
    CallbackThread();
    ~CallbackThread();  // finish()
    CallbackThread(const CallbackThread&) = delete;
    CallbackThread& operator=(const CallbackThread&) = delete;

    // Any thread. Throws std::system_error when the thread cannot be had. Does nothing when it runs or after finish().
    void start();
    // Any thread, after start(); does not wait. After finish() the callback still runs if one that came before does.
    void push(std::function<void()> callback);
    // Returns when all callbacks have run. Within a callback (of any CallbackThread) it cannot wait for that: it returns at
    // once, and the thread ends after the rest. Idempotent.
    void finish();

private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace pccl::real
