// The master's ballots: a vote comes in, and when its ballot is complete a decision goes out.
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/membership/master_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

void MasterCore::add_seats(const Ballot& ballot, google::protobuf::RepeatedPtrField<proto::Seat>& seats) {
    for (const auto& [uuid, cast] : ballot.votes()) {
        auto* seat = seats.Add();
        seat->set_uuid(to_bytes(uuid));
        seat->set_serial(cast.serial);
    }
}

namespace {

std::string shape_text(const proto::Vote& vote) {
    std::string text = "count " + std::to_string(vote.count()) + " type " + std::to_string(vote.type()) + " op " +
                       std::to_string(vote.op());
    if (vote.quantization() != 0) {
        text += " quantization " + std::to_string(vote.quantization()) + " to type " +
                std::to_string(vote.quantized_type()) + " hint " + std::to_string(vote.distribution_hint());
    }
    return text;
}

// Empty when all votes ask for the same reduction, else who differs in what.
std::string shape_mismatch(const Ballot& ballot) {
    const auto& first = *ballot.votes().begin();
    for (const auto& [uuid, cast] : ballot.votes()) {
        const auto& mine = cast.vote;
        const auto& other = first.second.vote;
        const char* what = mine.count() != other.count()                           ? "count"
                           : mine.type() != other.type()                           ? "data type"
                           : mine.op() != other.op()                               ? "operation"
                           : mine.slice_bytes() != other.slice_bytes()             ? "slice size"
                           : mine.quantization() != other.quantization()           ? "quantization algorithm"
                           : mine.quantized_type() != other.quantized_type()       ? "quantized data type"
                           : mine.distribution_hint() != other.distribution_hint() ? "distribution hint"
                                                                                   : nullptr;
        if (what != nullptr) {
            return std::string("the members' collectives differ in ") + what + ": peer " + short_name(first.first) +
                   " has " + shape_text(other) + ", peer " + short_name(uuid) + " has " + shape_text(mine);
        }
    }
    return {};
}

}  // namespace

void MasterCore::on_vote(const Uuid& uuid, const proto::Vote& vote) {
    // Two texts, a name and numbers. It is kept until its ballot is complete, with fields that are not known here.
    constexpr std::size_t vote_bytes_max = 4 * text_bytes_max;
    if (vote.ByteSizeLong() > vote_bytes_max) return remove(uuid, "sent a vote that is larger than one can be");
    const MemberState& member = state_.members.at(uuid);
    if (member.consumed.contains(vote.serial())) PROBE(vote_used_already);
    if (member.consumed.contains(vote.serial())) return;  // decided; its answer is on the way again
    BallotKey key;
    key.kind = vote.kind();
    switch (vote.kind()) {
    case proto::VOTE_UPDATE_TOPOLOGY:
    case proto::VOTE_OPTIMIZE_TOPOLOGY:
    case proto::VOTE_PEERS_PENDING: break;
    case proto::VOTE_START:
        key.group = member.group;
        key.id = vote.id();
        if (vote.type() >= data_type_count || vote.op() >= reduce_op_count) {
            remove(uuid, "voted for a collective of unknown type or operation");
            return;
        }
        if (ballots_.find(key) == nullptr && ballots_.all().size() >= state_.members.size() * starts_max) {
            remove_hoarders();
            if (!state_.members.contains(uuid)) return;
        }
        break;
    case proto::VOTE_END: {
        const auto op = state_.ops.find(vote.id());
        if (op == state_.ops.end()) PROBE(end_vote_too_late);
        if (op == state_.ops.end()) return;
        const auto& seats = op->second.members;
        if (std::none_of(seats.begin(), seats.end(), [&](const SeatState& seat) { return seat.uuid == uuid; })) return;
        if (Uuid stuck; !vote.ok() && !vote.stuck().empty() && read(vote.stuck(), stuck))
            on_stuck(op->first, op->second, uuid, stuck);
        key.group = op->second.group;
        key.id = vote.id();
        break;
    }
    case proto::VOTE_SYNC:
        key.group = member.group;
        if (vote.entries() > config_.limits.entries_max) {
            remove(uuid, "shared state has more entries than the limit");
            return;
        }
        if (vote.strategy() >= sync_strategy_count) {
            remove(uuid, "voted for a synchronization of unknown strategy");
            return;
        }
        if (vote.revision() > config_.limits.revision_max) {
            remove(uuid, "submitted an impossible shared-state revision");
            return;
        }
        break;
    case proto::VOTE_SYNC_END: {
        const auto& group = state_.groups.at(member.group);
        if (!group.sync || group.sync->id != vote.id()) PROBE(sync_end_vote_too_late);
        if (!group.sync || group.sync->id != vote.id()) return;
        key.group = member.group;
        key.id = vote.id();
        break;
    }
    default: return;
    }
    Ballot& ballot = ballots_.open(key, now_);
    if (ballot.has(uuid)) PROBE(vote_replaced);
    ballot.cast(uuid, vote, now_);
    dirty_.push_back(key);
    // This vote may prove that an update is not shared by all members.
    const BallotKey update{proto::VOTE_UPDATE_TOPOLOGY, 0, 0};
    if (key != update && ballots_.find(update) != nullptr) dirty_.push_back(update);
}

