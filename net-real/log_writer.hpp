// Writes log lines to standard error without making an I/O thread wait for it.
//
// Standard error may block for ever: a pipe that nobody reads, a stopped terminal, a full disk. While an I/O thread runs
// (LogWriterUse), lines go through a bounded queue to a thread that does nothing else. What does not fit is counted, and the
// next line that is written names the number. Without an I/O thread the caller writes by itself.
//
// fork: the child has neither the thread nor the parent's queue; it writes by itself until it has an I/O thread of its own.
// exit: an atexit handler waits for the queue, until nothing was written for `patience`.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace pccl::real {

// While one lives, lines are queued. Made before an I/O thread starts, ended after it was joined. The last one waits for the
// queue like flush_log(). The constructor throws std::system_error when the thread cannot be had.
class LogWriterUse {
public:
    LogWriterUse();
    ~LogWriterUse();
    LogWriterUse(const LogWriterUse&) = delete;
    LogWriterUse& operator=(const LogWriterUse&) = delete;

private:
    std::uint64_t forks_ = 0;  // of the process that made it
};

// From now on lines of the calling thread are queued and it never waits. For threads that others depend on.
void never_wait_for_log();

// `line` with its end. Other threads return when it is written, or when standard error has taken nothing for `patience`;
// after that nobody waits until standard error takes a line again.
void write_to_stderr(std::string line);

// Waits until all lines are written that were queued before the call, or nothing was written for `patience`.
void flush_log();

}  // namespace pccl::real
