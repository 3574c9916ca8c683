// See process.hpp.
#include "process.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace integration {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> full_environment(const Environment& overrides) {
    Environment merged;
    for (char** at = environ; *at != nullptr; ++at) {
        const std::string entry = *at;
        const auto equals = entry.find('=');
        if (equals != std::string::npos) merged[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
    merged["PCCL_PORT_RANGE"] = "0";
    for (const auto& [name, value] : overrides) merged[name] = value;
    std::vector<std::string> list;
    for (const auto& [name, value] : merged) list.push_back(name + "=" + value);
    return list;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> list;
    for (std::string& text : strings) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
}

// A write to a child that is gone must return an error, not end the tests.
const auto sigpipe_ignored = ::signal(SIGPIPE, SIG_IGN);

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

}  // namespace

Process::Process(const std::vector<std::string>& command, const Environment& environment) : name_(command.front()) {
    name_ = name_.substr(name_.rfind('/') + 1);
    int input[2];
    int output[2];
    if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) fail("pipe");
    error_file_ = memfd_create("stderr", MFD_CLOEXEC);
    std::vector<std::string> arguments = command;
    std::vector<std::string> variables = full_environment(environment);
    std::vector<char*> argv = pointers(arguments);
    std::vector<char*> envp = pointers(variables);
    pid_ = fork();
    if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::signal(SIGPIPE, SIG_DFL);
        dup2(input[0], 0);
        dup2(output[1], 1);
        dup2(error_file_, 2);
        execve(argv[0], argv.data(), envp.data());
        _exit(127);
    }
    close(input[0]);
    close(output[1]);
    input_ = input[1];
    output_ = output[0];
    if (pid_ < 0) fail("fork");
}

Process::~Process() {
    if (!reaped_ && pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, &status_, 0);
    }
    if (input_ >= 0) close(input_);
    if (output_ >= 0) close(output_);
    if (error_file_ >= 0) close(error_file_);
}

void Process::send(const std::string& line) {
    const std::string text = line + "\n";
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t n = write(input_, text.data() + done, text.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;  // it is gone; the next read reports that
        done += static_cast<std::size_t>(n);
    }
}

bool Process::fill(std::chrono::milliseconds patience) {
    pollfd waiting{output_, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(0, patience.count())));
    if (ready <= 0) return false;
    char bytes[4096];
    const ssize_t n = read(output_, bytes, sizeof bytes);
    if (n <= 0) {
        ended_ = true;
        return false;
    }
    pending_.append(bytes, static_cast<std::size_t>(n));
    return true;
}

std::optional<std::string> Process::poll_line(std::chrono::milliseconds patience) {
    const auto deadline = Clock::now() + patience;
    for (;;) {
        const auto end = pending_.find('\n');
        if (end != std::string::npos) {
            std::string line = pending_.substr(0, end);
            pending_.erase(0, end + 1);
            return line;
        }
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        if (ended_ || (!fill(left) && (ended_ || Clock::now() >= deadline))) return std::nullopt;
    }
}

std::optional<std::string> Process::read_line(std::chrono::milliseconds guard) {
    std::optional<std::string> line = poll_line(guard);
    if (!line && !ended_) fail(name_ + " hangs: no line came; its log:\n" + log_text());
    return line;
}

std::string Process::expect_line(std::chrono::milliseconds guard) {
    std::optional<std::string> line = read_line(guard);
    if (!line) fail(name_ + " ended before it answered; its log:\n" + log_text());
    return *line;
}

void Process::signal(int number) {
    if (!reaped_) kill(pid_, number);
}

int Process::wait(std::chrono::milliseconds guard) {
    const auto deadline = Clock::now() + guard;
    while (!reaped_) {
        // The end of its output shows that it is ending. After that waitpid is short.
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        if (!ended_) {
            fill(left);
            if (!ended_ && Clock::now() >= deadline) fail(name_ + " hangs: it does not end; its log:\n" + log_text());
            continue;
        }
        if (waitpid(pid_, &status_, 0) == pid_) reaped_ = true;
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
}

std::string Process::log_text() const {
    std::string text;
    char bytes[4096];
    off_t offset = 0;
    for (ssize_t n; (n = pread(error_file_, bytes, sizeof bytes, offset)) > 0; offset += n) {
        text.append(bytes, static_cast<std::size_t>(n));
    }
    return text;
}

bool Process::says(const std::string& text, std::chrono::milliseconds guard) const {
    const auto deadline = Clock::now() + guard;
    for (;;) {
        const bool last_look = reaped_ || Clock::now() >= deadline;
        if (log_text().find(text) != std::string::npos) return true;
        if (last_look) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

std::vector<std::uint16_t> Process::listening_ports() const {
    const std::string root = "/proc/" + std::to_string(pid_);
    std::set<std::string> inodes;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(root + "/fd", ignored)) {
        const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
        if (target.rfind("socket:[", 0) == 0) inodes.insert(target.substr(8, target.size() - 9));
    }
    std::set<std::uint16_t> ports;
    for (const char* table : {"/net/tcp", "/net/tcp6"}) {
        std::ifstream file(root + table);
        std::string line;
        std::getline(file, line);
        while (std::getline(file, line)) {
            const std::vector<std::string> fields = words(line);
            if (fields.size() < 10 || fields[3] != "0A" || inodes.count(fields[9]) == 0) continue;
            const std::string port = fields[1].substr(fields[1].find(':') + 1);
            ports.insert(static_cast<std::uint16_t>(std::stoul(port, nullptr, 16)));
        }
    }
    return {ports.begin(), ports.end()};
}

int Process::open_descriptors() const {
    int count = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/fd", ignored)) {
        (void)entry;
        ++count;
    }
    return count;
}

namespace {
std::vector<std::string> master_command(std::uint16_t port, const std::vector<std::string>& options) {
    std::vector<std::string> command = {PCCL_TEST_MASTER, "--listen", "127.0.0.1:" + std::to_string(port)};
    command.insert(command.end(), options.begin(), options.end());
    return command;
}
}  // namespace

MasterProcess::MasterProcess(const Environment& environment, std::uint16_t port,
                             const std::vector<std::string>& options)
    : Process(master_command(port, options), environment) {
    const std::string line = expect_line();
    const auto colon = line.rfind(':');
    if (line.rfind("listening on ", 0) != 0 || colon == std::string::npos)
        fail("unexpected line of the master: " + line);
    port_ = static_cast<std::uint16_t>(std::stoul(line.substr(colon + 1)));
}

std::vector<std::string> words(const std::string& line) {
    std::istringstream in(line);
    std::vector<std::string> list;
    for (std::string word; in >> word;) list.push_back(word);
    return list;
}

}  // namespace integration