// More tags than all members together may have launched: some have voted for more than they may launch.
void MasterCore::remove_hoarders() {
    std::map<Uuid, std::size_t> starts;
    for (const auto& [key, ballot] : ballots_.all()) {
        if (key.kind != proto::VOTE_START) continue;
        for (const auto& [uuid, cast] : ballot.votes()) ++starts[uuid];
    }
    for (const auto& [uuid, count] : starts) {
        if (count <= starts_max || !state_.members.contains(uuid)) continue;
        remove(uuid, "voted for the start of " + std::to_string(count) + " collectives at once");
    }
}

std::vector<Uuid> MasterCore::electors_of(const BallotKey& key) const {
    const auto alive = [&](const std::vector<SeatState>& seats) {
        std::vector<Uuid> out;
        for (const SeatState& seat : seats) {
            if (state_.members.contains(seat.uuid)) out.push_back(seat.uuid);
        }
        return out;
    };
    switch (key.kind) {
    case proto::VOTE_UPDATE_TOPOLOGY:
    case proto::VOTE_OPTIMIZE_TOPOLOGY:
    case proto::VOTE_PEERS_PENDING: return state_.everyone();
    case proto::VOTE_START:
    case proto::VOTE_SYNC: {
        const auto group = state_.groups.find(key.group);
        return group == state_.groups.end() ? std::vector<Uuid>{} : group->second.ring;
    }
    case proto::VOTE_END: {
        const auto op = state_.ops.find(key.id);
        return op == state_.ops.end() ? std::vector<Uuid>{} : alive(op->second.members);
    }
    case proto::VOTE_SYNC_END: {
        const auto group = state_.groups.find(key.group);
        if (group == state_.groups.end() || !group->second.sync) return {};
        return alive(group->second.sync->members);
    }
    default: return {};
    }
}

// What no vote of an absent member can change is decided in a grace too: a vote against an operation is never taken back, so
// nobody was told a commit, and those who are here need not wait for those who may never come.
void MasterCore::abort_refused() {
    std::vector<BallotKey> dirty = std::move(dirty_);
    dirty_.clear();
    for (const BallotKey& key : dirty) {
        const Ballot* ballot = key.kind == proto::VOTE_END ? ballots_.find(key) : nullptr;
        const bool refused =
            ballot != nullptr && std::any_of(ballot->votes().begin(), ballot->votes().end(),
                                             [](const auto& entry) { return !entry.second.vote.ok(); });
        if (refused) {
            PROBE(aborted_in_grace);
            examine_op(key.id);
        }
    }
}

