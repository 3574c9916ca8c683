#include "core/all_reduce/operations.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/voting/electors.hpp"
#include "core/voting/in_vote.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <set>
#include <vector>

namespace pccl::core {

namespace {

std::string shape_text(const proto::Shape& shape) {
    std::string text = formatted("count {} type {} op {}", shape.count(), shape.type(), shape.op());
    if (shape.quantization() != 0) {
        text += formatted(" quantization {} to type {} hint {}", shape.quantization(), shape.quantized_type(),
                          shape.distribution_hint());
    }
    return text;
}

// Empty if all votes ask for the same reduction; otherwise names two peers that differ, and in what.
Cause shape_mismatch(const Ballot& ballot) {
    const auto& first = *ballot.votes().begin();
    for (const auto& [uuid, cast] : ballot.votes()) {
        const auto& mine = cast.vote.shape();
        const auto& other = first.second.vote.shape();
        const char* what = mine.count() != other.count()                           ? "count"
                           : mine.type() != other.type()                           ? "data type"
                           : mine.op() != other.op()                               ? "operation"
                           : mine.slice_bytes() != other.slice_bytes()             ? "slice size"
                           : mine.quantization() != other.quantization()           ? "quantization algorithm"
                           : mine.quantized_type() != other.quantized_type()       ? "quantized data type"
                           : mine.distribution_hint() != other.distribution_hint() ? "distribution hint"
                                                                                   : nullptr;
        if (what != nullptr) {
            return make_cause<CauseKind::shapes_differ>(what, first.first, shape_text(other), uuid, shape_text(mine));
        }
    }
    return {};
}

}  // namespace

void Operations::wait_for_start(const BallotKey& key, Ballot& ballot) {
    const auto group = state_.groups.find(key.group);
    if (group != state_.groups.end() && objection_to(key, ballot).result == Result::success &&
        reduces_in_vote(group->second, ballot))
        return begin(key, group->second.ring, true);
    if (ballot.completed_order == 0) {
        ballot.completed_order = ++completed_order_;
        waiting_[key.group][ballot.completed_order] = key.id;
    }
    start_waiting(key.group);
}

void Operations::start_what_waits() {
    std::vector<GroupId> groups;
    for (const auto& [group, waiting] : waiting_) groups.push_back(group);
    for (const GroupId group : groups) start_waiting(group);
}

void Operations::start_waiting(GroupId id) {
    auto& waiting = waiting_[id];
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
            // A member that was admitted since has to vote before the ballot is complete again.
            ballot->completed_order = 0;
            waiting.erase(first);
            continue;
        }
        if (ring.size() < 2) {
            PROBE(start_alone);
            waiting.erase(first);
            refuse(key, Result::rank_connection_lost, make_cause<CauseKind::group_left_alone>());
            continue;
        }
        if (Objection objection = objection_to(key, *ballot); objection.result != Result::success) {
            waiting.erase(first);
            refuse(key, objection.result, objection.cause);
            continue;
        }
        std::uint32_t running_max = ~0u;
        for (const Uuid& uuid : ring) running_max = std::min(running_max, state_.members.at(uuid).concurrent_ops);
        if (group->second.running_ops >= running_max)
            PROBE(start_waits_for_limit);
        else if (!edges_.ring_up(group->second.ring))
            PROBE(start_waits_for_ring);
        if (group->second.running_ops >= running_max || !edges_.ring_up(group->second.ring)) return;
        if (window_full(group->second, *ballot)) {
            PROBE(start_waits_for_window);
            return;
        }
        waiting.erase(first);
        begin(key, ring, false);
    }
    waiting_.erase(id);
}

Operations::Objection Operations::objection_to(const BallotKey& key, const Ballot& ballot) {
    if (Cause mismatch = shape_mismatch(ballot); !mismatch.empty()) {
        PROBE(start_mismatch);
        return {Result::invalid_argument, std::move(mismatch)};
    }
    for (const auto& [uuid, cast] : ballot.votes()) {
        if (!cast.vote.refused()) continue;
        PROBE(start_given_up);
        return {Result::internal_error, make_cause<CauseKind::tag_given_up>(uuid, key.id, cause_of(cast.vote.cause()))};
    }
    return {};
}

// All votes carry their inputs. No neighbour, memory or place among the running operations is needed then, so it does not
// wait for its turn. Members that do not acknowledge results get no more of them.
bool Operations::reduces_in_vote(const GroupState& group, const Ballot& ballot) const {
    return group.ring.size() >= 2 && std::all_of(ballot.votes().begin(), ballot.votes().end(), [&](const auto& entry) {
               return !entry.second.vote.input().empty() &&
                      state_.untold(entry.first) < turn_.limits.vote_results_untold;
           });
}

void Operations::begin(const BallotKey& key, const std::vector<Uuid>& ring, bool in_vote) {
    const Ballot decided = ballots_.take(key);
    proto::Decision decision;
    auto* start = decision.mutable_start();
    start->set_op(decisions_.next_id());
    start->set_group(key.group);
    start->set_tag(key.id);
    for (const Uuid& uuid : ring) {
        auto* seat = decision.add_seats();
        seat->set_uuid(to_bytes(uuid));
        seat->set_serial(decided.votes().at(uuid).serial);
        seat->set_batch(decided.votes().at(uuid).vote.batch());
    }
    if (in_vote) {
        PROBE(reduced_in_vote);
        std::vector<std::string_view> inputs;
        for (const Uuid& uuid : ring) inputs.push_back(decided.votes().at(uuid).vote.input());
        start->set_reduced(true);
        start->set_result(reduce_in_ring_order(decided.votes().begin()->second.vote.shape(), inputs));
    }
    *decision.mutable_sizes() = state_.sizes();
    decisions_.append(decision);
    if (!in_vote) tallies_.started(start->op(), decided);
}

