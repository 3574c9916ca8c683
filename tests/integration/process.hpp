// Child processes of the tests. They have pipes and an environment of their own, exchange lines, and never outlive the
// test.
//
// Each wait is for a line or for the end of a process. Its limit is a hang guard, far above anything that a loaded
// machine needs. It is not a measurement.
#pragma once

#include "harness/real/child_process.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace integration {

namespace harness = pccl::harness;

inline constexpr std::chrono::seconds hang_guard{60};

using Environment = std::map<std::string, std::string>;

class Process {
public:
    // Standard error goes to a file of its own, see log_text(). PCCL_PORT_RANGE is 0 unless `environment` sets it.
    Process(const std::vector<std::string>& command, const Environment& environment = {});
    void send(const std::string& line) { child_.write_line(line); }  // if it is gone, the next read reports that
    // The next line of standard output without its line end; nothing at the end of the output. Throws when the guard
    // expires.
    std::optional<std::string> read_line(std::chrono::milliseconds guard = hang_guard);
    // Like read_line, but throws if there is no line.
    std::string expect_line(std::chrono::milliseconds guard = hang_guard);
    // A line that is there already or comes within `patience`. Otherwise nothing; it does not throw.
    std::optional<std::string> poll_line(std::chrono::milliseconds patience) { return child_.read_line(patience); }

    void signal(int number) { child_.signal(number); }
    // Exit code, or -number of the signal that ended it. Throws when the guard expires.
    int wait(std::chrono::milliseconds guard = hang_guard);
    // Does not block.
    bool has_ended() { return child_.reap(); }
    pid_t pid() const { return child_.pid(); }
    // What the process has written to standard error so far.
    std::string log_text() const;
    // Whether it writes this to standard error, now or later. Lines of I/O threads come a little after the event.
    bool says(const std::string& text, std::chrono::milliseconds guard = hang_guard);
    // Its listening TCP ports.
    std::vector<std::uint16_t> listening_ports() const;
    int open_descriptors() const;

private:
    std::string name_;
    harness::Descriptor errors_;
    harness::ChildProcess child_;
};

// build/bin/pccl-master on 127.0.0.1. It uses a free port unless one is given (that of a master that was killed).
class MasterProcess : public Process {
public:
    explicit MasterProcess(const Environment& environment = {}, std::uint16_t port = 0,
                           const std::vector<std::string>& options = {});
    std::uint16_t port() const { return port_; }

private:
    std::uint16_t port_ = 0;
};

std::vector<std::string> words(const std::string& line);

}  // namespace integration
