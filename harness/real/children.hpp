// Child processes of a real run: they are started by exec, write to log files, and are killed with their owner.
//
// Children die with this process, even if it is killed. Only the destructor waits for an exit: the caller is notified
// by SIGCHLD and then calls reap().
#pragma once

#include "harness/real/proxy.hpp"

#include <csignal>
#include <string>
#include <sys/types.h>
#include <vector>

namespace pccl::harness {

class Child {
public:
    Child() = default;
    Child(Child&& other) noexcept { *this = std::move(other); }
    Child& operator=(Child&& other) noexcept;
    ~Child();  // kills and reaps it if it still runs

    // Runs arguments[0]. `environment` ("NAME=value") is added to the environment of this process. Standard error goes
    // to `log`, and so does standard output unless `piped_output` is set. False: see `error`.
    static bool start(Child& child, const std::vector<std::string>& arguments,
                      const std::vector<std::string>& environment, const std::string& log, bool piped_output,
                      std::string& error);

    bool running() const { return pid_ > 0 && !ended_; }
    pid_t pid() const { return pid_; }
    int output() const { return output_.number(); }  // not blocking
    // Writes to its standard input, if that is still open.
    void tell(std::int64_t number) const;
    void end_input() { input_.close(); }
    void signal(int number) const;
    // True: the child has ended, see status().
    bool reap();
    int status() const { return status_; }  // as returned by waitpid
    // "exit code 3", "signal 11"
    std::string how_it_ended() const;

private:
    pid_t pid_ = -1;
    bool ended_ = false;
    int status_ = 0;
    Descriptor input_, output_;
};

// While this object exists, SIGCHLD, SIGINT, SIGTERM and SIGHUP are delivered only inside wait(). SIGPIPE has no
// effect.
class SignalWatch {
public:
    SignalWatch();
    ~SignalWatch();
    SignalWatch(const SignalWatch&) = delete;
    SignalWatch& operator=(const SignalWatch&) = delete;
    // poll() that returns early on those signals. A negative limit means no limit.
    void wait(std::vector<pollfd>& set, Duration limit) const;
    // The signal that asked this process to end, or 0.
    static int asked_to_end();

private:
    sigset_t before_{};
    struct sigaction previous_[5]{};
};

}  // namespace pccl::harness
