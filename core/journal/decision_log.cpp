#include "core/journal/decision_log.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/journal/journal.hpp"
#include "core/wire/bounds.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace pccl::core {

namespace {

constexpr Duration unwritten_warn = 5 * second;
constexpr std::size_t snapshot_bytes_most = 900'000'000;  // databases limit the length of a value to 1,000,000,000

}  // namespace

bool DecisionLog::read(std::span<const std::string> journal) {
    proto::Record record;
    JournalReader reader(journal);
    for (auto step = reader.next(record); step != JournalReader::Step::end; step = reader.next(record)) {
        if (step == JournalReader::Step::damaged || !state_.apply(record)) return false;
        if (record.has_snapshot()) {
            PROBE(snapshot_read);
            journal_records_ = journal_bytes_ = 0;
            snapshot_bytes_ = record.ByteSizeLong();
        } else {
            ++journal_records_;
            journal_bytes_ += record.ByteSizeLong();
        }
    }
    if (reader.torn() != 0) {
        PROBE(journal_torn);
        turn_.log(LogLevel::warn, "the journal ends with a record that was not written in full; skipped");
    }
    return true;
}

void DecisionLog::record(const proto::Record& record) {
    owner_.recording(record);
    const bool ours = state_.apply(record);
    ASSERT(ours);
    std::string bytes = seal_record(record);
    ++journal_records_;
    journal_bytes_ += bytes.size();
    write(std::move(bytes), false);
}

void DecisionLog::write(std::string bytes, bool snapshot) {
    if (unwritten_since_ == never) unwritten_since_ = turn_.now;
    turn_.add(Persist{++last_sequence_, std::move(bytes), snapshot});
}

void DecisionLog::append(proto::Decision& decision) {
    wire::bound_texts(decision, text_bytes_max);
    decision.set_index(state_.last_index + 1);
    decision.set_chain(state_.chain_of(decision));
    proto::Record entry;
    *entry.mutable_decision() = decision;
    record(entry);
    // The decision carries the world sizes that hold after it.
    if (decision.has_sizes()) ASSERT(state_.has_sizes(decision.sizes()));
    owner_.decided(decision);
}

// When the ids of an incarnation are used up, the next incarnation begins, as after a restart.
OpId DecisionLog::next_id() {
    if (op_counter_ >= turn_.limits.ids_per_incarnation) {
        PROBE(ids_of_incarnation_used_up);
        proto::Record entry;
        entry.set_incarnation(state_.incarnation + 1);
        record(entry);
        op_counter_ = 0;
    }
    return (static_cast<OpId>(state_.incarnation) << 32) | ++op_counter_;
}

// Keeps the journal of a long run bounded: a snapshot supersedes all records before it. The larger the last snapshot,
// the longer the journal must grow before the next one (amortised O(1)).
void DecisionLog::compact_if_due() {
    if (journal_records_ < turn_.limits.journal_records || journal_bytes_ < snapshot_bytes_) return;
    proto::Record entry;
    *entry.mutable_snapshot() = state_.snapshot();
    journal_records_ = journal_bytes_ = 0;
    RunState again(turn_.limits.removed_kept);
    if (entry.ByteSizeLong() > snapshot_bytes_most || !again.apply(entry) || again != state_) {
        // A longer journal is better than a wrong one.
        turn_.log(LogLevel::error, "the journal cannot be compacted: its snapshot does not give the same state again");
        return;
    }
    std::string bytes = seal_record(entry);
    PROBE(journal_compacted);
    if (!state_.ops.empty()) PROBE(compacted_with_operation);
    if (!state_.kept().empty()) PROBE(compacted_with_untold);
    snapshot_bytes_ = bytes.size();
    write(std::move(bytes), true);
}

Duration DecisionLog::written(std::uint64_t sequence) {
    ASSERT(sequence <= last_sequence_);
    const Duration hung = unwritten_since_ == never ? 0 : turn_.now - unwritten_since_;
    durable_sequence_ = std::max(durable_sequence_, sequence);
    unwritten_since_ = durable_sequence_ < last_sequence_ ? turn_.now : never;
    if (std::exchange(unwritten_told_, false)) turn_.log(LogLevel::warn, "the journal is written again");
    return hung;
}

void DecisionLog::slept(Duration gap) {
    // How long the disk may be silent before the first consequence, which is the warning or the stop.
    const Duration limit = turn_.timeouts.journal;
    const Duration patience = limit == 0 ? unwritten_warn : std::min(limit, unwritten_warn);
    if (gap > patience / 4 && unwritten_since_ != never) unwritten_since_ = turn_.now;
}

std::optional<std::string> DecisionLog::complaint() {
    if (unwritten_told_ || unwritten_since_ == never || turn_.now - unwritten_since_ < unwritten_warn)
        return std::nullopt;
    PROBE(journal_hangs);
    unwritten_told_ = true;
    return formatted(
        "the disk of the master's journal has not answered for {} s; every call waits for it. Check the disk "
        "of the master's state directory",
        (turn_.now - unwritten_since_) / second);
}

std::optional<Cause> DecisionLog::gives_up() const {
    const Duration limit = turn_.timeouts.journal;
    if (limit == 0 || unwritten_since_ == never || turn_.now - unwritten_since_ < limit) return std::nullopt;
    PROBE(journal_given_up);
    return make_cause<CauseKind::journal_silent>((turn_.now - unwritten_since_) / second);
}

void DecisionLog::check() const {
    state_.check();
    ASSERT(durable_sequence_ <= last_sequence_);
    ASSERT((unwritten_since_ == never) == (durable_sequence_ == last_sequence_));
}

}  // namespace pccl::core
