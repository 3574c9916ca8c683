// Threads that share the work of one moment with their caller (fork and join): run() returns when all of it is done.
//
// A job must be short and must not wait, because run() has no deadline of its own.
//
// So what the jobs touch needs no locks, as long as two jobs of one run() do not touch the same. A helper that sleeps, or
// that the system does not let run, holds up nothing: the caller does what nobody else has begun.
#pragma once

#include "core/base/ids.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace pccl::real {

class Crew {
public:
    static constexpr std::size_t jobs_max = 4096;  // of one run()

    // Tries to start so many threads beside the caller's; size() says how many there are.
    explicit Crew(std::size_t helpers);
    ~Crew();
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    std::size_t size() const { return helpers_.size(); }
    // Calls work(0) … work(jobs - 1), each once, on any of the threads. One caller at a time. `work` must not throw.
    template <typename Work>
    void run(std::size_t jobs, Work& work) {
        run(jobs, [](void* context, std::size_t job) noexcept { (*static_cast<Work*>(context))(job); }, &work);
    }

private:
    using Function = void (*)(void* context, std::size_t job) noexcept;
    // What is to be done, in one word: a number of the run in the high half, then how many jobs it has, then how many
    // of them were taken. It changes with each run, so a helper that is late takes nothing of a later one by mistake.
    using Ticket = std::uint64_t;
    static constexpr unsigned count_bits = 16;

    void run(std::size_t jobs, Function function, void* context);
    void help();
    bool take_one(Ticket& ticket);  // false: all are taken; `ticket` is the present one

    std::atomic<Ticket> ticket_{0};
    std::atomic<Function> function_{nullptr};
    std::atomic<void*> context_{nullptr};
    std::atomic<std::uint32_t> done_{0};
    std::atomic<bool> stopping_{false};
    std::vector<std::thread> helpers_;
};

}  // namespace pccl::real
