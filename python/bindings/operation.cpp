#include "bindings/operation.hpp"

#include "bindings/waiting.hpp"

#include <algorithm>
#include <chrono>
#include <new>

namespace nb = nanobind;

namespace pccl_python {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto slice = std::chrono::milliseconds(50);

struct Completions {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::uint64_t> tokens;
    bool stopping = false;
};

// Never destroyed: the library's threads may still complete something while the process ends.
Completions& completions() {
    static Completions* const the_one = new Completions;
    return *the_one;
}

void completed(std::uint64_t token) {
    Completions& all = completions();
    const std::lock_guard lock(all.mutex);
    all.tokens.push_back(token);
    all.changed.notify_one();
}

}  // namespace

void Operation::State::finish(void* kept, pcclResult_t outcome, const pcclCollectiveInfo_t& info, const char* cause) {
    const std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(kept));
    (*state)->finish(outcome, info, cause);
}

void Operation::State::finish(pcclResult_t outcome, const pcclCollectiveInfo_t& collected, const char* cause) {
    std::optional<std::uint64_t> told;
    {
        const std::lock_guard lock(mutex);
        done = true;
        result = outcome;
        info = collected;
        if (info.members != nullptr) members.assign(info.members, info.members + info.members_capacity);
        info.members = nullptr;
        message = cause;
        told = token;
    }
    changed.notify_all();
    if (told) completed(*told);
}

Operation::~Operation() {
    if (!is_launched()) {
        if (state_->belongs_to_another_process()) return;
        const std::lock_guard lock(state_->mutex);
        state_->done = true;
        return;
    }
    try {
        start();
    } catch (...) {  // no memory: the arrays stay until the communicator is closed
    }
}

void Operation::launched(pcclAsyncReduceOp_t handle, bool collective, std::shared_ptr<const bool> closed) noexcept {
    handle_ = handle;
    collective_ = collective;
    closed_ = std::move(closed);
}

void Operation::start() {
    if (state_->belongs_to_another_process()) {
        auto own = std::make_shared<State>();
        own->finish(pcclInvalidUsage, {}, "this collective belongs to the process that called fork");
        // Never destroyed: threads of the parent may have waited in it.
        static_cast<void>(new std::shared_ptr<State>(std::move(state_)));
        state_ = std::move(own);
        started_ = true;
        return;
    }
    if (started_) return;
    if (*closed_) {
        started_ = true;
        state_->finish(pcclInvalidUsage, {}, "the communicator was closed before the outcome was asked for");
        return;
    }
    auto* kept = new std::shared_ptr<State>(state_);  // the callback's own share
    started_ = true;
    const pcclResult_t result =
        collective_ ? pcclAwaitCollectiveThen(
                          &handle_,
                          [](pcclResult_t outcome, const pcclCollectiveInfo_t* info, const char* message, void* user) {
                              State::finish(user, outcome, *info, message);
                          },
                          kept)
                    : pcclAwaitAsyncReduceThen(
                          &handle_,
                          [](pcclResult_t outcome, const pcclReduceInfo_t* info, const char* message, void* user) {
                              pcclCollectiveInfo_t reduced{};
                              reduced.local_world_size = info->local_world_size;
                              reduced.tx_bytes = info->tx_bytes;
                              reduced.rx_bytes = info->rx_bytes;
                              State::finish(user, outcome, reduced, message);
                          },
                          kept);
    if (result == pcclSuccess) return;
    delete kept;
    state_->finish(result, {}, pcclGetLastErrorMessage(nullptr));
}

bool Operation::done() const {
    if (state_->belongs_to_another_process()) return true;
    const std::lock_guard lock(state_->mutex);
    return state_->done;
}

bool Pending::done_or_dropped() const {
    if (state_->belongs_to_another_process()) return true;
    const std::lock_guard lock(state_->mutex);
    return state_->done;
}

bool Operation::wait(std::optional<double> timeout) {
    start();
    const bool signals = on_main_thread();
    // Clamped to a week, so that the deadline does not overflow the clock.
    const double seconds = std::clamp(timeout.value_or(604800.0), 0.0, 604800.0);
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    State& state = *state_;
    Interruption interruption;
    bool done = false;
    {
        const WithoutGil released;
        std::unique_lock lock(state.mutex);
        for (;;) {
            const auto now = Clock::now();
            const auto until = !timeout ? now + slice : signals ? std::min(deadline, now + slice) : deadline;
            done = state.changed.wait_until(lock, until, [&] { return state.done; });
            if (done || (timeout && Clock::now() >= deadline)) break;
            if (!signals) continue;
            lock.unlock();
            if (interruption.check()) break;
            done = state.belongs_to_another_process();  // the handler may have forked
            if (done) break;
            lock.lock();
        }
    }
    interruption.raise();
    if (state.belongs_to_another_process()) start();
    return done;
}

std::tuple<int, std::uint32_t, std::uint64_t, std::uint64_t, nb::str> Operation::outcome() const {
    std::unique_lock lock(state_->mutex);
    const auto result = static_cast<int>(state_->result);
    const std::uint32_t world = state_->info.local_world_size;
    const std::uint64_t sent = state_->info.tx_bytes, received = state_->info.rx_bytes;
    const std::string message = state_->message;
    lock.unlock();  // an object that Python makes may run any finalizer
    return {result, world, sent, received, text_of(message)};
}

std::tuple<std::uint32_t, std::vector<Member>> Operation::members() const {
    const std::lock_guard lock(state_->mutex);
    return {state_->info.local_index, members_of(state_->members.data(), state_->members.size())};
}

std::vector<Member> members_of(const pcclMemberInfo_t* members, std::size_t count) {
    std::vector<Member> all;
    all.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
        all.emplace_back(nb::bytes(members[i].peer.bytes, sizeof members[i].peer.bytes), members[i].count);
    return all;
}

void Operation::notify(std::uint64_t token) {
    start();
    bool done = false;
    {
        const std::lock_guard lock(state_->mutex);
        done = state_->done;
        state_->token = token;
    }
    if (done) completed(token);
}

std::optional<std::uint64_t> next_completed() {
    const WithoutGil released;
    Completions& all = completions();
    std::unique_lock lock(all.mutex);
    all.changed.wait(lock, [&] { return all.stopping || !all.tokens.empty(); });
    if (all.tokens.empty()) return std::nullopt;
    const std::uint64_t token = all.tokens.front();
    all.tokens.pop_front();
    return token;
}

void stop_completions() {
    Completions& all = completions();
    const std::lock_guard lock(all.mutex);
    all.stopping = true;
    all.changed.notify_all();
}

void reset_completions() { new (&completions()) Completions; }

}  // namespace pccl_python
