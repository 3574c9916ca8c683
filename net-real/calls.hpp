// The calls of application threads that sleep until a ticket is completed. Thread-safe.
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
        std::optional<core::Command> second;  // given to the machine when the first has succeeded
        core::Completion completion;
        // Instead of a sleeper: called once, without a lock, by the thread that completes it.
        Then then;
    };
    using CallRef = std::shared_ptr<Call>;

    // A fresh ticket in `command`; null after fail_all().
    CallRef open(core::Command& command, std::optional<core::Command> second, Then then = {});
    // The command never reached the machine.
    void forget(core::Ticket ticket);
    // Wakes the call of the ticket; or, when it has a second command, gives that back with a fresh ticket.
    std::optional<core::Command> complete(core::Ticket ticket, core::Completion completion);
    // Every call that waits and every later one fails with this.
    void fail_all(const core::Completion& completion);
    core::Completion failure() const;
    // False: it did not come in time; its completion is dropped when it comes.
    static bool wait(Call& call, std::optional<core::Duration> limit);

private:
    static void finish(Call& call, core::Completion completion);

    mutable std::mutex mutex_;
    core::Ticket next_ticket_ = 1;
    std::unordered_map<core::Ticket, CallRef> open_;
    std::optional<core::Completion> failure_;
};

}  // namespace pccl::real
