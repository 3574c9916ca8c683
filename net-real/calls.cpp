#include "net-real/calls.hpp"

#include <chrono>
#include <new>
#include <vector>

namespace pccl::real {

namespace {

// Without its text if memory is short: the caller waits for the result.
core::Completion copy_of(const core::Completion& completion) {
    try {
        return completion;
    } catch (const std::bad_alloc&) {
        core::Completion bare;
        bare.result = completion.result;
        return bare;
    }
}

}  // namespace

Calls::CallRef Calls::open(core::Command& command, std::optional<core::Command> second, Then then) {
    auto call = std::make_shared<Call>();
    call->second = std::move(second);
    call->then = std::move(then);
    const std::lock_guard lock(mutex_);
    if (failure_) return nullptr;
    const core::Ticket ticket = next_ticket_++;
    std::visit([ticket](auto& any) { any.ticket = ticket; }, command);
    open_.emplace(ticket, call);
    return call;
}

void Calls::forget(core::Ticket ticket) {
    const std::lock_guard lock(mutex_);
    open_.erase(ticket);
}

std::optional<core::Command> Calls::complete(core::Ticket ticket, core::Completion completion) {
    CallRef call;
    {
        const std::lock_guard lock(mutex_);
        auto taken = open_.extract(ticket);
        if (taken.empty()) return std::nullopt;
        call = taken.mapped();
        if (call->second) {
            if (completion.result == core::Result::success) {
                core::Command second = std::move(*call->second);
                call->second.reset();
                const core::Ticket fresh = next_ticket_++;
                std::visit([fresh](auto& any) { any.ticket = fresh; }, second);
                // The call goes back in the same node: without memory it would be in no table, and its caller would
                // wait for ever.
                taken.key() = fresh;
                open_.insert(std::move(taken));
                return second;
            }
            call->first_failed = true;
        }
    }
    finish(*call, std::move(completion));
    return std::nullopt;
}

void Calls::finish(Call& call, core::Completion completion) {
    {
        const std::lock_guard lock(call.mutex);
        call.completion = std::move(completion);
        call.done = true;
    }
    call.done_wakeup.notify_all();
    if (call.then) call.then(call.completion);
}

void Calls::fail_all(const core::Completion& completion) {
    std::unordered_map<core::Ticket, CallRef> waiting;
    {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = copy_of(completion);
        waiting.swap(open_);
    }
    for (auto& [ticket, call] : waiting) {
        // No other thread changes a call that was taken out of the table.
        call->first_failed = call->second.has_value();
        try {
            finish(*call, copy_of(completion));
        } catch (...) {
            // Its continuation failed. The other calls have nothing to do with it.
        }
    }
}

core::Completion Calls::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_.value_or(core::Completion{});
}

bool Calls::wait(Call& call, std::optional<core::Duration> limit) {
    std::unique_lock lock(call.mutex);
    if (!limit) {
        call.done_wakeup.wait(lock, [&] { return call.done; });
        return true;
    }
    return call.done_wakeup.wait_for(lock, std::chrono::nanoseconds(*limit), [&] { return call.done; });
}

}  // namespace pccl::real
