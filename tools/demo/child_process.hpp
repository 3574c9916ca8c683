// A child process that communicates in lines: started by exec, read with deadlines, always reaped.
//
// Used by the demo and by pccl-bench. Children die with their parent, even if it is killed, and on Ctrl-C once
// kill_children_on_interrupt() was called. For single-threaded parents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace pccl::tools {

class ChildProcess {
public:
    ChildProcess() = default;
    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;
    ChildProcess(ChildProcess&& other) noexcept;
    ChildProcess& operator=(ChildProcess&& other) noexcept;
    ~ChildProcess();  // kills and reaps if still running

    // Runs `arguments[0]`, with its standard input and output connected to this process. `environment` ("NAME=value")
    // is added to ours. Throws std::system_error if the process cannot be started.
    static ChildProcess start(const std::vector<std::string>& arguments, const std::vector<std::string>& environment);

    pid_t pid() const { return pid_; }
    int output_descriptor() const { return output_; }  // readable when lines arrived; -1 after end of file
    bool running() const { return pid_ > 0 && !status_; }

    bool write_line(const std::string& line);
    // Next complete line of its output. Nothing if none arrived in time or the output has ended.
    std::optional<std::string> read_line(int timeout_ms);
    void send_signal(int signal_number);
    // Waits for its end. Returns its wait status, or nothing when the time is over.
    std::optional<int> wait(int timeout_ms);
    void kill_and_reap();

private:
    pid_t pid_ = -1;
    int input_ = -1;
    int output_ = -1;
    std::string received_;
    std::optional<int> status_;
};

// SIGINT, SIGTERM and SIGHUP end all children and then this process with status 130.
void kill_children_on_interrupt();

// Directory of the running program, with a slash at the end.
std::string program_directory();

}  // namespace pccl::tools
