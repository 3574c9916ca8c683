// The master's log of decisions: what is promised, and how much of it is on the disk.
//
// The log applies each record to RunState and gives it to the driver, which writes it. It numbers decisions, allots the
// ids of operations, and replaces a long journal by a snapshot. It measures how long the disk has not answered. It has
// no access to links: other parts tell decisions to members, and hold messages until a record is durable.
//
// Invariants: only records change RunState, except for acknowledgements of members. A decision has the index and the
// chain that follow those of the last one. Ids of operations, synchronizations and tests never repeat in a run.
#pragma once

#include "core/journal/run_state.hpp"
#include "core/turn.hpp"
#include "core/wire/control.pb.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace pccl::core {

class DecisionLog {
public:
    class Owner {
    public:
        virtual void recording(const proto::Record& record) = 0;    // before it changes the state
        virtual void decided(const proto::Decision& decision) = 0;  // it is recorded, but not told to anybody yet

    protected:
        ~Owner() = default;
    };

    DecisionLog(Turn& turn, Owner& owner) : turn_(turn), owner_(owner), state_(turn.limits.removed_kept) {}

    // Replays a journal. False: it is damaged, or not one of this program.
    bool read(std::span<const std::string> journal);
    const RunState& state() const { return state_; }

    void record(const proto::Record& record);
    void append(proto::Decision& decision);
    void acknowledge(const Uuid& member, std::uint64_t seen) { state_.acknowledge(member, seen); }
    // Ids of operations, synchronizations and tests: the upper half is the incarnation.
    OpId next_id();
    OpId last_id() const { return (static_cast<OpId>(state_.incarnation) << 32) | op_counter_; }
    // Call this between two events, when nothing is under way, and not during a grace. Acknowledgements are not
    // journalled, so until members resume and name their last decision, every decision since the last snapshot is kept
    // for them.
    void compact_if_due();

    // ---- the disk
    std::uint64_t last_sequence() const { return last_sequence_; }
    bool durable(std::uint64_t sequence) const { return sequence <= durable_sequence_; }
    bool all_durable() const { return durable(last_sequence_); }
    std::uint64_t durable_sequence() const { return durable_sequence_; }
    // Since when records wait and none became durable; never: no record waits.
    Instant unwritten_since() const { return unwritten_since_; }
    bool complained() const { return unwritten_told_; }
    // Returns how long the disk had not answered.
    Duration written(std::uint64_t sequence);
    // This machine did not run for `gap`. That does not count against the disk.
    void slept(Duration gap);
    // A warning for all members about a disk that neither takes a record nor fails; once, until the disk answers again.
    std::optional<std::string> complaint();
    // Why the master stops, if the operator set Timeouts::journal and it has passed. Held messages are dropped: nobody
    // received them, and a restart continues the run whether the journal has their records or not.
    std::optional<Cause> gives_up() const;
    void check() const;

private:
    void write(std::string bytes, bool snapshot);

    Turn& turn_;
    Owner& owner_;
    RunState state_;
    std::uint32_t op_counter_ = 0;  // of this incarnation
    std::uint64_t last_sequence_ = 0;
    std::uint64_t durable_sequence_ = 0;
    Instant unwritten_since_ = never;
    bool unwritten_told_ = false;
    // Sizes of the journal after its last snapshot, and of that snapshot.
    std::uint64_t journal_records_ = 0;
    std::uint64_t journal_bytes_ = 0;
    std::uint64_t snapshot_bytes_ = 0;
};

}  // namespace pccl::core
