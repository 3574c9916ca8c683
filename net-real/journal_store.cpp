#include "net-real/journal_store.hpp"

#include "core/base/format.hpp"
#include "net-real/descriptors.hpp"
#include "net-real/log.hpp"
#include "net-real/workers.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pccl::real {

namespace {

constexpr std::size_t batch_max = 4096;  // records of one transaction
constexpr int format = 1;                // of the records, kept as user_version; 0: a new file
constexpr const char* heeds_signal = " SIGUSR1";

struct Pending {
    std::uint64_t sequence = 0;
    std::string record;
    bool supersedes = false;
};

// Opens the lock file. A forked child must not hold the lock of a killed master, so it closes all tracked descriptors.
// The file is opened without the guard: a file system may be slow, and the I/O threads of the process need the guard.
// If a fork came in between, a child may have a copy, so the file is opened again.
int open_tracked(const char* path) {
    for (int attempt = 0;; ++attempt) {
        const std::uint64_t before = descriptors::forks();
        const int opened = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (opened < 0) return opened;
        {
            const std::lock_guard guard(descriptors::guard());
            if (descriptors::forks() == before || attempt == 100) {
                descriptors::track(opened);
                return opened;
            }
        }
        ::close(opened);
    }
}

}  // namespace

struct JournalStore::State {
    std::string directory;
    int lock = -1;
    sqlite3* database = nullptr;
    sqlite3_stmt* insert = nullptr;
    sqlite3_stmt* drop_older = nullptr;
    Written written;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Pending> pending;
    bool stopping = false;
    bool failed = false;   // reported; nothing more is written
    bool clears = false;   // delete all records before the end
    bool writing = false;  // records that were taken from `pending`
    bool not_cleared = false;
    std::string why_not_cleared;
    bool ended = false;  // the writer thread; the database is closed
    bool abandoned = false;
    std::thread writer;

