// See process.hpp.
#include "process.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace integration {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> entries(Environment environment) {
    environment.emplace("PCCL_PORT_RANGE", "0");
    std::vector<std::string> list;
    for (const auto& [name, value] : environment) list.push_back(name + "=" + value);
    return list;
}

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

}  // namespace

Process::Process(const std::vector<std::string>& command, const Environment& environment)
    : name_(command.front().substr(command.front().rfind('/') + 1)), errors_(memfd_create("stderr", MFD_CLOEXEC)),
      child_(harness::ChildProcess::start(command, {entries(environment), errors_.number()})) {}

std::optional<std::string> Process::read_line(std::chrono::milliseconds guard) {
    std::optional<std::string> line = poll_line(guard);
    if (!line && child_.output() >= 0) fail(name_ + " hangs: no line came; its log:\n" + log_text());
    return line;
}

std::string Process::expect_line(std::chrono::milliseconds guard) {
    std::optional<std::string> line = read_line(guard);
    if (!line) fail(name_ + " ended before it answered; its log:\n" + log_text());
    return *line;
}

int Process::wait(std::chrono::milliseconds guard) {
    const std::optional<int> status = child_.wait(guard);
    if (!status) fail(name_ + " hangs: it does not end; its log:\n" + log_text());
    return WIFEXITED(*status) ? WEXITSTATUS(*status) : -WTERMSIG(*status);
}

std::string Process::log_text() const {
    std::string text;
    char bytes[4096];
    off_t offset = 0;
    for (ssize_t n; (n = pread(errors_.number(), bytes, sizeof bytes, offset)) > 0; offset += n) {
        text.append(bytes, static_cast<std::size_t>(n));
    }
    return text;
}

bool Process::says(const std::string& text, std::chrono::milliseconds guard) {
    const auto deadline = Clock::now() + guard;
    for (;;) {
        const bool last_look = child_.reap() || Clock::now() >= deadline;
        if (log_text().find(text) != std::string::npos) return true;
        if (last_look) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

std::vector<std::uint16_t> Process::listening_ports() const {
    const std::string root = "/proc/" + std::to_string(pid());
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
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid()) + "/fd", ignored)) {
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
