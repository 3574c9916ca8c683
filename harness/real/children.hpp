// The processes of a real run: started by exec with their output in log files, and gone when their owner goes.
//
// Children die with us, also when we are killed. Nothing here waits: the caller learns of ends through SIGCHLD and reap().
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
    ~Child();  // killed and reaped if it still runs

    // Runs arguments[0]; `environment` ("NAME=value") is added to ours. Standard error goes to `log`, so does standard
    // output unless `piped_output`. False: `error` says why.
    static bool start(Child& child, const std::vector<std::string>& arguments,
                      const std::vector<std::string>& environment, const std::string& log, bool piped_output,
                      std::string& error);

    bool running() const { return pid_ > 0 && !ended_; }
    pid_t pid() const { return pid_; }
    int output() const { return output_.number(); }  // not blocking
    // To its standard input, while that is open.
    void tell(std::int64_t number) const;
    void end_input() { input_.close(); }
    void signal(int number) const;
    // True: it has ended, see status().
    bool reap();
    int status() const { return status_; }  // as of waitpid
    // "exit code 3", "signal 11"
    std::string how_it_ended() const;

private:
    pid_t pid_ = -1;
    bool ended_ = false;
    int status_ = 0;
    Descriptor input_, output_;
};

// While it lives SIGCHLD, SIGINT, SIGTERM and SIGHUP are taken only inside wait(); SIGPIPE is ignored.
class SignalWatch {
public:
    SignalWatch();
    ~SignalWatch();
    SignalWatch(const SignalWatch&) = delete;
    SignalWatch& operator=(const SignalWatch&) = delete;
    // poll() that those signals end. Negative limit: none.
    void wait(std::vector<pollfd>& set, Duration limit) const;
    // The signal that asked us to end, or 0.
    static int asked_to_end();

private:
    sigset_t before_{};
    struct sigaction previous_[5]{};
};

}  // namespace pccl::harness
