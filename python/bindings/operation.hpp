// A launched all-reduce. It is awaited from the moment somebody asks for its outcome; the library then calls back from its
// own thread, which never takes the GIL.
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

    // Begins to await it. Idempotent.
    void start();
    bool done() const;
    // Starts, waits without the GIL for at most so many seconds. False: not yet. Raises what a signal handler raises.
    bool wait(std::optional<double> timeout);
    // Status, members, bytes sent and received, cause of a failure. Only when done.
    std::tuple<int, std::uint32_t, std::uint64_t, std::uint64_t, std::string> outcome() const;
    // Starts, and gives `token` to next_completed() when it is done (at once if it is).
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
    bool started_ = false;  // with the GIL, or under Python's lock of the handle
};

// Sleeps without the GIL until an operation that was to be notified is done; none: stop_completions() was called.
std::optional<std::uint64_t> next_completed();
void stop_completions();
// In a child of fork(): nobody waits here, and nothing of the parent is left.
void reset_completions();

}  // namespace pccl_python