    ~State() {
        close_database();
        if (lock < 0) return;
        // Unlock first: a child that is forked after the next line has a descriptor without a lock. Neither the unlock
        // nor the close may wait for a file system while the guard is held.
        ::flock(lock, LOCK_UN);
        {
            const std::lock_guard guard(descriptors::guard());
            descriptors::untrack(lock);
        }
        ::close(lock);
    }
    // Copies the write-ahead log into the database, so it waits for the disk.
    void close_database() {
        sqlite3_finalize(std::exchange(insert, nullptr));
        sqlite3_finalize(std::exchange(drop_older, nullptr));
        sqlite3_close(std::exchange(database, nullptr));
    }
    void clear() noexcept {
        try {
            std::string error;
            const bool is_cleared = execute("DELETE FROM records", error);
            const std::lock_guard guard(mutex);
            not_cleared = !is_cleared;
            why_not_cleared = std::move(error);
        } catch (const std::bad_alloc&) {
            const std::lock_guard guard(mutex);
            not_cleared = true;
        }
    }
    bool execute(const char* statement, std::string& error) {
        if (sqlite3_exec(database, statement, nullptr, nullptr, nullptr) == SQLITE_OK) return true;
        error = failure();
        return false;
    }
    bool prepare(const char* statement, sqlite3_stmt*& prepared, std::string& error) {
        if (sqlite3_prepare_v2(database, statement, -1, &prepared, nullptr) == SQLITE_OK) return true;
        error = failure() + "; is it a journal of this program?";
        return false;
    }
    int user_version() {
        sqlite3_stmt* select = nullptr;
        int version = 0;
        if (sqlite3_prepare_v2(database, "PRAGMA user_version", -1, &select, nullptr) == SQLITE_OK &&
            sqlite3_step(select) == SQLITE_ROW) {
            version = sqlite3_column_int(select, 0);
        }
        sqlite3_finalize(select);
        return version;
    }
    // The error of the database, and what can be done about it.
    std::string failure() const {
        const std::string said = core::formatted("{}/journal.db: {}", directory, sqlite3_errmsg(database));
        switch (sqlite3_errcode(database)) {
        case SQLITE_FULL: return said + "; make room there, then start the master again: it takes up the run";
        case SQLITE_READONLY:
        case SQLITE_CANTOPEN:
        case SQLITE_PERM: return said + "; let the master write there, or use another state directory";
        case SQLITE_IOERR: return said + "; check the disk, then start the master again: it takes up the run";
        case SQLITE_BUSY:
        case SQLITE_LOCKED: return said + "; close the other program that uses the file";
        case SQLITE_NOTADB:
        case SQLITE_CORRUPT: return said + "; it is not a journal of this program, use another state directory";
        default: return said;
        }
    }
    bool insert_one(const Pending& item) {
        sqlite3_reset(insert);
        sqlite3_bind_blob64(insert, 1, item.record.data(), item.record.size(), SQLITE_STATIC);
        if (sqlite3_step(insert) != SQLITE_DONE) return false;
        if (!item.supersedes) return true;
        sqlite3_reset(drop_older);
        sqlite3_bind_int64(drop_older, 1, sqlite3_last_insert_rowid(database));
        const bool dropped = sqlite3_step(drop_older) == SQLITE_DONE;
        if (dropped) sqlite3_reset(drop_older);
        return dropped;
    }
    enum class Write : std::uint8_t { done, busy, failed };
    // busy: another program has locked the database for now. Nothing was written, and nothing is wrong with the disk.
    Write write(const std::vector<Pending>& batch, std::string& error) {
        if (!execute("BEGIN IMMEDIATE", error)) {
            const int code = sqlite3_errcode(database);
            return code == SQLITE_BUSY || code == SQLITE_LOCKED ? Write::busy : Write::failed;
        }
        bool good = true;
        for (std::size_t i = 0; i < batch.size() && good; ++i) good = insert_one(batch[i]);
        if (!good) error = failure();
        sqlite3_reset(insert);
        sqlite3_reset(drop_older);
        if (good && execute("COMMIT", error)) return Write::done;
        const int code = sqlite3_errcode(database);
        std::string ignored;
        (void)execute("ROLLBACK", ignored);
        return good && (code == SQLITE_BUSY || code == SQLITE_LOCKED) ? Write::busy : Write::failed;
    }
    // A program that locks the database delays the journal but cannot end the run. False: abandoned, nobody waits any
    // more.
    bool write_when_free(const std::vector<Pending>& batch, std::string& error) {
        bool said = false;
        for (;;) {
            error.clear();
            const Write result = write(batch, error);
            if (result != Write::busy) {
                failed = result == Write::failed;
                return true;
            }
            if (!said) {
                log_line(
                    Severity::warn, "master",
                    core::formatted("another program has locked {}/journal.db: every call waits until it has closed it",
                                    directory));
            }
            said = true;
            const std::lock_guard guard(mutex);
            if (abandoned) return false;
        }
    }
    void run() {
        std::uint64_t last = 0;  // last sequence taken from the queue
        try {
            run(last);
        } catch (const std::bad_alloc&) {
            failed = true;
            tell_no_memory(last);
        }
        bool clears_now = false;
        {
            const std::lock_guard guard(mutex);
            clears_now = clears && !failed && !abandoned;
        }
        if (clears_now) clear();
        close_database();
        {
            const std::lock_guard guard(mutex);
            ended = true;
        }
        changed.notify_all();
    }
    // Reporting needs memory too, so it is retried for 5 s. After that only Timeouts::journal, if set, ends the
    // master's wait.
    void tell_no_memory(std::uint64_t sequence) {
        for (int attempt = 0; attempt < 50; ++attempt) {
            try {
                const std::lock_guard guard(mutex);
                if (!abandoned) written(sequence, "no memory to write the journal; start the master again");
                return;
            } catch (const std::bad_alloc&) {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
            }
        }
    }
    void run(std::uint64_t& last) {
        std::vector<Pending> batch;
        for (;;) {
            {
                std::unique_lock guard(mutex);
                changed.wait(guard, [&] { return stopping || !pending.empty(); });
                if (pending.empty()) break;
                const std::size_t count = std::min(pending.size(), batch_max);
                const auto end = pending.begin() + static_cast<std::ptrdiff_t>(count);
                last = pending[count - 1].sequence;
                batch.assign(std::make_move_iterator(pending.begin()), std::make_move_iterator(end));
                pending.erase(pending.begin(), end);
                writing = !failed;
            }
            if (failed) continue;  // dropped: the failure was reported
            std::string error;
            if (!write_when_free(batch, error)) return;
            const std::lock_guard guard(mutex);
            writing = false;
            if (abandoned) return;  // nobody waits for the report
            written(last, error);
        }
    }
};

JournalStore::JournalStore(std::shared_ptr<State> state) : state_(std::move(state)) {}

JournalStore::~JournalStore() { (void)finish(); }