void MasterCore::settle() {
    if (stopped_) return;
    if (in_grace()) {
        abort_refused();
        return;
    }
    // Each round decides a ballot, changes the membership or a ring, or is the last one. What a bounded number of rounds
    // leaves over is done at the next event or tick.
    for (int round = 0; round < 10'000; ++round) {
        admit_orphans();
        if (topology_dirty_) {
            topology_dirty_ = false;
            maintain_topology();
        }
        if (examine_all_) {
            examine_all_ = false;
            dirty_.clear();
            examine_everything();
        } else if (!dirty_.empty()) {
            const std::vector<BallotKey> dirty = std::move(dirty_);
            dirty_.clear();
            for (const BallotKey& key : dirty) examine(key);
        } else if (!topology_dirty_) {
            std::vector<GroupId> groups;
            for (const auto& [group, waiting] : waiting_starts_) groups.push_back(group);
            for (const GroupId group : groups) start_waiting(group);
            if (!examine_all_ && dirty_.empty() && !topology_dirty_) return;
        }
    }
    log(LogLevel::error, "more decisions at once than expected; the rest follows at the next tick");
}

void MasterCore::examine_everything() {
    // Operations without any vote have no ballot: they are examined too.
    std::vector<OpId> ops;
    for (const auto& [id, op] : state_.ops) ops.push_back(id);
    for (const OpId id : ops) examine_op(id);
    std::vector<GroupId> groups;
    for (const auto& [id, group] : state_.groups) groups.push_back(id);
    for (const GroupId id : groups) examine_sync_end(id);
    std::vector<BallotKey> keys;
    for (const auto& [key, ballot] : ballots_.all()) keys.push_back(key);
    for (const BallotKey& key : keys) examine(key);
}

void MasterCore::examine(const BallotKey& key) {
    if (key.kind == proto::VOTE_OPTIMIZE_TOPOLOGY) return examine_optimize(key);
    Ballot* ballot = ballots_.find(key);
    if (ballot == nullptr) return;
    switch (key.kind) {
    case proto::VOTE_UPDATE_TOPOLOGY:
        if (ballot->complete(electors_of(key)))
            decide_topology(ballots_.take(key));
        else
            answer_early_updates();
        break;
    case proto::VOTE_PEERS_PENDING:
        if (ballot->complete(electors_of(key))) decide_pending(ballots_.take(key));
        break;
    case proto::VOTE_START:
        if (!ballot->complete(electors_of(key))) break;
        if (ballot->completed_order == 0) {
            ballot->completed_order = ++completed_order_;
            waiting_starts_[key.group][ballot->completed_order] = key.id;
        }
        start_waiting(key.group);
        break;
    case proto::VOTE_END: examine_op(key.id); break;
    case proto::VOTE_SYNC: examine_sync(key); break;
    case proto::VOTE_SYNC_END: examine_sync_end(key.group); break;
    default: break;
    }
}

void MasterCore::decide_topology(Ballot ballot) {
    proto::Decision decision;
    add_seats(ballot, *decision.mutable_topology()->mutable_voters());
    add_admissions(*decision.mutable_topology(), false);
    append(decision);
    if (decision.topology().admitted_size() > 0) topology_dirty_ = examine_all_ = true;
}

// The connect of a newcomer returns together with the update of the members. If its program then updates once more in its
// first turn, while a member waits for it in another call, neither call could end. The newcomer has nothing to update, so
// its vote is answered alone and admits nobody. Without such a member the vote stays: the others may update too.
void MasterCore::answer_early_updates() {
    constexpr Serial first_vote = 1;
    const BallotKey update{proto::VOTE_UPDATE_TOPOLOGY, 0, 0};
    const auto is_waited_for = [&](const Ballot& updates, const Uuid& newcomer) {
        return std::any_of(ballots_.all().begin(), ballots_.all().end(), [&](const auto& entry) {
            const auto& [key, ballot] = entry;
            if (key.kind == proto::VOTE_UPDATE_TOPOLOGY || key.kind == proto::VOTE_END ||
                key.kind == proto::VOTE_SYNC_END || ballot.has(newcomer))
                return false;
            // A voter that updates as well does so on another thread: that ballot proves nothing about it.
            if (std::all_of(ballot.votes().begin(), ballot.votes().end(),
                            [&](const auto& vote) { return updates.has(vote.first); }))
                return false;
            const std::vector<Uuid> electors = electors_of(key);
            return std::find(electors.begin(), electors.end(), newcomer) != electors.end();
        });
    };
    const Ballot& updates = *ballots_.find(update);
    std::vector<std::pair<Uuid, Serial>> early;
    for (const auto& [uuid, cast] : updates.votes()) {
        if (cast.serial == first_vote && is_waited_for(updates, uuid)) early.emplace_back(uuid, cast.serial);
    }
    for (const auto& [uuid, serial] : early) {
        PROBE(early_update_answered);
        ballots_.withdraw(update, uuid);
        proto::Decision decision;
        auto* voter = decision.mutable_topology()->add_voters();
        voter->set_uuid(to_bytes(uuid));
        voter->set_serial(serial);
        *decision.mutable_topology()->mutable_sizes() = state_.sizes();
        append(decision);
    }
}

