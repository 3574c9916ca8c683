// The journal on a disk: what is read back, and that the files stay small.
#include "net-real/journal_store.hpp"

#include "net-real/master_runtime.hpp"

#include <catch2/catch.hpp>
#include <sqlite3.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using pccl::real::JournalStore;

namespace {

struct Directory {
    Directory() {
        std::string name = (std::filesystem::temp_directory_path() / "pccl-store-XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        path = name;
    }
    ~Directory() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    Directory(const Directory&) = delete;
    std::string path;
};

std::uintmax_t bytes_in(const std::string& path) {
    std::uintmax_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path)) bytes += entry.file_size();
    return bytes;
}

std::vector<std::string> read_back(const std::string& path) {
    std::string error;
    const auto store = JournalStore::open(path, error);
    INFO(error);
    REQUIRE(store != nullptr);
    std::vector<std::string> records;
    REQUIRE(store->read(records, error));
    return records;
}

using Ended = JournalStore::Ended;

// While it lives, each write of the database waits.
class DeadDisk {
public:
    DeadDisk() {
        [[maybe_unused]] static const bool is_hooked = [] {
            sqlite3_vfs* const system = sqlite3_vfs_find(nullptr);
            // The build of SQLite uses one of the two.
            for (const auto& [name, hook] : {std::pair("pwrite", &write<0>), std::pair("pwrite64", &write<1>)}) {
                originals[hook == &write<1> ? 1 : 0] = reinterpret_cast<Write>(system->xGetSystemCall(system, name));
                REQUIRE(system->xSetSystemCall(system, name, reinterpret_cast<sqlite3_syscall_ptr>(hook)) == SQLITE_OK);
            }
            return true;
        }();
        const std::lock_guard guard(mutex);
        is_dead = true;
        waiting = 0;
    }
    ~DeadDisk() {
        {
            const std::lock_guard guard(mutex);
            is_dead = false;
        }
        changed.notify_all();
    }
    DeadDisk(const DeadDisk&) = delete;
    void await_write() {
        std::unique_lock guard(mutex);
        changed.wait(guard, [] { return waiting > 0; });
    }

private:
    using Write = ssize_t (*)(int, const void*, std::size_t, off_t);
    template <int Index>
    static ssize_t write(int descriptor, const void* data, std::size_t bytes, off_t offset) {
        {
            std::unique_lock guard(mutex);
            ++waiting;
            changed.notify_all();
            changed.wait(guard, [] { return !is_dead; });
        }
        return originals[Index](descriptor, data, bytes, offset);
    }
    static inline std::mutex mutex;
    static inline std::condition_variable changed;
    static inline bool is_dead = false;
    static inline int waiting = 0;
    static inline Write originals[2] = {};
};

}  // namespace

TEST_CASE("records come back in order; one that supersedes replaces all before it") {
    const Directory directory;
    {
        std::string error;
        const auto store = JournalStore::open(directory.path, error);
        REQUIRE(store != nullptr);
        store->start([](std::uint64_t, const std::string& failure) { CHECK(failure.empty()); });
        for (std::uint64_t i = 1; i <= 9; ++i) store->append(i, "record " + std::to_string(i), i == 4 || i == 7);
        CHECK(store->finish());
    }
    CHECK(read_back(directory.path) == std::vector<std::string>{"record 7", "record 8", "record 9"});
}

TEST_CASE("a journal that cannot be read to its end is served at no address, however many are tried") {
    const Directory directory;
    {
        std::string error;
        const auto store = JournalStore::open(directory.path, error);
        REQUIRE(store != nullptr);
        store->start([](std::uint64_t, const std::string&) {});
        for (std::uint64_t i = 1; i <= 200; ++i) store->append(i, std::string(1000, 'r'), false);
        CHECK(store->finish());
    }
    const std::string file = directory.path + "/journal.db";
    const auto pages = std::filesystem::file_size(file) / 4096;
    REQUIRE(pages > 20);
    std::fstream database(file, std::ios::in | std::ios::out | std::ios::binary);
    database.seekp(static_cast<std::streamoff>(pages / 2 * 4096));
    database << std::string(4096, 'x');
    database.close();
    pccl::real::MasterSettings settings;
    settings.state_directory = directory.path;
    pccl::real::MasterRuntime master(settings);
    for (int i = 0; i < 2; ++i) {
        std::string error;
        CHECK_FALSE(master.bind(pccl::core::Endpoint{}, error));
        CHECK_FALSE(error.empty());
    }
}

