#include "net-real/crew.hpp"

#include "core/base/assert.hpp"
#include "net-real/workers.hpp"

#include <exception>

namespace pccl::real {

namespace {

// How often a thread looks again before it sleeps. The next run mostly follows within some microseconds, and waking a
// thread takes longer than that.
constexpr int looks_before_sleep = 2000;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

constexpr std::uint64_t count_mask = 0xFFFF;

}  // namespace

Crew::Crew(std::size_t helpers) {
    const SignalsBlocked blocked;
    try {
        while (helpers_.size() < helpers) helpers_.emplace_back([this] { help(); });
    } catch (const std::exception&) {
        // Fewer threads do the same work.
    }
}

Crew::~Crew() {
    stopping_.store(true);
    ticket_.fetch_add(Ticket{1} << 2 * count_bits);
    ticket_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
}

bool Crew::take_one(Ticket& ticket) {
    for (;;) {
        const std::size_t jobs = ticket >> count_bits & count_mask;
        const std::size_t taken = ticket & count_mask;
        if (taken >= jobs) return false;
        if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire))
            continue;
        // The run does not end before this job is done, so these are its own.
        function_.load(std::memory_order_relaxed)(context_.load(std::memory_order_relaxed), taken);
        if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == jobs) done_.notify_one();
        ticket = ticket_.load(std::memory_order_acquire);
        return true;
    }
}

void Crew::run(std::size_t jobs, Function function, void* context) {
    ASSERT(jobs <= jobs_max);
    if (helpers_.empty() || jobs < 2) {
        for (std::size_t job = 0; job < jobs; ++job) function(context, job);
        return;
    }
    function_.store(function, std::memory_order_relaxed);
    context_.store(context, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    Ticket ticket = ticket_.load(std::memory_order_relaxed);
    ticket = ((ticket >> 2 * count_bits) + 1) << 2 * count_bits | Ticket{jobs} << count_bits;
    ticket_.store(ticket, std::memory_order_release);
    ticket_.notify_all();
    while (take_one(ticket)) {
    }
    for (int looks = 0;;) {
        const std::uint32_t done = done_.load(std::memory_order_acquire);
        if (done == jobs) return;
        if (++looks < looks_before_sleep)
            pause();
        else
            done_.wait(done, std::memory_order_acquire);
    }
}

void Crew::help() {
    name_this_thread("pccl-move");
    use_default_arithmetic();
    Ticket ticket = ticket_.load(std::memory_order_acquire);
    for (;;) {
        if (take_one(ticket)) continue;
        const Ticket idle = ticket;
        // Only now: take_one() may have brought the ticket of the end, and no other comes after it.
        if (stopping_.load(std::memory_order_acquire)) return;
        for (int looks = 0; looks < looks_before_sleep && ticket == idle; ++looks) {
            pause();
            ticket = ticket_.load(std::memory_order_acquire);
        }
        if (ticket != idle) continue;
        ticket_.wait(idle, std::memory_order_acquire);
        ticket = ticket_.load(std::memory_order_acquire);
    }
}

}  // namespace pccl::real
