#include "net-real/journal_store.hpp"

#include "net-real/descriptors.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <iterator>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pccl::real {

namespace {

constexpr std::size_t batch_max = 4096;  // records of one transaction

struct Pending {
    std::uint64_t sequence = 0;
    std::string record;
};

}  // namespace

struct JournalStore::State {
    std::string directory;
    int lock = -1;
    sqlite3* database = nullptr;
    sqlite3_stmt* insert = nullptr;
    Written written;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Pending> pending;
    bool stopping = false;
    std::thread writer;

    ~State() {
        sqlite3_finalize(insert);
        sqlite3_close(database);
        if (lock < 0) return;
        const std::lock_guard guard(descriptors::guard());
        descriptors::untrack(lock);
        ::close(lock);
    }
    bool execute(const char* statement, std::string& error) {
        if (sqlite3_exec(database, statement, nullptr, nullptr, nullptr) == SQLITE_OK) return true;
        error = directory + "/journal.db: " + sqlite3_errmsg(database);
        return false;
    }
    bool write(const std::vector<Pending>& batch, std::string& error) {
        if (!execute("BEGIN IMMEDIATE", error)) return false;
        for (const Pending& item : batch) {
            sqlite3_reset(insert);
            sqlite3_bind_blob64(insert, 1, item.record.data(), item.record.size(), SQLITE_STATIC);
            if (sqlite3_step(insert) != SQLITE_DONE) {
                error = directory + "/journal.db: " + sqlite3_errmsg(database);
                std::string ignored;
                (void)execute("ROLLBACK", ignored);
                return false;
            }
        }
        sqlite3_reset(insert);
        return execute("COMMIT", error);
    }
    void run() {
        std::vector<Pending> batch;
        for (bool failed = false;;) {
            {
                std::unique_lock guard(mutex);
                changed.wait(guard, [&] { return stopping || !pending.empty(); });
                if (pending.empty()) return;
                const std::size_t count = std::min(pending.size(), batch_max);
                const auto end = pending.begin() + static_cast<std::ptrdiff_t>(count);
                batch.assign(std::make_move_iterator(pending.begin()), std::make_move_iterator(end));
                pending.erase(pending.begin(), end);
            }
            if (failed) continue;  // dropped: the failure was told
            std::string error;
            failed = !write(batch, error);
            written(batch.back().sequence, error);
        }
    }
};

JournalStore::JournalStore(std::unique_ptr<State> state) : state_(std::move(state)) {}

JournalStore::~JournalStore() { finish(); }

std::unique_ptr<JournalStore> JournalStore::open(const std::string& directory, std::string& error) {
    auto state = std::make_unique<State>();
    state->directory = directory;
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
        error = "cannot create the state directory " + directory + ": " + std::strerror(errno);
        return nullptr;
    }
    const std::string lock = directory + "/lock";
    {
        // A forked child must not hold the lock of a master that was killed.
        const std::lock_guard guard(descriptors::guard());
        state->lock = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (state->lock >= 0) descriptors::track(state->lock);
    }
    if (state->lock < 0) {
        error = "cannot write to the state directory " + directory + ": " + std::strerror(errno);
        return nullptr;
    }
    if (::flock(state->lock, LOCK_EX | LOCK_NB) != 0) {
        error = "the state directory " + directory + " is in use by another master; stop it or use another directory";
        return nullptr;
    }
    const std::string file = directory + "/journal.db";
    if (sqlite3_open_v2(file.c_str(), &state->database,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr) != SQLITE_OK) {
        error = file + ": " + (state->database != nullptr ? sqlite3_errmsg(state->database) : "out of memory");
        return nullptr;
    }
    for (const char* statement :
         {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL",
          "CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL)"}) {
        if (!state->execute(statement, error)) return nullptr;
    }
    if (sqlite3_prepare_v2(state->database, "INSERT INTO records (record) VALUES (?)", -1, &state->insert, nullptr) !=
        SQLITE_OK) {
        error = file + ": " + sqlite3_errmsg(state->database) + "; is it a journal of this program?";
        return nullptr;
    }
    return std::unique_ptr<JournalStore>(new JournalStore(std::move(state)));
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
    if (step != SQLITE_DONE) error = state_->directory + "/journal.db: " + sqlite3_errmsg(state_->database);
    sqlite3_finalize(select);
    return step == SQLITE_DONE;
}

void JournalStore::start(Written written) {
    state_->written = std::move(written);
    state_->writer = std::thread([state = state_.get()] { state->run(); });
}

void JournalStore::append(std::uint64_t sequence, std::string record) {
    {
        const std::lock_guard guard(state_->mutex);
        state_->pending.push_back(Pending{sequence, std::move(record)});
    }
    state_->changed.notify_one();
}

void JournalStore::finish() {
    {
        const std::lock_guard guard(state_->mutex);
        state_->stopping = true;
    }
    state_->changed.notify_one();
    if (state_->writer.joinable()) state_->writer.join();
}

void JournalStore::clear() {
    std::string error;
    (void)state_->execute("DELETE FROM records", error);
}

}  // namespace pccl::real
