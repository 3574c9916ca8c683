// Callbacks of programs run on a thread of their own, and finish() waits for them.
#include "net-real/callback_thread.hpp"
#include "net-real/descriptors.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <future>
#include <sys/wait.h>
#include <unistd.h>

using namespace pccl::real;

#ifndef __SANITIZE_THREAD__  // ThreadSanitizer ends a forked child that starts a thread
TEST_CASE("a child that a callback forked waits for callbacks of its own") {
    descriptors::install();
    CallbackThread thread;
    thread.start();
    std::promise<pid_t> forked;
    thread.push([&] {
        const pid_t child = ::fork();
        if (child != 0) {
            forked.set_value(child);
            return;
        }
        std::atomic<int> calls{0};
        CallbackThread own;
        own.start();
        for (int i = 0; i < 100; ++i)
            own.push([&] {
                ::usleep(1000);
                ++calls;
            });
        own.finish();
        ::_exit(calls == 100 ? 0 : 1);
    });
    const pid_t child = forked.get_future().get();
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}
#endif
