// Standard error that blocks, process exits, forks: no line may stop an I/O thread, and lost lines are counted.
#include "net-real/log.hpp"
#include "net-real/log_callback.hpp"
#include "net-real/log_writer.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace pccl::real;

namespace {

// Redirects standard error to another file.
class Redirected {
public:
    explicit Redirected(int file) : saved_(::dup(2)) { ::dup2(file, 2); }
    ~Redirected() {
        ::dup2(saved_, 2);
        ::close(saved_);
    }
    Redirected(const Redirected&) = delete;
    Redirected& operator=(const Redirected&) = delete;

private:
    int saved_;
};

// A full pipe that nobody reads before drain().
class FullPipe {
public:
    FullPipe() {
        REQUIRE(::pipe2(ends_.data(), O_CLOEXEC) == 0);
        ::fcntl(ends_[1], F_SETFL, O_NONBLOCK);
        const std::array<char, 4096> filling{};
        while (::write(ends_[1], filling.data(), filling.size()) > 0) {
        }
        ::fcntl(ends_[1], F_SETFL, 0);
    }
    ~FullPipe() {
        for (const int end : ends_) ::close(end);
    }
    FullPipe(const FullPipe&) = delete;
    FullPipe& operator=(const FullPipe&) = delete;
    int writing_end() const { return ends_[1]; }
    // Reads until `last` has come.
    std::string drain(const std::string& last) {
        std::string text;
        std::array<char, 4096> bytes;
        while (text.find(last) == std::string::npos) {
            const ssize_t n = ::read(ends_[0], bytes.data(), bytes.size());
            if (n < 0 && errno == EINTR) continue;
            REQUIRE(n > 0);
            text.append(bytes.data(), static_cast<std::size_t>(n));
        }
        return text;
    }

private:
    std::array<int, 2> ends_{};
};

void log_numbered(int first, int count) {
    for (int i = first; i < first + count; ++i) log_line(Severity::warn, "master", "line " + std::to_string(i) + ";");
}

// Two processes write to this file, so each write must append.
int log_file() {
    const int file = ::memfd_create("log", MFD_CLOEXEC);
    REQUIRE(::fcntl(file, F_SETFL, O_APPEND) == 0);
    return file;
}

std::string content(int file) {
    std::string text;
    std::array<char, 65536> bytes;
    for (ssize_t n; (n = ::pread(file, bytes.data(), bytes.size(), static_cast<off_t>(text.size()))) > 0;)
        text.append(bytes.data(), static_cast<std::size_t>(n));
    return text;
}

int count_of(const std::string& text, const std::string& part) {
    int count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
    return count;
}

// Runs `body` in a child of fork() that ends like a program: it calls exit().
void in_child(const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        body();
        std::exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace

TEST_CASE(
    "a thread that must not wait logs into a pipe that nobody reads, and the lines that were dropped are counted") {
    FullPipe pipe;
    {
        const Redirected redirected(pipe.writing_end());
        const LogWriterUse use;
        std::thread([] {
            never_wait_for_log();
            log_numbered(0, 3000);
        }).join();
        // Other threads time out once. After that they do not wait again before a line is written.
        log_numbered(3000, 50);
        std::string text;
        std::atomic<bool> done{false};
        std::thread reader([&] {
            text = pipe.drain("the end");
            done = true;
        });
        for (int i = 0; !done; ++i) {
            flush_log();
            log_line(Severity::warn, "master", "the end " + std::to_string(i));
        }
        reader.join();
        CHECK(text.find("line 0;") != std::string::npos);
        CHECK(text.find("line 1023;") != std::string::npos);
        CHECK(text.find("line 3049;") == std::string::npos);
        CHECK(count_of(text, "log lines were not written: standard error did not take them in time") >= 1);
    }
}

TEST_CASE("a use that ends does not wait for ever for a standard error that blocks") {
    FullPipe pipe;
    {
        const Redirected redirected(pipe.writing_end());
        {
            const LogWriterUse use;
            never_wait_for_log();
            log_numbered(200'000, 10);
        }
        const LogWriterUse again;
        log_numbered(200'010, 1);
        pipe.drain("line 200010;");
    }
}

TEST_CASE("lines that wait are written when a process ends, and a fork takes none of them twice") {
    const int file = log_file();
    {
        const Redirected redirected(file);
        const LogWriterUse use;
        in_child([] {
            log_numbered(300'000, 1);  // without a thread of its own
#ifndef __SANITIZE_THREAD__            // ThreadSanitizer ends a forked child that starts a thread
            static LogWriterUse* const own = new LogWriterUse;
            static_cast<void>(own);
#endif
            never_wait_for_log();
            log_numbered(300'001, 500);
        });
        log_numbered(301'000, 1);
    }
    const std::string text = content(file);
    CHECK(count_of(text, "line ") == 502);
    CHECK(count_of(text, "line 300500;") == 1);
    CHECK(count_of(text, "line 301000;") == 1);
    ::close(file);
}

TEST_CASE("forks at any time: no child meets a lock without an owner") {
    const int file = log_file();
    {
        const Redirected redirected(file);
        const LogWriterUse use;
        std::atomic<bool> done{false};
        std::thread busy([&] {
            never_wait_for_log();
            for (int i = 400'000; !done; ++i) {
                log_numbered(i, 1);
                if (i % 100 == 0) flush_log();
            }
        });
        for (int i = 0; i < 50; ++i) in_child([i] { log_numbered(900'000'000 + i, 1); });
        done = true;
        busy.join();
    }
    const std::string text = content(file);
    for (int i = 0; i < 50; ++i) CHECK(count_of(text, "line " + std::to_string(900'000'000 + i) + ";") == 1);
    ::close(file);
}

TEST_CASE("a log callback that was replaced gets no further line, and one that throws loses its line only") {
    std::atomic<bool> done = false;
    std::atomic<std::uint64_t> given = 0;
    std::thread writer([&] {
        for (; !done; ++given) give_to_callback(Severity::info, "a line");
    });
    // The first line of each callback is not done until others wait behind it. So some wait when the callback is
    // replaced.
    const auto counting = [&](const std::shared_ptr<std::atomic<std::uint64_t>>& lines) {
        return [&, lines](int, const char*) {
            if (++*lines > 1) return;
            for (const std::uint64_t from = given; !done && given < from + 2;) std::this_thread::yield();
        };
    };
    // By shared_ptr, because the callback may outlive the round. The test looks for exactly that.
    std::vector<std::pair<std::shared_ptr<std::atomic<std::uint64_t>>, std::uint64_t>> replaced;
    auto lines = std::make_shared<std::atomic<std::uint64_t>>(0);
    set_log_callback(counting(lines));
    for (int round = 0; round < 10; ++round) {
        while (lines->load() == 0) std::this_thread::yield();
        const auto before = lines;
        lines = std::make_shared<std::atomic<std::uint64_t>>(0);
        set_log_callback(counting(lines));
        replaced.emplace_back(before, before->load());
    }
    while (lines->load() == 0) std::this_thread::yield();
    set_log_callback([](int, const char*) { throw 1; });
    done = true;
    writer.join();
    set_log_callback(nullptr);
    for (const auto& [counter, when_replaced] : replaced) CHECK(counter->load() == when_replaced);
}

TEST_CASE("a callback that sets itself again while it is removed does not stay") {
    // Only a line that nobody takes shows that the callback is not set. Until then each try is one more line.
    const auto wait_until_removed = [] {
        while (give_to_callback(Severity::info, "a try")) std::this_thread::yield();
    };
    std::function<void(int, const char*)> callback;
    callback = [&](int, const char* line) {
        const std::string text = line;
        if (text != "first" && text != "second") return;
        wait_until_removed();
        set_log_callback(callback);
        if (text == "first") give_to_callback(Severity::info, "second");
    };
    set_log_callback(callback);
    REQUIRE(give_to_callback(Severity::info, "first"));
    set_log_callback(nullptr);
    CHECK_FALSE(give_to_callback(Severity::info, "third"));
}

TEST_CASE("a standard error whose reader is gone ends nobody") {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    ::close(ends[0]);
    const Redirected redirected(ends[1]);
    ::close(ends[1]);
    write_to_stderr("nobody reads this\n");
    flush_log();
    CHECK(true);  // SIGPIPE would have ended the process
}
