#include "net-real/log_callback.hpp"

#include "core/base/format.hpp"
#include "net-real/log_writer.hpp"
#include "net-real/workers.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <pthread.h>
#include <thread>
#include <utility>

namespace pccl::real {

namespace {

constexpr std::size_t waiting_max = 1024;

thread_local bool in_callback = false;

struct Delivery {
    struct Line {
        Severity severity = Severity::info;
        std::string text;
        std::shared_ptr<const LogCallback> target;  // the callback that was set when the line was logged
    };
    std::mutex mutex;
    std::condition_variable changed;
    std::shared_ptr<const LogCallback> callback;
    std::deque<Line> lines;
    std::uint64_t accepted = 0;
    std::uint64_t delivered = 0;
    std::uint64_t dropped = 0;
    bool replacing = false;
    bool stopping = false;
    std::unique_ptr<std::thread> thread;

    void run() {
        name_this_thread("pccl-log");
        in_callback = true;  // all calls that the host makes on this thread come from within its callback
        std::unique_lock lock(mutex);
        for (;;) {
            changed.wait(lock, [this] { return stopping || !lines.empty(); });
            if (lines.empty()) return;
            Line line = std::move(lines.front());
            lines.pop_front();
            const std::uint64_t lost = std::exchange(dropped, 0);
            lock.unlock();
            try {
                if (lost != 0) {
                    const std::string text = core::formatted("{} log lines were not delivered: too many waited", lost);
                    (*line.target)(static_cast<int>(Severity::warn), text.c_str());
                }
                (*line.target)(static_cast<int>(line.severity), line.text.c_str());
            } catch (...) {
                // If a callback throws, only its line is lost.
            }
            line.target.reset();
            lock.lock();
            ++delivered;
            changed.notify_all();
        }
    }
};

Delivery& delivery() {
    // Never destroyed: threads of the library may log while the process ends.
    static Delivery* const the_one = [] {
        auto* made = new Delivery;
        static Delivery* for_fork = made;
        ::pthread_atfork([] { for_fork->mutex.lock(); }, [] { for_fork->mutex.unlock(); },
                         [] {
                             // The thread and the threads that waited do not exist in the child.
                             static_cast<void>(for_fork->thread.release());
                             new (&for_fork->changed) std::condition_variable;
                             static_cast<void>(new std::shared_ptr<const LogCallback>(std::move(for_fork->callback)));
                             for_fork->lines.clear();
                             // The parent delivers the line that was under way. Here nobody would ever count it as
                             // delivered.
                             for_fork->accepted = for_fork->delivered = for_fork->dropped = 0;
                             for_fork->replacing = for_fork->stopping = false;
                             in_callback = false;
                             for_fork->mutex.unlock();
                         });
        return made;
    }();
    return *the_one;
}

// See make_logger() in log.cpp.
[[gnu::constructor]] void make_delivery() { delivery(); }

}  // namespace

void set_log_callback(LogCallback given) {
    flush_log();  // earlier lines go where they went before
    const std::shared_ptr<const LogCallback> callback =
        given ? std::make_shared<const LogCallback>(std::move(given)) : nullptr;
    Delivery& d = delivery();
    std::unique_lock lock(d.mutex);
    if (in_callback) {
        // While the thread ends, no callback may be set: nobody would deliver its lines.
        if (!d.stopping) d.callback = callback;
        return;
    }
    d.changed.wait(lock, [&] { return !d.replacing; });
    if (callback != nullptr && d.thread == nullptr) {
        const SignalsBlocked blocked;
        d.thread = std::make_unique<std::thread>([&d] { d.run(); });
    }
    d.replacing = true;
    d.callback = callback;
    const std::uint64_t accepted = d.accepted;
    if (d.thread != nullptr) d.changed.wait(lock, [&] { return d.delivered >= accepted; });
    if (callback == nullptr) d.callback = nullptr;  // a callback that ran meanwhile may have set another
    if (callback == nullptr && d.thread != nullptr) {
        // The thread delivers what is still queued and ends.
        d.stopping = true;
        d.changed.notify_all();
        const std::unique_ptr<std::thread> ending = std::move(d.thread);
        lock.unlock();
        ending->join();
        lock.lock();
        d.stopping = false;
    }
    d.replacing = false;
    d.changed.notify_all();
}

bool give_to_callback(Severity severity, const std::string& line) {
    Delivery& d = delivery();
    const std::lock_guard lock(d.mutex);
    if (d.callback == nullptr) return false;
    if (d.lines.size() >= waiting_max) {
        ++d.dropped;
        return true;
    }
    d.lines.push_back({severity, line, d.callback});
    ++d.accepted;
    d.changed.notify_all();
    return true;
}

}  // namespace pccl::real
