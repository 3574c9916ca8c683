// The calls of application threads that wait until their ticket is completed. Thread-safe.
#pragma once

#include "core/events.hpp"

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace pccl::real {

class Calls {
public:
    using Then = std::function<void(const core::Completion&)>;
    struct Call {
        std::mutex mutex;
        std::condition_variable done_wakeup;
        bool done = false;
        bool first_failed = false;
        std::optional<core::Command> second;  // given to the machine after the first succeeded
        core::Completion completion;
        // Instead of a waiting thread: called once, without a lock, by the thread that completes the call.
        Then then;
    };
    using CallRef = std::shared_ptr<Call>;

    // Puts a fresh ticket into `command`. Null after fail_all().
    CallRef open(core::Command& command, std::optional<core::Command> second, Then then = {});
    // For a command that never reached the machine.
    void forget(core::Ticket ticket);
    // Wakes the caller. If the call has a second command and the first succeeded, returns it with a fresh ticket
    // instead.
    std::optional<core::Command> complete(core::Ticket ticket, core::Completion completion);
    // Every waiting call and every later one fails with this.
    void fail_all(const core::Completion& completion);
    core::Completion failure() const;
    // False: the call was not completed in time. Its completion is dropped when it comes.
    static bool wait(Call& call, std::optional<core::Duration> limit);

private:
    static void finish(Call& call, core::Completion completion);

    mutable std::mutex mutex_;
    core::Ticket next_ticket_ = 1;
    std::unordered_map<core::Ticket, CallRef> open_;
    std::optional<core::Completion> failure_;
};

}  // namespace pccl::real