// True: the batch of a member already runs as many operations as its window allows. Running operations end by
// themselves, so a place becomes free.
bool Operations::window_full(const GroupState& group, const Ballot& ballot) const {
    return std::any_of(ballot.votes().begin(), ballot.votes().end(), [&](const auto& entry) {
        const proto::Vote& vote = entry.second.vote;
        if (vote.batch() == 0 || vote.window() == 0) return false;
        const auto running = group.running_of_batch.find({entry.first, vote.batch()});
        return running != group.running_of_batch.end() && running->second >= vote.window();
    });
}

void Operations::refuse(const BallotKey& key, Result result, const Cause& cause) {
    proto::Decision decision;
    auto* start = decision.mutable_start();
    start->set_group(key.group);
    start->set_tag(key.id);
    add_seats(ballots_.take(key), *decision.mutable_seats());
    decision.set_result(static_cast<std::uint32_t>(result));
    if (!cause.empty()) write(cause, *decision.mutable_cause());
    *decision.mutable_sizes() = state_.sizes();
    decisions_.append(decision);
}

void Operations::examine_all() {
    // Not only the ballots: an operation without any vote has none, and is examined, too.
    std::vector<OpId> ops;
    for (const auto& [id, op] : state_.ops) ops.push_back(id);
    for (const OpId id : ops) examine(id);
}

bool Operations::refused(const BallotKey& key) const {
    const Ballot* ballot = ballots_.find(key);
    return ballot != nullptr && std::any_of(ballot->votes().begin(), ballot->votes().end(),
                                            [](const auto& entry) { return !entry.second.vote.ok(); });
}

void Operations::examine(OpId id) {
    const auto op = state_.ops.find(id);
    if (op == state_.ops.end()) return;
    const BallotKey key{proto::VOTE_END, op->second.group, id};
    const std::vector<Uuid> electors = electors_of(state_, key);
    const Ballot* ballot = ballots_.find(key);
    if (ballot != nullptr) {
        for (const auto& [uuid, cast] : ballot->votes()) {
            if (!cast.vote.ok()) {
                PROBE(aborted_by_vote);
                // If a peer can never run the operation, a retry is pointless. So the answer must not be a lost
                // connection.
                const Cause why = cause_of(cast.vote.cause());
                if (cast.vote.refused())
                    decide(id, Result::invalid_usage, make_cause<CauseKind::member_cannot>(uuid, why));
                else
                    decide(id, Result::rank_connection_lost, make_cause<CauseKind::member_did_not_finish>(uuid, why));
                return;
            }
        }
        if (ballot->complete(electors)) {
            const std::uint64_t digest = ballot->votes().begin()->second.vote.digest();
            const bool equal = std::all_of(ballot->votes().begin(), ballot->votes().end(),
                                           [&](const auto& entry) { return entry.second.vote.digest() == digest; });
            if (equal && electors.size() < op->second.members.size()) PROBE(committed_without_removed);
            decide(id, equal ? Result::success : Result::rank_connection_lost,
                   equal ? Cause{} : make_cause<CauseKind::results_differ>());
            return;
        }
    }
    for (const SeatState& seat : op->second.members) {
        if (state_.members.contains(seat.uuid)) continue;
        PROBE(aborted_by_removal);
        const auto cause = state_.removed.find(seat.uuid);
        decide(id, Result::rank_connection_lost,
               make_cause<CauseKind::member_gone>(
                   seat.uuid, cause == state_.removed.end() ? make_cause<CauseKind::unknown>(0) : cause->second));
        return;
    }
}

void Operations::decide(OpId id, Result result, const Cause& cause) {
    const RunningOp& op = state_.ops.at(id);
    const BallotKey key{proto::VOTE_END, op.group, id};
    proto::Decision decision;
    auto* outcome = decision.mutable_outcome();
    outcome->set_op(id);
    outcome->set_commit(result == Result::success);
    decision.set_result(static_cast<std::uint32_t>(result));
    if (!cause.empty()) write(cause, *decision.mutable_cause());
    for (const SeatState& seat : op.members) {
        auto* to = decision.add_seats();
        to->set_uuid(to_bytes(seat.uuid));
        to->set_serial(seat.serial);
    }
    if (ballots_.find(key) != nullptr) add_seats(ballots_.take(key), *decision.mutable_votes());
    *decision.mutable_sizes() = state_.sizes();
    decisions_.append(decision);
}

std::size_t Operations::starts_of_no_group() const {
    return static_cast<std::size_t>(std::count_if(
        waiting_.begin(), waiting_.end(), [&](const auto& entry) { return !state_.groups.contains(entry.first); }));
}

void Operations::check() const {
    for (const auto& [group, waiting] : waiting_) {
        std::set<Tag> tags;
        for (const auto& [order, tag] : waiting)
            ASSERT(order != 0 && order <= completed_order_ && tags.insert(tag).second);
    }
}

}  // namespace pccl::core