std::unique_ptr<JournalStore> JournalStore::open(const std::string& directory, std::string& error,
                                                 bool ends_at_signal) {
    auto state = std::make_shared<State>();
    state->directory = directory;
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
        error = core::formatted(
            "cannot create the state directory {}: {}; its parent must exist and be writable for the master", directory,
            std::strerror(errno));
        return nullptr;
    }
    const std::string lock = directory + "/lock";
    state->lock = open_tracked(lock.c_str());
    if (state->lock < 0) {
        error = core::formatted(
            "cannot write to the state directory {}: {}; let the master write there, or use another one", directory,
            std::strerror(errno));
        return nullptr;
    }
    if (::flock(state->lock, LOCK_EX | LOCK_NB) != 0) {
        error = core::formatted("the state directory {} is in use by another master; stop it or use another directory",
                                directory);
        return nullptr;
    }
    // `pccl-master end` reads this to find the process that it signals.
    const std::string holder = core::formatted("{}{}\n", ::getpid(), ends_at_signal ? heeds_signal : "");
    if (::ftruncate(state->lock, 0) != 0 ||
        ::pwrite(state->lock, holder.data(), holder.size(), 0) != static_cast<ssize_t>(holder.size())) {
        error = core::formatted("cannot write to {}: {}; make room there", lock, std::strerror(errno));
        return nullptr;
    }
    const std::string file = directory + "/journal.db";
    if (sqlite3_open_v2(file.c_str(), &state->database,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr) != SQLITE_OK) {
        error = core::formatted("{}: {}", file,
                                state->database != nullptr ? sqlite3_errmsg(state->database) : "out of memory");
        return nullptr;
    }
    sqlite3_busy_timeout(state->database, static_cast<int>(busy_time.count()));
    // The write-ahead file is truncated after a large transaction, so that it stays as small as the database.
    for (const char* statement :
         {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA journal_size_limit=4194304"}) {
        if (!state->execute(statement, error)) return nullptr;
    }
    const int version = state->user_version();
    if (version != 0 && version != format) {
        error = core::formatted("{} was written by another version of this program (format {}); use that version, or "
                                "another state directory",
                                file, version);
        return nullptr;
    }
    const std::string stamp = core::formatted("PRAGMA user_version={}", format);
    for (const char* statement :
         {"CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL)",
          stamp.c_str()}) {
        if (!state->execute(statement, error)) return nullptr;
    }
    if (!state->prepare("INSERT INTO records (record) VALUES (?)", state->insert, error) ||
        !state->prepare("DELETE FROM records WHERE number < ?", state->drop_older, error)) {
        return nullptr;
    }
    return std::unique_ptr<JournalStore>(new JournalStore(std::move(state)));
}

JournalStore::Holder JournalStore::holder(int lock) {
    char text[40] = {};
    if (::pread(lock, text, sizeof text - 1, 0) <= 0) return {};
    char* end = nullptr;
    const long process = std::strtol(text, &end, 10);
    return {process > 0 ? static_cast<pid_t>(process) : 0, std::string(end) == std::string(heeds_signal) + "\n"};
}

bool JournalStore::read(std::vector<std::string>& records, std::string& error) {
    sqlite3_stmt* select = nullptr;
    int step = sqlite3_prepare_v2(state_->database, "SELECT record FROM records ORDER BY number", -1, &select, nullptr);
    while (step == SQLITE_OK || step == SQLITE_ROW) {
        step = sqlite3_step(select);
        if (step != SQLITE_ROW) break;
        const auto* bytes = static_cast<const char*>(sqlite3_column_blob(select, 0));
        records.emplace_back(bytes != nullptr ? bytes : "", static_cast<std::size_t>(sqlite3_column_bytes(select, 0)));
    }
    if (step != SQLITE_DONE) error = state_->failure();
    sqlite3_finalize(select);
    return step == SQLITE_DONE;
}

void JournalStore::start(Written written) {
    state_->written = std::move(written);
    // This thread must handle no signal of the host. If a file may not grow (RLIMIT_FSIZE), a write fails with an error
    // and also raises a signal, which would end the process.
    const SignalsBlocked blocked;
    // The state lives as long as its thread: a thread that hangs on its disk outlives this object.
    state_->writer = std::thread([state = state_] { state->run(); });
}

void JournalStore::append(std::uint64_t sequence, std::string record, bool supersedes) {
    {
        const std::lock_guard guard(state_->mutex);
        state_->pending.push_back(Pending{sequence, std::move(record), supersedes});
    }
    state_->changed.notify_one();
}

JournalStore::Ended JournalStore::end(std::chrono::milliseconds patience, bool clears, std::string& error) {
    State& state = *state_;
    if (state.writer.joinable()) {
        std::unique_lock guard(state.mutex);
        state.clears = clears;
        state.stopping = true;
        state.changed.notify_all();
        if (!state.changed.wait_for(guard, patience, [&] { return state.ended; })) {
            state.abandoned = true;
            state.writer.detach();
            if (state.writing || !state.pending.empty() || state.failed) return Ended::not_written;
            if (!clears) return Ended::well;
            error = core::formatted("{}/journal.db: the disk does not answer", state.directory);
            return Ended::not_cleared;
        }
        guard.unlock();
        state.writer.join();
    } else if (!state.abandoned && state.database != nullptr) {
        if (clears) state.clear();
        state.close_database();
    }
    if (state.abandoned || state.failed) return Ended::not_written;
    if (!state.not_cleared) return Ended::well;
    error = state.why_not_cleared;
    return Ended::not_cleared;
}

bool JournalStore::finish(std::chrono::milliseconds patience) {
    std::string ignored;
    return end(patience, false, ignored) != Ended::not_written;
}

}  // namespace pccl::real