void MasterCore::decide_pending(Ballot ballot) {
    proto::Decision decision;
    add_seats(ballot, *decision.mutable_pending()->mutable_voters());
    decision.mutable_pending()->set_pending(any_admissible());
    if (decision.pending().pending()) PROBE(pending_told);
    *decision.mutable_pending()->mutable_sizes() = state_.sizes();
    append(decision);
}

void MasterCore::start_waiting(GroupId id) {
    auto& waiting = waiting_starts_[id];
    while (!waiting.empty()) {
        const auto group = state_.groups.find(id);
        const auto first = waiting.begin();
        const BallotKey key{proto::VOTE_START, id, first->second};
        Ballot* ballot = ballots_.find(key);
        if (group == state_.groups.end() || ballot == nullptr || ballot->completed_order != first->first) {
            waiting.erase(first);
            continue;
        }
        const std::vector<Uuid>& ring = group->second.ring;
        if (!ballot->complete(ring)) {
            // A newcomer has to vote too before this one is complete again.
            ballot->completed_order = 0;
            waiting.erase(first);
            continue;
        }
        if (ring.size() < 2) {
            PROBE(start_alone);
            waiting.erase(first);
            refuse_start(key, Result::rank_connection_lost, "all other members of the group are gone");
            continue;
        }
        const std::string mismatch = shape_mismatch(*ballot);
        if (!mismatch.empty()) {
            PROBE(start_mismatch);
            waiting.erase(first);
            refuse_start(key, Result::invalid_argument, mismatch);
            continue;
        }
        const auto gives_up = std::find_if(ballot->votes().begin(), ballot->votes().end(),
                                           [](const auto& entry) { return !entry.second.vote.refused().empty(); });
        if (gives_up != ballot->votes().end()) {
            PROBE(start_given_up);
            const std::string reason = "peer " + short_name(gives_up->first) + " gives tag " + std::to_string(key.id) +
                                       " up: " + gives_up->second.vote.refused();
            waiting.erase(first);
            refuse_start(key, Result::internal_error, reason);
            continue;
        }
        std::uint32_t running_max = ~0u;
        for (const Uuid& uuid : ring) running_max = std::min(running_max, state_.members.at(uuid).concurrent_ops);
        if (group->second.running_ops >= running_max)
            PROBE(start_waits_for_limit);
        else if (!ring_usable(group->second))
            PROBE(start_waits_for_ring);
        if (group->second.running_ops >= running_max || !ring_usable(group->second)) return;
        if (window_full(group->second, *ballot)) {
            PROBE(start_waits_for_window);
            return;
        }
        const Ballot decided = ballots_.take(key);
        waiting.erase(first);
        proto::Decision decision;
        auto* start = decision.mutable_start();
        start->set_op(next_id());
        start->set_group(id);
        start->set_tag(key.id);
        for (const Uuid& uuid : ring) {
            auto* seat = start->add_members();
            seat->set_uuid(to_bytes(uuid));
            seat->set_serial(decided.votes().at(uuid).serial);
            seat->set_batch(decided.votes().at(uuid).vote.batch());
        }
        *start->mutable_sizes() = state_.sizes();
        append(decision);
        tally_start(start->op(), decided);
    }
    waiting_starts_.erase(id);
}

