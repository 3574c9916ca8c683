#include "core/all_reduce/operations.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/voting/electors.hpp"
#include "core/voting/in_vote.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <set>
#include <vector>

namespace pccl::core {

namespace {

std::string shape_text(const proto::Shape& shape) {
    std::string text;
    if (shape.collective() != 0) text = formatted("collective {} ", shape.collective());
    if (Uuid root; read(shape.root(), root)) text += formatted("root {} ", short_name(root));
    text += formatted("count {} type {} op {}", shape.count(), shape.type(), shape.op());
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
        const char* what = mine.collective() != other.collective()                 ? "kind"
                           : mine.root() != other.root()                           ? "root"
                           : mine.count() != other.count()                         ? "count"
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

// For another collective than an all-reduce: whether the members' parts fit each other.
Operations::Objection Operations::misfit_of(const Ballot& ballot) {
    const auto& votes = ballot.votes();
    const proto::Shape& shape = votes.begin()->second.vote.shape();
    const auto kind = static_cast<CollectiveKind>(shape.collective());
    if (kind == CollectiveKind::all_reduce) return {};
    const auto invalid = [](Cause cause) { return Objection{Result::invalid_argument, std::move(cause)}; };
    if (Uuid root; read(shape.root(), root) && !ballot.has(root))
        return invalid(make_cause<CauseKind::root_not_member>(root));
    const auto smallest = std::min_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
        return a.second.vote.capacity() < b.second.vote.capacity();
    });
    const std::uint64_t most = kind == CollectiveKind::all_gather ? smallest->second.vote.capacity() : shape.count();
    std::uint64_t sum = 0;  // at most elements_max of each of peers_max members, see VoteCheck
    for (const auto& [uuid, cast] : votes) {
        const proto::Vote& vote = cast.vote;
        // A group that has changed since is no fault of the program: it tries again with its new size.
        if (kind == CollectiveKind::reduce_scatter && vote.world() != votes.size())
            return {Result::rank_connection_lost,
                    make_cause<CauseKind::group_changed>(uuid, vote.world(), votes.size())};
        sum += vote.count();
        if (votes.size() * wire::start_member_bytes > vote.room() + wire::spare_bytes)
            return {Result::invalid_usage, make_cause<CauseKind::too_many_members>(votes.size(), uuid)};
    }
    if (kind == CollectiveKind::all_gather && sum > most)
        return invalid(make_cause<CauseKind::pieces_too_large>(smallest->first, most));
    if (kind == CollectiveKind::reduce_scatter && sum != most)
        return invalid(make_cause<CauseKind::pieces_misfit>(sum, most));
    return {};
}

Operations::Objection Operations::objection_to(const BallotKey& key, const Ballot& ballot) const {
    if (Cause mismatch = shape_mismatch(ballot); !mismatch.empty()) {
        PROBE(start_mismatch);
        return {Result::invalid_argument, std::move(mismatch)};
    }
    if (Objection misfit = misfit_of(ballot); misfit.result != Result::success) {
        PROBE(start_mismatch);
        return misfit;
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
    if (group.ring.size() < 2) return false;
    std::uint64_t gathered = 0;
    std::uint64_t room = ~std::uint64_t{0};
    for (const auto& [uuid, cast] : ballot.votes()) {
        if (!carries_input(cast.vote) || state_.untold(uuid) >= turn_.limits.vote_results_untold) return false;
        gathered += cast.vote.input().size();
        room = std::min<std::uint64_t>(room, cast.vote.room());
    }
    switch (static_cast<CollectiveKind>(ballot.votes().begin()->second.vote.shape().collective())) {
    case CollectiveKind::all_reduce: return true;
    case CollectiveKind::all_gather:
    case CollectiveKind::broadcast: break;  // the result is as long as all inputs
    default: gathered /= group.ring.size();
    }
    return gathered <= turn_.limits.vote_input_bytes_max &&
           gathered + group.ring.size() * wire::start_member_bytes <= room + wire::spare_bytes;
}

std::vector<Piece> Operations::pieces_of(const std::vector<Uuid>& ring, const Ballot& ballot) const {
    std::vector<Piece> pieces;
    for (const Uuid& uuid : ring) {
        const std::uint64_t seniority = state_.members.at(uuid).seniority;
        const auto older = std::count_if(ring.begin(), ring.end(), [&](const Uuid& other) {
            return state_.members.at(other).seniority < seniority;
        });
        pieces.push_back({static_cast<std::uint32_t>(older), ballot.votes().at(uuid).vote.count()});
    }
    return pieces;
}

std::vector<std::uint32_t> Operations::shares_of(GroupId group, const Ballot& ballot) const {
    const proto::Shape& shape = ballot.votes().begin()->second.vote.shape();
    const std::uint64_t element = element_bytes(static_cast<DataType>(shape.type()));
    if (shape.count() < turn_.limits.unequal_parts_bytes_min / element) return {};
    const std::vector<std::uint32_t>& shares = optimizer_.shares_of(group);
    for (const auto& [uuid, cast] : ballot.votes()) {
        if (shares.size() * wire::start_share_bytes > cast.vote.room() + wire::spare_bytes) return {};
    }
    if (!shares.empty()) PROBE(started_with_shares);
    return shares;
}

void Operations::begin(const BallotKey& key, const std::vector<Uuid>& ring, bool in_vote) {
    const Ballot decided = ballots_.take(key);
    proto::Decision decision;
    auto* start = decision.mutable_start();
    start->set_op(decisions_.next_id());
    start->set_group(key.group);
    start->set_tag(key.id);
    const proto::Shape shape = decided.votes().begin()->second.vote.shape();
    const auto kind = static_cast<CollectiveKind>(shape.collective());
    std::vector<Piece> pieces;
    std::vector<std::uint32_t> shares;
    if (kind != CollectiveKind::all_reduce) {
        pieces = pieces_of(ring, decided);
        start->set_collective(shape.collective());
    } else if (!in_vote) {
        shares = shares_of(key.group, decided);
    }
    for (std::size_t i = 0; i < ring.size(); ++i) {
        const Ballot::Cast& cast = decided.votes().at(ring[i]);
        auto* seat = decision.add_seats();
        seat->set_uuid(to_bytes(ring[i]));
        seat->set_serial(cast.serial);
        seat->set_batch(cast.vote.batch());
        if (!shares.empty()) seat->set_share(shares[i]);
        if (pieces.empty()) continue;
        seat->set_index(pieces[i].index);
        seat->set_count(pieces[i].count);
    }
    if (in_vote) {
        PROBE(reduced_in_vote);
        std::vector<const proto::Vote*> votes;
        std::uint32_t root = 0;
        for (std::size_t i = 0; i < ring.size(); ++i) {
            votes.push_back(&decided.votes().at(ring[i]).vote);
            if (shape.root() == to_bytes(ring[i])) root = static_cast<std::uint32_t>(i);
        }
        start->set_reduced(true);
        start->set_result(result_in_vote(kind, votes, pieces, root));
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
