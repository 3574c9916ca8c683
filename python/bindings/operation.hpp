// A launched collective. The first request for its outcome starts to await it. The library then calls back from its own
// thread; the callback never takes the GIL.
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

namespace pccl_python {

// A member as Python gets it: its name in the run, and pcclMemberInfo_t::count.
using Member = std::pair<nanobind::bytes, std::uint64_t>;

// Needs the GIL.
std::vector<Member> members_of(const pcclMemberInfo_t* members, std::size_t count);

class Operation {
public:
    // `collective`: it is no all-reduce, so it has members.
    Operation(pcclAsyncReduceOp_t handle, bool collective)
        : state_(std::make_shared<State>()), handle_(handle), collective_(collective) {}

    // Starts to await it. Idempotent.
    void start();
    bool done() const;
    // Starts, and waits without the GIL for `timeout` seconds at most. False: not done. Raises what a signal handler
    // raises.
    bool wait(std::optional<double> timeout);
    // Status, number of members, bytes sent and received, cause of a failure. Valid only when done.
    std::tuple<int, std::uint32_t, std::uint64_t, std::uint64_t, std::string> outcome() const;
    // Own index, and the members by index; none for an all-reduce. Valid only when done.
    std::tuple<std::uint32_t, std::vector<Member>> members() const;
    // Starts, and passes `token` to next_completed() when the collective is done (at once if it is done already).
    void notify(std::uint64_t token);

private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        bool done = false;
        std::optional<std::uint64_t> token;
        pcclResult_t result = pcclSuccess;
        pcclCollectiveInfo_t info{};
        std::vector<pcclMemberInfo_t> members;
        std::string message;
        // `kept`: the share that the callback owns.
        static void finish(void* kept, pcclResult_t outcome, const pcclCollectiveInfo_t& info, const char* cause);
        void finish(pcclResult_t outcome, const pcclCollectiveInfo_t& collected, const char* cause);
    };
    std::shared_ptr<State> state_;
    const pcclAsyncReduceOp_t handle_;
    const bool collective_;
    bool started_ = false;  // guarded by the GIL, or by Python's lock of the handle
};

// Blocks without the GIL until an operation with a token is done. nullopt: stop_completions() was called.
std::optional<std::uint64_t> next_completed();
void stop_completions();
// For a child of fork(): no thread waits here, and nothing of the parent is left.
void reset_completions();

}  // namespace pccl_python
