#include "core/membership/tallies.hpp"

#include "core/base/assert.hpp"
#include "core/numeric/types.hpp"
#include "core/voting/in_vote.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

void Tallies::recording(const proto::Record& record) {
    if (record.has_run()) {
        groups_.clear();
        operations_.clear();
    }
    if (!record.has_decision()) return;
    const proto::Decision& decision = record.decision();
    if (decision.has_topology()) {
        admitted_ += static_cast<std::uint64_t>(decision.topology().admitted_size());
    } else if (decision.has_removal()) {
        const proto::RemovalDecision& removal = decision.removal();
        note_removal(uuid_of(removal.uuid()), cause_of(decision.cause()));
        for (const std::string& mate : removal.mates()) note_removal(uuid_of(mate), cause_of(removal.mates_cause()));
        end_if_empty(removal.ring());
        for (const proto::RingRecord& ring : removal.mates_rings()) end_if_empty(ring);
    } else if (decision.has_start()) {
        MasterStatus::Tally& tally = groups_[decision.start().group()];
        ++(decision.start().op() == 0 ? tally.refused : tally.started);
        if (decision.start().reduced()) {
            ++tally.committed;
            tally.committed_bytes += decision.start().result().size();
        }
    } else if (decision.has_outcome()) {
        const auto op = state_.ops.find(decision.outcome().op());
        if (op == state_.ops.end()) return;
        MasterStatus::Tally& tally = groups_[op->second.group];
        ++(decision.outcome().commit() ? tally.committed : tally.aborted);
        const auto begun = operations_.find(op->first);
        if (begun == operations_.end()) return;
        if (decision.outcome().commit()) tally.committed_bytes += begun->second.bytes;
        operations_.erase(begun);
    } else if (decision.has_sync() && decision.sync().final() && state_.groups.contains(decision.sync().group())) {
        const auto& seats = decision.seats();
        const bool success =
            std::any_of(seats.begin(), seats.end(), [&](const auto& seat) { return result_in(decision, seat) == 0; });
        if (success) ++groups_[decision.sync().group()].syncs;
    }
}

void Tallies::note_removal(const Uuid& member, const Cause& cause) {
    ++removed_;
    removals_.push_back({member, cause, turn_.now});
    if (removals_.size() > turn_.limits.removals_listed) removals_.pop_front();
}

// A group ends with its last member.
void Tallies::end_if_empty(const proto::RingRecord& ring) {
    if (ring.order_size() != 0) return;
    groups_.erase(ring.group());
    for (const auto& [id, op] : state_.ops) {
        if (op.group == ring.group()) operations_.erase(id);
    }
}

// The size of an operation is not in its decision. It is in the votes, which are gone once the decision is made.
void Tallies::started(OpId id, const Ballot& ballot) {
    const proto::Shape& shape = ballot.votes().begin()->second.vote.shape();
    std::uint64_t count = shape.count();
    switch (static_cast<CollectiveKind>(shape.collective())) {
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_all:
    case CollectiveKind::send:  // their shapes have no count
        for (const auto& [uuid, cast] : ballot.votes()) count += input_elements(cast.vote, uuid);
        break;
    default: break;
    }
    operations_[id] = {turn_.now, count * element_bytes(static_cast<DataType>(shape.type()))};
}

void Tallies::check() const {
    ASSERT(removals_.size() <= turn_.limits.removals_listed);
    for (const auto& [id, begun] : operations_) ASSERT(state_.ops.contains(id));
}

}  // namespace pccl::core
