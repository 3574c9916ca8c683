#include "end_run.hpp"

#include "net-real/journal_store.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace pccl_master {

namespace {

constexpr std::chrono::seconds patience{30};
constexpr std::chrono::milliseconds pause{20};

// A master locks the directory as long as it serves, and writes its process id into the lock.
class Lock {
public:
    explicit Lock(const std::string& directory)
        : descriptor_(::open((directory + "/lock").c_str(), O_RDWR | O_CLOEXEC)) {}
    ~Lock() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    bool exists() const { return descriptor_ >= 0; }
    bool held_by_other() const { return ::flock(descriptor_, LOCK_SH | LOCK_NB) != 0; }
    pid_t holder() const {
        char text[24] = {};
        const ssize_t length = ::pread(descriptor_, text, sizeof text - 1, 0);
        return length > 0 ? static_cast<pid_t>(std::strtol(text, nullptr, 10)) : 0;
    }

private:
    int descriptor_;
};

bool stop_holder(const std::string& directory, std::string& error) {
    const Lock lock(directory);
    if (!lock.exists()) {
        error = "no master has used the state directory " + directory + " (" + std::strerror(errno) +
                "); give the one of the run";
        return false;
    }
    if (!lock.held_by_other()) return true;
    const pid_t holder = lock.holder();
    if (holder <= 0 || ::kill(holder, SIGUSR1) != 0) {
        error = "cannot signal the master of " + directory + " (process " + std::to_string(holder) +
                "): " + (holder <= 0 ? "it wrote no process id" : std::strerror(errno)) +
                "; run this on the master's host, as its user or as root";
        return false;
    }
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (lock.held_by_other()) {
        if (std::chrono::steady_clock::now() > deadline) {
            error = "the master of " + directory + " (process " + std::to_string(holder) +
                    ") does not stop; its log says why, SIGKILL stops it without ending the run";
            return false;
        }
        std::this_thread::sleep_for(pause);
    }
    return true;
}

}  // namespace

bool end_run(const std::string& directory, std::string& error) {
    if (!stop_holder(directory, error)) return false;
    // Also where the master was stopped before: nobody takes up the run after this.
    const auto store = pccl::real::JournalStore::open(directory, error);
    if (store == nullptr) return false;
    store->clear();
    return true;
}

}  // namespace pccl_master
