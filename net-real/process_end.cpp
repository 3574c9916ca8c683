// What becomes of the loops that use TLS when the process ends and the host has used OpenSSL before this library: OpenSSL
// then frees its tables while their threads run (tls/openssl.hpp).
#include "net-real/event_loop_impl.hpp"
#include "net-real/tls/openssl.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <pthread.h>

namespace pccl::real {

namespace {

// So long the end of the process waits for loops that use TLS. They only have to finish what they are doing.
constexpr auto end_tls_time = std::chrono::seconds(2);

}  // namespace

// The loops whose threads run. Never destroyed: threads may end while the process ends.
struct EventLoop::Impl::Live {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Impl*> loops;
};

EventLoop::Impl::Live& EventLoop::Impl::live() {
    static Live* const the_one = [] {
        auto* made = new Live;
        static Live* for_fork = made;
        ::pthread_atfork([] { for_fork->mutex.lock(); }, [] { for_fork->mutex.unlock(); },
                         [] {
                             new (&for_fork->changed) std::condition_variable;
                             for_fork->loops.clear();  // their threads do not exist in the child
                             for_fork->mutex.unlock();
                         });
        return made;
    }();
    return *the_one;
}

// See make_logger() in log.cpp.
void EventLoop::Impl::make_live() { live(); }

// OpenSSL is about to free its tables: the process ends, and the host has used OpenSSL before this library. As if the
// process had been killed: the machines learn nothing, so no run ends, and other ends see closed connections.
void EventLoop::Impl::end_tls() {
    Live& all = live();
    std::unique_lock lock(all.mutex);
    for (Impl* const loop : all.loops) {
        if (!loop->uses_tls_) continue;
        try {
            loop->post([loop] { loop->finished_ = true; });
        } catch (const std::bad_alloc&) {
            // It goes on. Nothing else can be done.
        }
    }
    if (on_io_thread()) return;  // it would wait for itself
    all.changed.wait_for(lock, end_tls_time, [&] {
        return std::none_of(all.loops.begin(), all.loops.end(), [](const Impl* loop) { return loop->uses_tls_; });
    });
}

void EventLoop::Impl::thread_begins() {
    const std::lock_guard lock(live().mutex);
    live().loops.push_back(this);
}

void EventLoop::Impl::thread_ends() {
    {
        const std::lock_guard lock(live().mutex);
        std::erase(live().loops, this);
    }
    live().changed.notify_all();
}

void EventLoop::Impl::set_tls(TlsUse use) {
    if (use.context != nullptr) {
        tls::before_cleanup(end_tls);
        const std::lock_guard lock(live().mutex);
        uses_tls_ = true;
    }
    tls_ = std::move(use);
    sessions_.clear();
}

}  // namespace pccl::real
