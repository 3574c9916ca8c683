#include "net-real/log_writer.hpp"

#include "net-real/workers.hpp"

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <poll.h>
#include <pthread.h>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>

namespace pccl::real {

namespace {

// Limits of the queue. Further lines are dropped and counted.
constexpr std::size_t lines_max = 1024;
constexpr std::size_t bytes_max = 1u << 20;
constexpr std::chrono::seconds patience{1};

thread_local bool never_waits = false;

// If standard error is a pipe without a reader, write() sends SIGPIPE to the writing thread, which may be the host's.
// The host must not get this signal: it is blocked and, unless one was pending before, removed.
class NoPipeSignal {
public:
    NoPipeSignal() {
        ::sigemptyset(&pipe_);
        ::sigaddset(&pipe_, SIGPIPE);
        sigset_t pending;
        ::sigpending(&pending);
        was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
        ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~NoPipeSignal() {
        constexpr timespec at_once{};
        if (!was_pending_) {
            while (::sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
            }
        }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoPipeSignal(const NoPipeSignal&) = delete;
    NoPipeSignal& operator=(const NoPipeSignal&) = delete;

private:
    sigset_t pipe_, before_;
    bool was_pending_ = false;
};

void write_whole(std::string_view text) {
    const NoPipeSignal quiet;
    std::size_t done = 0;
    while (done < text.size()) {
        // Usually one write, so that lines of several processes do not mix.
        const ssize_t result = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
        if (result >= 0) {
            done += static_cast<std::size_t>(result);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            pollfd ready{STDERR_FILENO, POLLOUT, 0};
            ::poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return;  // standard error is closed or fails: the text is lost
        }
    }
}

struct Writer {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::string> lines;
    std::size_t bytes = 0;      // in `lines`
    std::uint64_t queued = 0;   // lines that were ever queued in this process
    std::uint64_t written = 0;  // how many of them run() has written
    std::uint64_t dropped = 0;  // lines that did not fit since the last report
    std::uint64_t forks = 0;    // how many generations of forks led to this process
    std::size_t users = 0;      // live LogWriterUse objects
    bool stuck = false;         // standard error has taken nothing for `patience`
    bool running = false;       // the thread is in run()
    std::unique_ptr<std::thread> thread;

    void run() {
        name_this_thread("pccl-stderr");
        std::unique_lock lock(mutex);
        for (;;) {
            changed.wait(lock, [this] { return users == 0 || !lines.empty(); });
            if (lines.empty()) break;
            std::string text = std::move(lines.front());
            lines.pop_front();
            bytes -= text.size();
            const std::uint64_t lost = std::exchange(dropped, 0);
            lock.unlock();
            if (lost != 0) {
                char count[128];
                std::snprintf(count, sizeof count,
                              "pccl: %llu log lines were not written: standard error did not take them in time\n",
                              static_cast<unsigned long long>(lost));
                write_whole(count);
            }
            write_whole(text);
            lock.lock();
            ++written;
            stuck = false;
            changed.notify_all();
        }
        running = false;
        changed.notify_all();
    }

    // Waits until `done()`, or until nothing was written for `patience`.
    template <class Done>
    void wait_for_progress(std::unique_lock<std::mutex>& lock, Done&& done) {
        while (!done() && !stuck) {
            const std::uint64_t before = written;
            const bool moved = changed.wait_for(lock, patience, [&] { return done() || stuck || written != before; });
            if (!moved) stuck = true;
        }
    }
    void flush(std::unique_lock<std::mutex>& lock) {
        wait_for_progress(lock, [this, last = queued] { return written >= last || !running; });
    }
};

// Never destroyed: threads of the library may log while the process ends.
Writer& writer() {
    static Writer* const the_one = [] {
        auto* made = new Writer;
        static Writer* for_fork = made;
        ::pthread_atfork([] { for_fork->mutex.lock(); }, [] { for_fork->mutex.unlock(); },
                         [] {
                             // The child has only the thread that forked: no writer to join, and no thread that waits
                             // on `changed`. The parent writes the queued lines.
                             static_cast<void>(for_fork->thread.release());
                             new (&for_fork->changed) std::condition_variable;
                             for_fork->lines.clear();
                             for_fork->bytes = for_fork->users = 0;
                             for_fork->queued = for_fork->written = for_fork->dropped = 0;
                             for_fork->stuck = for_fork->running = false;
                             ++for_fork->forks;
                             never_waits = false;
                             for_fork->mutex.unlock();
                         });
        std::atexit(flush_log);
        return made;
    }();
    return *the_one;
}

// See make_logger() in log.cpp.
[[gnu::constructor]] void make_writer() { writer(); }

}  // namespace

LogWriterUse::LogWriterUse() {
    Writer& w = writer();
    const std::lock_guard lock(w.mutex);
    forks_ = w.forks;
    if (!w.running) {
        if (w.thread != nullptr) w.thread->join();  // returns at once: the thread has left run()
        w.thread.reset();
        const SignalsBlocked blocked;
        w.running = true;
        try {
            w.thread = std::make_unique<std::thread>([&w] { w.run(); });
        } catch (...) {
            w.running = false;
            throw;
        }
    }
    ++w.users;
}

LogWriterUse::~LogWriterUse() {
    Writer& w = writer();
    std::unique_ptr<std::thread> ended;
    {
        std::unique_lock lock(w.mutex);
        if (w.forks != forks_ || --w.users != 0) return;
        w.changed.notify_all();
        w.wait_for_progress(lock, [&w] { return !w.running || w.users != 0; });
        if (!w.running) ended = std::move(w.thread);
    }
    if (ended != nullptr) ended->join();
}

void never_wait_for_log() { never_waits = true; }

void write_to_stderr(std::string line) {
    Writer& w = writer();
    std::unique_lock lock(w.mutex);
    if (!w.running) {
        lock.unlock();
        write_whole(line);
        return;
    }
    if (w.lines.size() >= lines_max || w.bytes + line.size() > bytes_max) {
        ++w.dropped;
        return;
    }
    const std::size_t size = line.size();
    w.lines.push_back(std::move(line));
    w.bytes += size;
    const std::uint64_t mine = ++w.queued;
    w.changed.notify_all();
    if (!never_waits) w.wait_for_progress(lock, [&] { return w.written >= mine || !w.running; });
}

void flush_log() {
    Writer& w = writer();
    std::unique_lock lock(w.mutex);
    w.flush(lock);
}

}  // namespace pccl::real
