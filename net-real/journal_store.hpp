// The master's journal in a directory. Acknowledged records survive a crash of the process and of the machine.
//
// It consists of one SQLite database (journal.db, write-ahead log, full synchronisation) and one lock: a directory
// serves one master at a time. A thread of its own writes the records, several in one transaction if they come faster
// than the disk takes them, and acknowledges them in order. A failed write is reported once; nothing is written after
// it. A record that supersedes the others replaces them in one transaction, so the file does not grow with the length
// of the run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

namespace pccl::real {

class JournalStore {
public:
    // Creates the directory; its parent must exist. Null on failure, then `error` names the cause and the remedy.
    // `ends_at_signal`: this process ends the run on SIGUSR1. The lock file records that.
    static std::unique_ptr<JournalStore> open(const std::string& directory, std::string& error,
                                              bool ends_at_signal = false);
    // What the holder of a directory wrote into its lock file.
    struct Holder {
        pid_t process = 0;  // 0: not written yet
        bool ends_at_signal = false;
    };
    static Holder holder(int lock);
    ~JournalStore();  // finish()

    // All records, in order. Call it before the first append.
    bool read(std::vector<std::string>& records, std::string& error);

    // Called on the writer's thread. `error` empty: everything up to `sequence` is durable. Otherwise nothing more will
    // be.
    using Written = std::function<void(std::uint64_t sequence, const std::string& error)>;
    void start(Written written);
    // Any thread; does not block. The caller bounds the queue: a master sends nothing that depends on a record before
    // that record is written, so each peer has at most its open votes waiting here.
    void append(std::uint64_t sequence, std::string record, bool supersedes = false);
    enum class Ended : std::uint8_t { well, not_written, not_cleared };
    // Waits until everything that was appended is written and the database is closed, at most for `patience`. A disk
    // that does not answer by then (a dead network mount) is abandoned together with the thread. `clears`: the thread
    // also deletes all records, because the run has ended on purpose; not_cleared: `error` says why the file may have
    // them still. Append nothing afterwards. Without start() the calling thread does this, and has no limit.
    Ended end(std::chrono::milliseconds patience, bool clears, std::string& error);
    // end() that keeps the records. False: not all is written.
    bool finish(std::chrono::milliseconds patience = close_time);

    static constexpr std::chrono::seconds close_time{10};
    // How long one attempt waits for another program that has locked the database. Attempts are repeated until it is
    // free.
    static constexpr std::chrono::milliseconds busy_time{2000};

private:
    struct State;
    explicit JournalStore(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
};

}  // namespace pccl::real