TEST_CASE("a program that locks the database for longer than the patience of a write delays the journal, no more") {
    const Directory directory;
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t durable = 0;
    std::string failure;
    std::string error;
    const auto store = JournalStore::open(directory.path, error);
    REQUIRE(store != nullptr);
    store->start([&](std::uint64_t sequence, const std::string& reason) {
        const std::lock_guard guard(mutex);
        durable = sequence;
        failure += reason;
        changed.notify_all();
    });
    sqlite3* other = nullptr;
    REQUIRE(sqlite3_open((directory.path + "/journal.db").c_str(), &other) == SQLITE_OK);
    REQUIRE(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
    store->append(1, "record 1");
    {
        std::unique_lock guard(mutex);
        CHECK_FALSE(changed.wait_for(guard, 2 * JournalStore::busy_time, [&] { return durable != 0; }));
    }
    REQUIRE(sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(other);
    CHECK(store->finish());
    CHECK(durable == 1);
    CHECK(failure.empty());
}

TEST_CASE("a journal that cannot be emptied at the end of its run says so") {
    const Directory directory;
    std::string error;
    {
        const auto store = JournalStore::open(directory.path, error);
        REQUIRE(store != nullptr);
        std::promise<void> durable;
        store->start([&](std::uint64_t, const std::string&) { durable.set_value(); });
        store->append(1, "record 1");
        durable.get_future().wait();
        sqlite3* other = nullptr;
        REQUIRE(sqlite3_open((directory.path + "/journal.db").c_str(), &other) == SQLITE_OK);
        REQUIRE(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
        CHECK(store->end(JournalStore::close_time, true, error) == Ended::not_cleared);
        CHECK_FALSE(error.empty());
        REQUIRE(sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr) == SQLITE_OK);
        sqlite3_close(other);
    }
    {
        const auto store = JournalStore::open(directory.path, error);
        REQUIRE(store != nullptr);
        std::vector<std::string> records;
        REQUIRE(store->read(records, error));
        CHECK(records.size() == 1);
        CHECK(store->end(JournalStore::close_time, true, error) == Ended::well);
    }
    CHECK(read_back(directory.path).empty());
}

TEST_CASE("a disk that hangs while the journal is emptied or closed holds nobody for longer than the patience") {
    for (const bool clears : {true, false}) {
        INFO("clears " << clears);
        const Directory directory;
        std::string error;
        {
            auto store = JournalStore::open(directory.path, error);
            REQUIRE(store != nullptr);
            std::promise<void> durable;
            store->start([&](std::uint64_t, const std::string&) { durable.set_value(); });
            store->append(1, "record 1");
            durable.get_future().wait();
            DeadDisk disk;
            CHECK(store->end(std::chrono::milliseconds(1), clears, error) ==
                  (clears ? Ended::not_cleared : Ended::well));
            CHECK(error.empty() != clears);
            store.reset();
            disk.await_write();
        }
        // The thread has the lock until the disk has answered.
        const int lock = ::open((directory.path + "/lock").c_str(), O_RDWR | O_CLOEXEC);
        REQUIRE(lock >= 0);
        CHECK(::flock(lock, LOCK_EX) == 0);
        ::close(lock);
    }
}

TEST_CASE("a file that may not grow fails the journal, not the process") {
    const Directory directory;
    const pid_t child = ::fork();
    if (child == 0) {
        std::string error;
        const auto store = JournalStore::open(directory.path, error);
        if (store == nullptr) ::_exit(2);
        rlimit limit{};
        ::getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = 256u << 10;
        ::setrlimit(RLIMIT_FSIZE, &limit);
        std::promise<std::string> said;
        store->start([&said](std::uint64_t, const std::string& failure) { said.set_value(failure); });
        store->append(1, std::string(1u << 20, 'r'));
        ::_exit(said.get_future().get().empty() ? 3 : 0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    INFO("signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0));
    CHECK(status == 0);
}

TEST_CASE("a long run does not make the files grow") {
    const Directory directory;
    std::uintmax_t most = 0;
    {
        std::string error;
        const auto store = JournalStore::open(directory.path, error);
        REQUIRE(store != nullptr);
        std::mutex mutex;
        std::condition_variable changed;
        std::uint64_t durable = 0;
        store->start([&](std::uint64_t sequence, const std::string& failure) {
            CHECK(failure.empty());
            const std::lock_guard guard(mutex);
            durable = sequence;
            changed.notify_one();
        });
        std::uint64_t sequence = 0;
        for (int round = 0; round < 60; ++round) {
            for (int i = 0; i < 1000; ++i) store->append(++sequence, std::string(300, 'r'));
            store->append(++sequence, std::string(20'000, 's'), true);
            std::unique_lock guard(mutex);
            changed.wait(guard, [&] { return durable == sequence; });
            most = std::max(most, bytes_in(directory.path));
        }
        CHECK(store->finish());
    }
    // 18 MB of records were written. Two rounds and the write-ahead file fit into 12.
    CHECK(most < 12u << 20);
    CHECK(read_back(directory.path).size() == 1);
}

TEST_CASE("a journal of another format is refused with its number") {
    const Directory directory;
    (void)read_back(directory.path);
    REQUIRE(std::system(("sqlite3 " + directory.path +
                         "/journal.db 'PRAGMA user_version=77' 2>/dev/null || "
                         "printf '\\0\\0\\0\\115' | dd of=" +
                         directory.path + "/journal.db bs=1 seek=60 conv=notrunc 2>/dev/null")
                            .c_str()) == 0);
    std::string error;
    CHECK(JournalStore::open(directory.path, error) == nullptr);
    CHECK(error.find("format 77") != std::string::npos);
}
