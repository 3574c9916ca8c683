// Rounds: payload that several threads move, and small computes, if the loop has helpers (LoopSettings::io_threads).
//
// A round has two halves. In the first, the loop's thread and the helpers do one job for each connection that has
// payload to receive or to send, and one for each compute. A job touches nothing but its connection, or the memory of
// its compute. In the second, the loop's thread alone reports what happened to the machine, in the order of the jobs. So
// the machine, all tables and all other code of the loop see one thread and one order, with and without helpers.
//
// Where there is no payload to move, everything is handled at once. With one job a round wakes nobody.
#include "net-real/event_loop_impl.hpp"

#include "core/base/assert.hpp"

#include <algorithm>
#include <new>
#include <span>

namespace pccl::real {

namespace {

// Ready connections that are looked for before a round begins.
constexpr std::size_t looks_for_ready = 64;
// Smaller computes are done before another thread would have noticed them.
constexpr std::uint64_t compute_bytes_min = 32u << 10;

}  // namespace

// False: to be received at once.
bool EventLoop::Impl::receive_later(const ConnectionRef& connection) {
    if (!crew_ || connection->state != State::open || !connection->link.awaits_payload()) return false;
    if (!connection->receiving) {
        connection->receiving = true;
        receiving_.push_back(connection);
    }
    return true;
}

// False: to be computed at once.
bool EventLoop::Impl::compute_later(const core::Compute& effect, const core::ComputeMemory& memory) {
    if (!crew_ || std::max(effect.a.length, effect.target.length) < compute_bytes_min) return false;
    round_computes_.push_back({effect, memory, {}, false});
    return true;
}

// Whether the output in dirty_ is sent by the next round, which is due anyway or has payload of several connections.
bool EventLoop::Impl::leaves_output_to_round() const {
    if (!crew_) return false;
    if (!receiving_.empty() || !round_computes_.empty()) return true;
    const auto sends_payload = [](const ConnectionRef& connection) { return connection->link.is_sending(); };
    return std::count_if(dirty_.begin(), dirty_.end(), sends_payload) > 1;
}

std::size_t EventLoop::Impl::job_of(const ConnectionRef& connection) {
    if (connection->round_job < round_jobs_used_ && round_jobs_[connection->round_job].connection == connection)
        return connection->round_job;
    if (round_jobs_used_ == round_jobs_.size()) round_jobs_.emplace_back();
    RoundJob& job = round_jobs_[round_jobs_used_];
    job.connection = connection;
    job.receives = job.sends = job.failed = false;
    return connection->round_job = round_jobs_used_++;
}

void EventLoop::Impl::put_round_together() {
    round_jobs_used_ = 0;
    round_receiving_.swap(receiving_);
    round_computing_.swap(round_computes_);
    round_has_run_ = false;
    for (const ConnectionRef& connection : round_receiving_) {
        connection->receiving = false;
        if (connection->state == State::open && connection->link.awaits_payload())
            round_jobs_[job_of(connection)].receives = true;
    }
    for (; !dirty_.empty(); dirty_.pop_front()) {
        const ConnectionRef& connection = dirty_.front();
        connection->dirty = false;
        if (may_send(connection)) round_jobs_[job_of(connection)].sends = true;
    }
}

// Any thread.
void EventLoop::Impl::work_in_round(std::size_t number) noexcept {
    if (number < round_jobs_used_) {
        RoundJob& job = round_jobs_[number];
        try {
            if (job.receives) job.received = job.connection->link.take_payload(receive_budget_bytes);
            if (job.sends) send_from(*job.connection, job.sent);
        } catch (...) {
            job.failed = true;
        }
        return;
    }
    RoundCompute& compute = round_computing_[number - round_jobs_used_];
    try {
        compute.done = run_compute(compute.effect, compute.memory);
    } catch (...) {
        compute.failed = true;
    }
}

void EventLoop::Impl::run_round() {
    for (std::size_t i = 0; i < looks_for_ready && context_.poll_one() > 0; ++i) {
    }
    if (finished_) return;
    begin_turn();
    put_round_together();
    ASSERT(!in_handle_);
    const std::size_t jobs = round_jobs_used_ + round_computing_.size();
    for (std::size_t first = 0; first < jobs; first += Crew::jobs_max) {
        auto part = [&](std::size_t number) noexcept { work_in_round(first + number); };
        crew_->run(std::min(jobs - first, Crew::jobs_max), part);
    }
    round_has_run_ = true;
    finish_round();
    finish_turn();
}

// What was sent is reported before anything that was received: an answer to it may have come in the same round.
void EventLoop::Impl::finish_round() {
    const std::span<RoundJob> jobs(round_jobs_.data(), round_jobs_used_);
    if (std::any_of(jobs.begin(), jobs.end(), [](const RoundJob& job) { return job.failed; })) throw std::bad_alloc();
    for (RoundJob& job : jobs) {
        if (job.sends) sent_from(job.connection, job.sent);
    }
    for (RoundCompute& compute : round_computing_) {
        if (compute.failed) throw std::bad_alloc();
        pending_.push_back(std::move(compute.done));
    }
    round_computing_.clear();
    handle_pending();
    for (const RoundJob& job : jobs) {
        if (job.receives) received_in_round(job.connection, job.received);
    }
    // Those whose payload was not wanted any more when the round began.
    for (const ConnectionRef& connection : round_receiving_) {
        const bool had_job = connection->round_job < jobs.size() && jobs[connection->round_job].receives &&
                             jobs[connection->round_job].connection == connection;
        if (!had_job && connection->state != State::closed) on_readable(connection);
    }
    round_receiving_.clear();
    for (RoundJob& job : jobs) job.connection.reset();
}

void EventLoop::Impl::received_in_round(const ConnectionRef& connection, const Link::Outcome& outcome) {
    if (connection->state == State::closed) return;
    bool more = false;
    if (outcome.progress != Link::Progress::more)
        received(connection, outcome);
    else if (connection->state == State::open && !connection->link.is_input_closed())
        more = receive_from(connection, Link::Until::payload, outcome);
    if (!more || !receive_later(connection)) arm_read(connection);
}

}  // namespace pccl::real
