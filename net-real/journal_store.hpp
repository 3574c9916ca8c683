// The master's journal in a directory: what was acknowledged is there after a crash of the process or of the machine.
//
// One SQLite database (journal.db, write-ahead log, full synchronisation) and one lock: a directory serves one master at a
// time. Records are written by a thread of its own, several in one transaction when they come faster than the disk takes
// them, and acknowledged in order. A write that fails is told once; nothing is written after it. A record that supersedes
// the others replaces them in one transaction, so the file does not grow with the length of the run.
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
    // Creates the directory (its parent must exist). Null: `error` names the cause and the remedy. `ends_at_signal`: this
    // process ends the run when SIGUSR1 comes; the lock says so.
    static std::unique_ptr<JournalStore> open(const std::string& directory, std::string& error,
                                              bool ends_at_signal = false);
    // What the holder of a directory wrote into its lock.
    struct Holder {
        pid_t process = 0;  // 0: nothing yet
        bool ends_at_signal = false;
    };
    static Holder holder(int lock);
    ~JournalStore();  // finish(), then closes

    // All records, in order. Before the first append.
    bool read(std::vector<std::string>& records, std::string& error);

    // Called on the writer's thread: everything up to `sequence` is durable, or (error not empty) nothing more will be.
    using Written = std::function<void(std::uint64_t sequence, const std::string& error)>;
    void start(Written written);
    // Any thread; does not block. What waits is bounded by the caller: a master says nothing that rests on a record before
    // it is written, so each peer has at most its open votes waiting here.
    void append(std::uint64_t sequence, std::string record, bool supersedes = false);
    // Waits until what was appended is written, for `patience` at most: a disk that does not answer (a dead network
    // mount) is left alone then, with its thread. Nothing may be appended afterwards. False: not all is written.
    bool finish(std::chrono::milliseconds patience = close_time);
    // Forgets all records: the run has ended on purpose. After a finish() that was true.
    void clear();

    static constexpr std::chrono::seconds close_time{10};
    // Patience of one attempt with another program that has locked the database; attempts are repeated until it is free.
    static constexpr std::chrono::milliseconds busy_time{2000};

private:
    struct State;
    explicit JournalStore(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
};

}  // namespace pccl::real
