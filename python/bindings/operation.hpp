// A launched collective. The first request for its outcome starts to await it. The library then calls back from its own
// thread; the callback never takes the GIL.
//
// A Python signal handler may raise after any call of this extension, and the result of that call is then lost. So an
// Operation is made and its arrays are kept before the launch, and what nobody holds any more is awaited all the same.
#pragma once

#include "include/pccl.h"

#include <nanobind/nanobind.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

namespace pccl_python {

// A member as Python gets it: its name in the run, and pcclMemberInfo_t::count.
using Member = std::pair<nanobind::bytes, std::uint64_t>;

// Needs the GIL.
std::vector<Member> members_of(const pcclMemberInfo_t* members, std::size_t count);

class Operation {
public:
    Operation() : state_(std::make_shared<State>()) {}
    // Awaits what was launched, so that its tag gets free, and done_or_dropped() of its Pending turns true.
    ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    // Call it once, when the launch has succeeded. Needs no GIL. `collective`: it is no all-reduce, so it has members.
    // `closed`: whether the communicator is closed; guarded by the GIL.
    void launched(pcclAsyncReduceOp_t handle, bool collective, std::shared_ptr<const bool> closed) noexcept;
    bool is_launched() const { return closed_ != nullptr; }
    // Starts to await it. Idempotent. In a child of fork() the operation has failed.
    void start();
    bool done() const;
    // Starts, and waits without the GIL for `timeout` seconds at most. False: not done. Raises what a signal handler
    // raises.
    bool wait(std::optional<double> timeout);
    // Status, number of members, bytes sent and received, cause of a failure. Valid only when done.
    std::tuple<int, std::uint32_t, std::uint64_t, std::uint64_t, nanobind::str> outcome() const;
    // Own index, and the members by index; none for an all-reduce. Valid only when done.
    std::tuple<std::uint32_t, std::vector<Member>> members() const;
    // Starts, and passes `token` to next_completed() when the collective is done (at once if it is done already).
    void notify(std::uint64_t token);

private:
    friend class Pending;
    struct State {
        const pid_t process = ::getpid();
        std::mutex mutex;
        std::condition_variable changed;
        bool done = false;
        std::optional<std::uint64_t> token;
        pcclResult_t result = pcclSuccess;
        pcclCollectiveInfo_t info{};
        std::vector<pcclMemberInfo_t> members;
        std::string message;
        // In a child of fork() nobody completes what its parent started, and a thread that does not exist there may
        // have held the lock.
        bool belongs_to_another_process() const { return process != ::getpid(); }
        // `kept`: the share that the callback owns.
        static void finish(void* kept, pcclResult_t outcome, const pcclCollectiveInfo_t& info, const char* cause);
        void finish(pcclResult_t outcome, const pcclCollectiveInfo_t& collected, const char* cause);
    };
    std::shared_ptr<State> state_;
    pcclAsyncReduceOp_t handle_{};
    bool collective_ = false;
    std::shared_ptr<const bool> closed_;  // null: not launched
    bool started_ = false;                // guarded by the GIL
};

// Whether an Operation still uses its arrays. It does not keep the Operation alive.
class Pending {
public:
    explicit Pending(const Operation& operation) : state_(operation.state_) {}
    // True: the operation is done, or it was dropped and never launched. Also true in a child of fork().
    bool done_or_dropped() const;

private:
    std::shared_ptr<Operation::State> state_;
};

// Blocks without the GIL until an operation with a token is done. nullopt: stop_completions() was called.
std::optional<std::uint64_t> next_completed();
void stop_completions();
// For a child of fork(): no thread waits here, and nothing of the parent is left.
void reset_completions();

}  // namespace pccl_python
