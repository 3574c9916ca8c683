// A launched all-reduce. The first request for its outcome starts to await it. The library then calls back from its own
// thread; the callback never takes the GIL.
#pragma once

#include "include/pccl.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

namespace pccl_python {

class Operation {
public:
    explicit Operation(pcclAsyncReduceOp_t handle) : state_(std::make_shared<State>()), handle_(handle) {}

    // Starts to await it. Idempotent.
    void start();
    bool done() const;
    // Starts, and waits without the GIL for `timeout` seconds at most. False: not done. Raises what a signal handler
    // raises.
    bool wait(std::optional<double> timeout);
    // Status, members, bytes sent and received, cause of a failure. Valid only when done.
    std::tuple<int, std::uint32_t, std::uint64_t, std::uint64_t, std::string> outcome() const;
    // Starts, and passes `token` to next_completed() when the reduction is done (at once if it is done already).
    void notify(std::uint64_t token);

private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        bool done = false;
        std::optional<std::uint64_t> token;
        pcclResult_t result = pcclSuccess;
        pcclReduceInfo_t info{};
        std::string message;
        void finish(pcclResult_t outcome, const pcclReduceInfo_t& reduced, const char* cause);
    };
    std::shared_ptr<State> state_;
    const pcclAsyncReduceOp_t handle_;
    bool started_ = false;  // guarded by the GIL, or by Python's lock of the handle
};

// Blocks without the GIL until an operation with a token is done. nullopt: stop_completions() was called.
std::optional<std::uint64_t> next_completed();
void stop_completions();
// For a child of fork(): no thread waits here, and nothing of the parent is left.
void reset_completions();

}  // namespace pccl_python
