#include "harness/real/children.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace pccl::harness {

namespace {

constexpr int watched_signals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGPIPE};

volatile std::sig_atomic_t end_signal = 0;

void on_signal(int number) {
    if (number != SIGCHLD && number != SIGPIPE) end_signal = number;
}

}  // namespace

Child& Child::operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(ended_, other.ended_);
    std::swap(status_, other.status_);
    std::swap(input_, other.input_);
    std::swap(output_, other.output_);
    return *this;
}

Child::~Child() {
    if (!running()) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

bool Child::start(Child& child, const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                  const std::string& log, bool piped_output, std::string& error) {
    const auto failed = [&](const char* what) {
        error = std::string(what) + ": " + std::strerror(errno);
        return false;
    };
    int input[2], output[2];
    if (::pipe2(input, O_CLOEXEC) != 0) return failed("pipe");
    Descriptor input_read(input[0]), input_write(input[1]);
    ::fcntl(input[1], F_SETFL, O_NONBLOCK);
    if (::pipe2(output, O_CLOEXEC) != 0) return failed("pipe");
    Descriptor output_read(output[0]), output_write(output[1]);
    ::fcntl(output[0], F_SETFL, O_NONBLOCK);
    const Descriptor log_file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!log_file.is_open()) return failed(log.c_str());

    // Everything the child needs is prepared before fork.
    std::vector<char*> argument_pointers, environment_pointers;
    for (const std::string& argument : arguments) argument_pointers.push_back(const_cast<char*>(argument.c_str()));
    argument_pointers.push_back(nullptr);
    for (const std::string& entry : environment) environment_pointers.push_back(const_cast<char*>(entry.c_str()));
    for (char** entry = environ; *entry != nullptr; ++entry) environment_pointers.push_back(*entry);
    environment_pointers.push_back(nullptr);

    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return failed("fork");
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(127);
        ::setpgid(0, 0);  // Ctrl-C is for the parent, which ends its children
        for (const int number : watched_signals) ::signal(number, SIG_DFL);
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        ::dup2(input_read.number(), STDIN_FILENO);
        ::dup2(piped_output ? output_write.number() : log_file.number(), STDOUT_FILENO);
        ::dup2(log_file.number(), STDERR_FILENO);
        ::execve(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
        ::_exit(127);
    }
    child = Child();
    child.pid_ = pid;
    child.input_ = std::move(input_write);
    child.output_ = std::move(output_read);
    return true;
}

void Child::tell(std::int64_t number) const {
    if (!running() || !input_.is_open()) return;
    // A pipe accepts so few bytes whole. If the write fails, the child no longer reads and will soon be reaped.
    if (::write(input_.number(), &number, sizeof number) < 0) return;
}

void Child::signal(int number) const {
    if (running()) ::kill(pid_, number);
}

bool Child::reap() {
    if (running() && ::waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
    return pid_ > 0 && ended_;
}

std::string Child::how_it_ended() const {
    if (WIFEXITED(status_)) {
        const int code = WEXITSTATUS(status_);
        return "exit code " + std::to_string(code) + (code == 127 ? " (it could not be started)" : "");
    }
    return "signal " + std::to_string(WTERMSIG(status_));
}

SignalWatch::SignalWatch() {
    end_signal = 0;
    sigset_t watched;
    sigemptyset(&watched);
    for (std::size_t i = 0; i < std::size(watched_signals); ++i) {
        sigaddset(&watched, watched_signals[i]);
        struct sigaction action {};
        action.sa_handler = on_signal;
        ::sigaction(watched_signals[i], &action, &previous_[i]);
    }
    ::sigprocmask(SIG_BLOCK, &watched, &before_);
}

SignalWatch::~SignalWatch() {
    for (std::size_t i = 0; i < std::size(watched_signals); ++i)
        ::sigaction(watched_signals[i], &previous_[i], nullptr);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void SignalWatch::wait(std::vector<pollfd>& set, Duration limit) const {
    timespec time{};
    if (limit > 0) {
        time.tv_sec = limit / core::second;
        time.tv_nsec = limit % core::second;
    }
    if (::ppoll(set.data(), set.size(), limit < 0 ? nullptr : &time, &before_) >= 0) return;
    for (pollfd& entry : set) entry.revents = 0;
}

int SignalWatch::asked_to_end() { return end_signal; }

}  // namespace pccl::harness
