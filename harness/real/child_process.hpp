// A child process: started by exec, told and read in lines, always killed and reaped.
//
// It dies with the thread that started it, even if that is killed, and its signals have their default effects. Ctrl-C
// reaches only the parent. Not thread-safe.
#pragma once

#include "harness/real/descriptor.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace pccl::harness {

class ChildProcess {
public:
    struct Options {
        std::vector<std::string> environment;  // "NAME=value": added to ours, or instead of ours
        int errors = -1;                       // where standard error goes; -1: to ours
        bool output_to_errors = false;         // standard output goes to `errors`, too
    };

    ChildProcess() = default;
    ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }
    ChildProcess& operator=(ChildProcess&& other) noexcept;
    ~ChildProcess() { kill_and_reap(); }

    // Runs `arguments[0]`; if there is no such program, the child ends with exit code 127. Throws std::system_error.
    static ChildProcess start(const std::vector<std::string>& arguments, const Options& options);

    pid_t pid() const { return pid_; }
    // Started and not reaped.
    bool running() const { return pid_ > 0 && !status_; }

    // To its standard input. Blocks while that is full. False if the child does not read any more.
    bool write(std::string_view bytes);
    bool write_line(const std::string& line) { return write(line + "\n"); }
    void end_input() { input_.close(); }

    // Its standard output, not blocking; -1 after its end.
    int output() const { return output_.number(); }
    // The next line, without its end. Nothing if none comes within `patience` or the output ends.
    std::optional<std::string> read_line(std::chrono::milliseconds patience);

    void signal(int number) const;
    // Does not block. True: the child has ended.
    bool reap();
    // Waits for its end. Returns its status as waitpid does, or nothing if it does not end within `patience`.
    std::optional<int> wait(std::chrono::milliseconds patience);
    std::optional<int> status() const { return status_; }
    // "exit code 3", "signal 11"
    std::string how_it_ended() const;
    void kill_and_reap();

private:
    void read_output();

    pid_t pid_ = -1;
    Descriptor input_, output_, end_;  // `end_` is readable when the child has ended
    std::string received_;
    std::optional<int> status_;
};

// Directory of the running program, with a slash at the end.
std::string program_directory();

}  // namespace pccl::harness
