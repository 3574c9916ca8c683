#include "end_run.hpp"

#include "core/base/format.hpp"
#include "net-real/journal_store.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pccl_master {

namespace {

constexpr std::chrono::seconds patience{30};
constexpr std::chrono::milliseconds pause{20};

using pccl::real::JournalStore;

// A master locks the directory while it serves, and writes its identity into the lock.
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
    JournalStore::Holder holder() const { return JournalStore::holder(descriptor_); }
    // The process id in the lock may belong to another process: in another container, on another host, or a later one.
    enum class Opened : std::uint8_t { yes, no, unknown };  // unknown: errno says why
    Opened opened_by(pid_t process) const {
        struct stat own {};
        if (::fstat(descriptor_, &own) != 0) return Opened::unknown;
        const std::string folder = pccl::core::formatted("/proc/{}/fd", process);
        DIR* list = ::opendir(folder.c_str());
        if (list == nullptr) return errno == ENOENT ? Opened::no : Opened::unknown;
        Opened found = Opened::no;
        while (const dirent* entry = ::readdir(list)) {
            struct stat other {};
            if (::stat(pccl::core::formatted("{}/{}", folder, entry->d_name).c_str(), &other) == 0 &&
                other.st_dev == own.st_dev && other.st_ino == own.st_ino)
                found = Opened::yes;
        }
        ::closedir(list);
        return found;
    }

private:
    int descriptor_;
};

constexpr const char* as_its_user = "; run this on the master's host, as its user or as root";

// The signal ends most programs. So only a process that holds the lock and handles the signal gets it.
bool may_signal(const Lock& lock, const JournalStore::Holder& holder, const std::string& master, std::string& error) {
    if (holder.process == 0) {
        error = "the lock of the state directory names no process; run this again when its master serves";
        return false;
    }
    if (!holder.ends_at_signal) {
        error = pccl::core::formatted("{} is part of another program; end the run there (pcclInterruptMaster, "
                                      "MasterNode.interrupt), or stop that program and run this again",
                                      master);
        return false;
    }
    switch (lock.opened_by(holder.process)) {
    case Lock::Opened::yes: return true;
    case Lock::Opened::unknown:
        error = pccl::core::formatted("cannot look at {}: {}{}", master, std::strerror(errno), as_its_user);
        break;
    case Lock::Opened::no:
        error = master + " runs in another container or on another host: the process of that number here does not hold "
                         "the lock; run this there, or send SIGUSR1 to the master";
    }
    return false;
}

bool stop_holder(const std::string& directory, std::string& error) {
    const Lock lock(directory);
    if (!lock.exists()) {
        error = pccl::core::formatted("no master has used the state directory {} ({}); give the one of the run",
                                      directory, std::strerror(errno));
        return false;
    }
    if (!lock.held_by_other()) return true;
    const JournalStore::Holder holder = lock.holder();
    const std::string master = pccl::core::formatted("the master of {} (process {})", directory, holder.process);
    if (!may_signal(lock, holder, master, error)) return false;
    if (::kill(holder.process, SIGUSR1) != 0) {
        error = pccl::core::formatted("cannot signal {}: {}{}", master, std::strerror(errno), as_its_user);
        return false;
    }
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (lock.held_by_other()) {
        if (std::chrono::steady_clock::now() > deadline) {
            error = master + " does not stop; its log says why, SIGKILL stops it without ending the run";
            return false;
        }
        std::this_thread::sleep_for(pause);
    }
    return true;
}

}  // namespace

bool end_run(const std::string& directory, std::string& error) {
    if (!stop_holder(directory, error)) return false;
    // Also if the master was stopped before: after this, no master can take up the run.
    const auto store = JournalStore::open(directory, error);
    if (store == nullptr) return false;
    return store->end(JournalStore::close_time, true, error) == JournalStore::Ended::well;
}

}  // namespace pccl_master
