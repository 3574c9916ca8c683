#include "harness/real/child_process.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>

namespace pccl::harness {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

milliseconds left_until(Clock::time_point deadline) {
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(deadline - Clock::now()));
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
    return result;
}

}  // namespace

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
    if (this == &other) return *this;
    kill_and_reap();
    pid_ = std::exchange(other.pid_, -1);
    input_ = std::move(other.input_);
    output_ = std::move(other.output_);
    end_ = std::move(other.end_);
    received_ = std::move(other.received_);
    status_ = std::exchange(other.status_, std::nullopt);
    return *this;
}

ChildProcess ChildProcess::start(const std::vector<std::string>& arguments, const Options& options) {
    // A socket, because a write to a pipe without a reader raises SIGPIPE.
    int input[2], output[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0) fail("socketpair");
    Descriptor input_read(input[0]), input_write(input[1]);
    if (::pipe2(output, O_CLOEXEC) != 0) fail("pipe");
    Descriptor output_read(output[0]), output_write(output[1]);
    ::fcntl(output_read.number(), F_SETFL, O_NONBLOCK);

    // Everything that the child needs is prepared before fork.
    std::vector<char*> argument_pointers = pointers(arguments);
    argument_pointers.push_back(nullptr);
    // Of two entries with the same name, programs use the first one.
    std::vector<char*> environment_pointers = pointers(options.environment);
    for (char** entry = environ; *entry != nullptr; ++entry) environment_pointers.push_back(*entry);
    environment_pointers.push_back(nullptr);
    const int errors = options.errors < 0 ? STDERR_FILENO : options.errors;

    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(127);
        ::setpgid(0, 0);
        for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        ::dup2(input_read.number(), STDIN_FILENO);
        ::dup2(errors, STDERR_FILENO);
        ::dup2(options.output_to_errors ? errors : output_write.number(), STDOUT_FILENO);
        ::execve(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
        ::_exit(127);
    }
    ChildProcess child;
    child.pid_ = pid;
    child.input_ = std::move(input_write);
    child.output_ = std::move(output_read);
    child.end_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    return child;
}

bool ChildProcess::write(std::string_view bytes) {
    while (input_.is_open() && !bytes.empty()) {
        const ssize_t count = ::send(input_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count > 0)
            bytes.remove_prefix(static_cast<std::size_t>(count));
        else if (count == 0 || errno != EINTR)
            return false;
    }
    return bytes.empty();
}

void ChildProcess::read_output() {
    char bytes[4096];
    const ssize_t count = ::read(output_.number(), bytes, sizeof bytes);
    if (count > 0)
        received_.append(bytes, static_cast<std::size_t>(count));
    else if (count == 0 || (errno != EAGAIN && errno != EINTR))
        output_.close();
}

std::optional<std::string> ChildProcess::read_line(milliseconds patience) {
    const Clock::time_point deadline = Clock::now() + patience;
    for (;;) {
        if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
            std::string line = received_.substr(0, end);
            received_.erase(0, end + 1);
            return line;
        }
        if (!output_.is_open()) return std::nullopt;
        pollfd readable{output_.number(), POLLIN, 0};
        const milliseconds left = left_until(deadline);
        if (::poll(&readable, 1, static_cast<int>(left.count())) > 0)
            read_output();
        else if (left.count() == 0)
            return std::nullopt;
    }
}

void ChildProcess::signal(int number) const {
    if (running()) ::kill(pid_, number);
}

bool ChildProcess::reap() {
    int status = 0;
    if (running() && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    return status_.has_value();
}

std::optional<int> ChildProcess::wait(milliseconds patience) {
    const Clock::time_point deadline = Clock::now() + patience;
    while (running() && !reap()) {
        const milliseconds left = left_until(deadline);
        if (left.count() == 0) return std::nullopt;
        // Reads meanwhile, because a child with a full output does not end. Old kernels do not tell of its end.
        pollfd events[] = {{end_.number(), POLLIN, 0}, {output_.number(), POLLIN, 0}};
        ::poll(events, 2, static_cast<int>((end_.is_open() ? left : std::min(left, milliseconds(10))).count()));
        if (events[1].revents != 0) read_output();
    }
    return status_;
}

std::string ChildProcess::how_it_ended() const {
    const int status = status_.value_or(0);
    if (!WIFEXITED(status)) return "signal " + std::to_string(WTERMSIG(status));
    const int code = WEXITSTATUS(status);
    return "exit code " + std::to_string(code) + (code == 127 ? " (it could not be started)" : "");
}

void ChildProcess::kill_and_reap() {
    if (!running()) return;
    ::kill(pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    status_ = status;
}

std::string program_directory() {
    char path[PATH_MAX];
    const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
    const std::string full(path, length > 0 ? static_cast<std::size_t>(length) : 0);
    return full.substr(0, full.rfind('/') + 1);
}

}  // namespace pccl::harness
