// A fork at the first line: what the log needs is made by another thread just then.
#include "net-real/log.hpp"
#include "net-real/log_callback.hpp"
#include "net-real/log_writer.hpp"

#include <catch2/catch.hpp>

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace pccl::real;

namespace {

// Stops a thread at its next allocation, until it may go on.
struct Halt {
    std::mutex mutex;
    std::condition_variable changed;
    bool reached = false;  // the thread is there, or has ended
    bool over = false;

    void reach() {
        const std::lock_guard lock(mutex);
        reached = true;
        changed.notify_all();
    }
    void wait_until_reached() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return reached; });
    }
    void stop_here() {
        reach();
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return over; });
    }
    void end() {
        const std::lock_guard lock(mutex);
        over = true;
        changed.notify_all();
    }
};

thread_local Halt* halt_of_thread = nullptr;

}  // namespace

__attribute__((noinline)) void* operator new(std::size_t bytes) {
    if (Halt* const halt = std::exchange(halt_of_thread, nullptr)) halt->stop_here();
    void* const memory = std::malloc(bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

// Whether a child can use what another thread uses first at the time of the fork.
bool child_returns(const std::function<void()>& use) {
    Halt halt;
    std::thread first([&] {
        halt_of_thread = &halt;
        use();
        halt_of_thread = nullptr;
        halt.reach();
    });
    halt.wait_until_reached();
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(60);  // ends a child that hangs
        use();
        ::_exit(0);
    }
    halt.end();
    first.join();
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

#ifndef __SANITIZE_THREAD__  // it has an allocator of its own, which a fork with threads may find locked
TEST_CASE("a child logs, although another thread was about to log first when it was forked") {
    CHECK(child_returns([] { set_log_threshold(Severity::warn); }));
    CHECK(child_returns([] { flush_log(); }));
    CHECK(child_returns([] { give_to_callback(Severity::info, "a line"); }));
}
#endif