// Some member wants no more of its batch to run at a time. What runs ends by itself, so the place gets free.
bool MasterCore::window_full(const GroupState& group, const Ballot& ballot) const {
    return std::any_of(ballot.votes().begin(), ballot.votes().end(), [&](const auto& entry) {
        const proto::Vote& vote = entry.second.vote;
        if (vote.batch() == 0 || vote.window() == 0) return false;
        const auto running = group.running_of_batch.find({entry.first, vote.batch()});
        return running != group.running_of_batch.end() && running->second >= vote.window();
    });
}

void MasterCore::refuse_start(const BallotKey& key, Result result, const std::string& reason) {
    const Ballot ballot = ballots_.take(key);
    proto::Decision decision;
    auto* start = decision.mutable_start();
    start->set_group(key.group);
    start->set_tag(key.id);
    add_seats(ballot, *start->mutable_members());
    start->set_result(static_cast<std::uint32_t>(result));
    start->set_reason(reason);
    *start->mutable_sizes() = state_.sizes();
    append(decision);
}

void MasterCore::examine_op(OpId id) {
    const auto op = state_.ops.find(id);
    if (op == state_.ops.end()) return;
    const BallotKey key{proto::VOTE_END, op->second.group, id};
    const std::vector<Uuid> electors = electors_of(key);
    const Ballot* ballot = ballots_.find(key);
    if (ballot != nullptr) {
        for (const auto& [uuid, cast] : ballot->votes()) {
            if (!cast.vote.ok()) {
                PROBE(aborted_by_vote);
                // What a peer can never do is not worth another try: the answer must not read as a lost connection.
                const bool for_good = !cast.vote.refused().empty();
                decide_op(id, for_good ? Result::invalid_usage : Result::rank_connection_lost,
                          "peer " + short_name(uuid) +
                              (for_good ? " cannot take part: " + cast.vote.refused()
                                        : " could not finish: " + cast.vote.reason()));
                return;
            }
        }
        if (ballot->complete(electors)) {
            const std::uint64_t digest = ballot->votes().begin()->second.vote.digest();
            const bool equal = std::all_of(ballot->votes().begin(), ballot->votes().end(),
                                           [&](const auto& entry) { return entry.second.vote.digest() == digest; });
            if (equal && electors.size() < op->second.members.size()) PROBE(committed_without_removed);
            decide_op(id, equal ? Result::success : Result::rank_connection_lost,
                      equal ? "" : "the members' results differ; nothing of it was kept");
            return;
        }
    }
    for (const SeatState& seat : op->second.members) {
        if (state_.members.contains(seat.uuid)) continue;
        PROBE(aborted_by_removal);
        const auto reason = state_.removed.find(seat.uuid);
        decide_op(id, Result::rank_connection_lost,
                  "peer " + short_name(seat.uuid) +
                      " is gone: " + (reason == state_.removed.end() ? "unknown" : reason->second));
        return;
    }
}

void MasterCore::decide_op(OpId id, Result result, const std::string& reason) {
    const RunningOp& op = state_.ops.at(id);
    const BallotKey key{proto::VOTE_END, op.group, id};
    proto::Decision decision;
    auto* outcome = decision.mutable_outcome();
    outcome->set_op(id);
    outcome->set_commit(result == Result::success);
    if (result == Result::invalid_usage) outcome->set_result(static_cast<std::uint32_t>(result));
    outcome->set_reason(reason);
    for (const SeatState& seat : op.members) {
        auto* to = outcome->add_members();
        to->set_uuid(to_bytes(seat.uuid));
        to->set_serial(seat.serial);
    }
    if (ballots_.find(key) != nullptr) add_seats(ballots_.take(key), *outcome->mutable_votes());
    *outcome->mutable_sizes() = state_.sizes();
    append(decision);
}

}  // namespace pccl::core
