// The signal handler uses the table of process ids and nothing else.
#include "child_process.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace pccl::tools {

namespace {

std::array<volatile pid_t, 128> living_children{};

void remember(pid_t child) {
    for (auto& slot : living_children) {
        if (slot == 0) {
            slot = child;
            return;
        }
    }
}

void forget(pid_t child) {
    for (auto& slot : living_children)
        if (slot == child) slot = 0;
}

void on_interrupt(int) {
    for (const auto& slot : living_children) {
        const pid_t child = slot;
        if (child > 0) kill(child, SIGKILL);
    }
    for (const auto& slot : living_children) {
        const pid_t child = slot;
        if (child > 0) waitpid(child, nullptr, 0);
    }
    _exit(130);
}

std::int64_t now_ms() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
    if (this != &other) {
        kill_and_reap();
        pid_ = std::exchange(other.pid_, -1);
        input_ = std::exchange(other.input_, -1);
        output_ = std::exchange(other.output_, -1);
        received_ = std::move(other.received_);
        status_ = std::exchange(other.status_, std::nullopt);
    }
    return *this;
}

ChildProcess::~ChildProcess() { kill_and_reap(); }

ChildProcess ChildProcess::start(const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& environment) {
    int to_child[2], from_child[2];
    if (pipe2(to_child, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    if (pipe2(from_child, O_CLOEXEC) != 0) {
        const int reason = errno;
        close(to_child[0]);
        close(to_child[1]);
        throw std::system_error(reason, std::generic_category(), "pipe");
    }
    // Everything that the child needs is prepared before fork.
    std::vector<char*> argument_pointers;
    for (const auto& argument : arguments) argument_pointers.push_back(const_cast<char*>(argument.c_str()));
    argument_pointers.push_back(nullptr);
    std::vector<char*> environment_pointers;
    for (const auto& variable : environment) environment_pointers.push_back(const_cast<char*>(variable.c_str()));
    for (char** variable = environ; *variable != nullptr; ++variable) environment_pointers.push_back(*variable);
    environment_pointers.push_back(nullptr);

    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(127);
        signal(SIGINT, SIG_IGN);  // Ctrl-C reaches the whole foreground group: the parent decides
        dup2(to_child[0], STDIN_FILENO);
        dup2(from_child[1], STDOUT_FILENO);
        execve(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
        _exit(127);
    }
    const int reason = errno;
    close(to_child[0]);
    close(from_child[1]);
    if (child < 0) {
        close(to_child[1]);
        close(from_child[0]);
        throw std::system_error(reason, std::generic_category(), "fork");
    }
    remember(child);
    ChildProcess process;
    process.pid_ = child;
    process.input_ = to_child[1];
    process.output_ = from_child[0];
    fcntl(process.output_, F_SETFL, O_NONBLOCK);
    return process;
}

bool ChildProcess::write_line(const std::string& line) {
    const std::string text = line + "\n";
    // If the reader is dead, write() must fail and not kill this process.
    signal(SIGPIPE, SIG_IGN);
    return write(input_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::optional<std::string> ChildProcess::read_line(int timeout_ms) {
    const std::int64_t deadline = now_ms() + timeout_ms;
    for (;;) {
        if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
            std::string line = received_.substr(0, end);
            received_.erase(0, end + 1);
            return line;
        }
        if (output_ < 0) return std::nullopt;
        char bytes[4096];
        const ssize_t count = read(output_, bytes, sizeof bytes);
        if (count > 0) {
            received_.append(bytes, static_cast<std::size_t>(count));
            continue;
        }
        if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(std::exchange(output_, -1));
            continue;
        }
        const std::int64_t rest = deadline - now_ms();
        if (rest <= 0) return std::nullopt;
        pollfd descriptor{output_, POLLIN, 0};
        poll(&descriptor, 1, static_cast<int>(rest));
    }
}

void ChildProcess::send_signal(int signal_number) {
    if (running()) kill(pid_, signal_number);
}

std::optional<int> ChildProcess::wait(int timeout_ms) {
    const std::int64_t deadline = now_ms() + timeout_ms;
    while (pid_ > 0 && !status_) {
        int status = 0;
        const pid_t ended = waitpid(pid_, &status, WNOHANG);
        if (ended == pid_) {
            forget(pid_);
            status_ = status;
        } else if (now_ms() >= deadline) {
            break;
        } else {
            usleep(2000);
        }
    }
    return status_;
}

void ChildProcess::kill_and_reap() {
    if (running()) {
        kill(pid_, SIGKILL);
        while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
        forget(pid_);
    }
    if (input_ >= 0) close(input_);
    if (output_ >= 0) close(output_);
    pid_ = input_ = output_ = -1;
}

void kill_children_on_interrupt() {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

std::string program_directory() {
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    const std::string full(path, length > 0 ? static_cast<std::size_t>(length) : 0);
    return full.substr(0, full.rfind('/') + 1);
}

}  // namespace pccl::tools
