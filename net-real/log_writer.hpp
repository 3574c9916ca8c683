// Writes log lines to standard error without making an I/O thread wait for it.
//
// Standard error may block for ever: a pipe that nobody reads, a stopped terminal, a full disk. While an I/O thread
// runs (LogWriterUse), lines go through a bounded queue to a thread that only writes. Lines that do not fit are
// counted, and their number is written before the next line. Without an I/O thread the caller writes the line itself.
//
// fork: the child has neither the thread nor the parent's queue. It writes directly until it has its own I/O thread.
// exit: an atexit handler waits until the queue is written, or until nothing was written for `patience`.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace pccl::real {

// While one lives, lines are queued. Make it before an I/O thread starts, and destroy it after that thread was joined.
// The last one waits for the queue like flush_log(). The constructor throws std::system_error if no thread can be
// started.
class LogWriterUse {
public:
    LogWriterUse();
    ~LogWriterUse();
    LogWriterUse(const LogWriterUse&) = delete;
    LogWriterUse& operator=(const LogWriterUse&) = delete;

private:
    std::uint64_t forks_ = 0;  // number of forks when it was made
};

// From now on lines of the calling thread are queued and it never waits. For threads that others depend on.
void never_wait_for_log();

// `line` includes its line end. Other threads return when it is written, or when standard error has taken nothing for
// `patience`. After that no thread waits until standard error takes a line again.
void write_to_stderr(std::string line);

// Waits until all lines that were queued before the call are written, or nothing was written for `patience`.
void flush_log();

}  // namespace pccl::real
