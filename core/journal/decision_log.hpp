// The master's log of decisions: what is promised, and how much of it the disk has.
//
// It applies each record to RunState and gives it to the driver to be written, numbers decisions and names operations, replaces
// a long journal by a snapshot, and knows since when the disk has not answered. It knows no links: whom a decision is told, and
// what is held until a record is durable, is the matter of others.
//
// Invariants: RunState changes by records alone. A decision has the index and the chain that follow the last one's. Names of
// operations, synchronizations and tests never repeat in a run.
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
        virtual void decided(const proto::Decision& decision) = 0;  // it is recorded, and nobody was told yet

    protected:
        ~Owner() = default;
    };

    DecisionLog(Turn& turn, Owner& owner) : turn_(turn), owner_(owner), state_(turn.limits.removed_kept) {}

    // Takes up a journal. False: it is damaged, or not one of this program.
    bool read(std::span<const std::string> journal);
    const RunState& state() const { return state_; }

    void record(const proto::Record& record);
    void append(proto::Decision& decision);
    void acknowledge(const Uuid& member, std::uint64_t seen) { state_.acknowledge(member, seen); }
    // Names of operations, synchronizations and tests: the upper half is the incarnation.
    OpId next_id();
    OpId last_id() const { return (static_cast<OpId>(state_.incarnation) << 32) | op_counter_; }
    // Between two events, so that nothing is under way; not in a grace: every decision since the last snapshot is still kept
    // for all members then, as their hellos carry what they know.
    void compact_if_due();

    // ---- the disk
    std::uint64_t last_sequence() const { return last_sequence_; }
    bool durable(std::uint64_t sequence) const { return sequence <= durable_sequence_; }
    bool all_durable() const { return durable(last_sequence_); }
    std::uint64_t durable_sequence() const { return durable_sequence_; }
    // Since when no record became durable although one waits; never: none waits.
    Instant unwritten_since() const { return unwritten_since_; }
    bool complained() const { return unwritten_told_; }
    // Returns how long the disk had not answered.
    Duration written(std::uint64_t sequence);
    // This machine did not run: the disk is not blamed for it.
    void slept(Duration gap);
    // What to tell everybody about a disk that neither takes a record nor fails; once, until it answers again.
    std::optional<std::string> complaint();
    // Why the master stops, where the operator set Timeouts::journal. What was held is dropped: nobody was told, and a journal
    // that lacks it or has it is taken up in the same way.
    std::optional<std::string> gives_up() const;

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
    // Of the journal behind its last snapshot, and of that one.
    std::uint64_t journal_records_ = 0;
    std::uint64_t journal_bytes_ = 0;
    std::uint64_t snapshot_bytes_ = 0;
};

}  // namespace pccl::core
