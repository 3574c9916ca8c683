#include "core/all_reduce/operations.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/voting/electors.hpp"
#include "core/voting/in_vote.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <numeric>
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
    const std::vector<Uuid> electors = electors_of(state_, key);
    if (key.is_send() && electors.size() < 2) {
        PROBE(send_end_gone);
        const Uuid& gone = electors.front() == key.sender ? key.receiver : key.sender;
        return refuse(key, Result::rank_connection_lost, make_cause<CauseKind::other_end_not_member>(gone));
    }
    if (group != state_.groups.end() && objection_to(key, ballot).result == Result::success &&
        reduces_in_vote(electors.size(), ballot))
        return key.is_send() ? begin_send(key, {}, true) : begin(key, electors, true);
    if (ballot.completed_order == 0) {
        ballot.completed_order = ++completed_order_;
        waiting_[key.group].emplace(ballot.completed_order, key);
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
        const BallotKey key = first->second;
        Ballot* ballot = ballots_.find(key);
        if (group == state_.groups.end() || ballot == nullptr || ballot->completed_order != first->first) {
            waiting.erase(first);
            continue;
        }
        const std::vector<Uuid>& ring = group->second.ring;
        // An end of a send that is gone leaves its vote to wait_for_start().
        if (!ballot->complete(electors_of(state_, key)) || (key.is_send() && ballot->votes().size() < 2)) {
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
        if (key.is_send())
            begin_send(key, ring, false);
        else
            begin(key, ring, false);
    }
    waiting_.erase(id);
}

// For another collective than an all-reduce: whether the members' parts fit each other.
Operations::Objection Operations::misfit_of(const Ballot& ballot) const {
    const auto& votes = ballot.votes();
    const proto::Shape& shape = votes.begin()->second.vote.shape();
    const auto kind = static_cast<CollectiveKind>(shape.collective());
    if (kind == CollectiveKind::all_reduce) return {};
    const auto invalid = [](Cause cause) { return Objection{Result::invalid_argument, std::move(cause)}; };
    Uuid root;
    if (read(shape.root(), root) && !ballot.has(root)) return invalid(make_cause<CauseKind::root_not_member>(root));
    std::uint64_t sum = 0;  // at most elements_max of each of peers_max members, see VoteCheck
    std::size_t list = votes.size() * wire::start_member_bytes;
    std::vector<Uuid> members;
    for (const auto& [uuid, cast] : votes) {
        const proto::Vote& vote = cast.vote;
        // A group that has changed since is no fault of the program: it tries again with its new size.
        const bool chose = kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_to_all ||
                           (kind == CollectiveKind::scatter && uuid == root);
        if (chose && vote.world() != votes.size())
            return {Result::rank_connection_lost,
                    make_cause<CauseKind::group_changed>(uuid, vote.world(), votes.size())};
        sum += vote.count();
        if (kind == CollectiveKind::all_to_all) list += wire::counts_bytes(vote.counts());
        members.push_back(uuid);
    }
    for (const auto& [uuid, cast] : votes) {
        if (list > cast.vote.room() + wire::spare_bytes)
            return {Result::invalid_usage, make_cause<CauseKind::too_many_members>(votes.size(), uuid)};
    }
    switch (kind) {
    case CollectiveKind::all_gather: {
        const auto smallest = std::min_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
            return a.second.vote.capacity() < b.second.vote.capacity();
        });
        const std::uint64_t most = smallest->second.vote.capacity();
        if (sum > most) return invalid(make_cause<CauseKind::pieces_too_large>(smallest->first, most));
        return {};
    }
    case CollectiveKind::gather: {
        const std::uint64_t most = votes.at(root).vote.capacity();
        if (sum > most) return invalid(make_cause<CauseKind::pieces_too_large>(root, most));
        break;
    }
    case CollectiveKind::reduce_scatter:
        if (sum != shape.count()) return invalid(make_cause<CauseKind::pieces_misfit>(sum, shape.count()));
        return {};
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_all: break;
    default: return {};
    }
    return misfit_of_pieces(shape, ballot, members, pieces_of(members, ballot));
}

// Whether what comes to each member has room there, and whether there are not too many pieces in all.
Operations::Objection Operations::misfit_of_pieces(const proto::Shape& shape, const Ballot& ballot,
                                                   const std::vector<Uuid>& members,
                                                   const std::vector<Piece>& pieces) {
    const auto kind = static_cast<CollectiveKind>(shape.collective());
    const std::uint64_t parts = kind == CollectiveKind::all_to_all ? members.size() * members.size() : members.size();
    const auto fit = [&](std::uint64_t elements) {
        return pieces_fit(elements, parts, element_bytes(static_cast<DataType>(shape.type())), shape.slice_bytes());
    };
    if (!fit(0)) return {Result::invalid_usage, make_cause<CauseKind::too_many_pieces>(0, parts)};
    std::vector<std::uint64_t> received(members.size());  // by index
    for (const Piece& piece : pieces) {
        if (kind != CollectiveKind::all_to_all) {
            received[piece.index] = piece.count;
            continue;
        }
        for (std::uint32_t index = 0; index < members.size(); ++index) received[index] += piece.for_member(index);
    }
    for (std::size_t i = 0; i < members.size() && kind != CollectiveKind::gather; ++i) {
        const std::uint64_t room = ballot.votes().at(members[i]).vote.capacity();
        if (const std::uint64_t comes = received[pieces[i].index]; comes > room)
            return {Result::invalid_argument, make_cause<CauseKind::room_too_small>(members[i], room, comes)};
    }
    const std::uint64_t all = std::accumulate(received.begin(), received.end(), std::uint64_t{0});
    if (!fit(all)) return {Result::invalid_usage, make_cause<CauseKind::too_many_pieces>(all, parts)};
    return {};
}

Operations::Objection Operations::objection_to(const BallotKey& key, const Ballot& ballot) const {
    if (Cause mismatch = shape_mismatch(ballot); !mismatch.empty()) {
        PROBE(start_mismatch);
        return {Result::invalid_argument, std::move(mismatch)};
    }
    for (const auto& [uuid, cast] : ballot.votes()) {
        // Of no call for many tags: its arguments cannot be sent.
        if (cast.vote.refused() && cast.vote.batch() == 0)
            return {Result::invalid_usage, make_cause<CauseKind::member_cannot>(uuid, cause_of(cast.vote.cause()))};
    }
    if (Objection misfit = key.is_send() ? misfit_of_send(key, ballot) : misfit_of(ballot);
        misfit.result != Result::success) {
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

Operations::Objection Operations::misfit_of_send(const BallotKey& key, const Ballot& ballot) const {
    const proto::Vote& sends = ballot.votes().at(key.sender).vote;
    const std::uint64_t room = ballot.votes().at(key.receiver).vote.capacity();
    if (sends.count() > room)
        return {Result::invalid_argument, make_cause<CauseKind::room_too_small>(key.receiver, room, sends.count())};
    const proto::Shape& shape = sends.shape();
    if (!pieces_fit(sends.count(), 1, element_bytes(static_cast<DataType>(shape.type())), shape.slice_bytes()))
        return {Result::invalid_usage, make_cause<CauseKind::too_many_pieces>(sends.count(), 1)};
    return {};
}

// All votes carry their inputs. No neighbour, memory or place among the running operations is needed then, so it does not
// wait for its turn. Members that do not acknowledge results get no more of them.
bool Operations::reduces_in_vote(std::size_t members, const Ballot& ballot) const {
    if (members < 2) return false;
    std::uint64_t gathered = 0, counts = 0;
    std::uint64_t room = ~std::uint64_t{0};
    for (const auto& [uuid, cast] : ballot.votes()) {
        if (!carries_input(cast.vote) || state_.untold(uuid) >= turn_.limits.vote_results_untold) return false;
        gathered += cast.vote.input().size();
        counts += wire::counts_bytes(cast.vote.counts());
        room = std::min<std::uint64_t>(room, cast.vote.room());
    }
    switch (static_cast<CollectiveKind>(ballot.votes().begin()->second.vote.shape().collective())) {
    case CollectiveKind::all_reduce: return true;
    case CollectiveKind::all_gather:
    case CollectiveKind::broadcast:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_all:
    case CollectiveKind::send: break;  // the result is as long as all inputs
    default: gathered /= members;
    }
    return gathered <= turn_.limits.vote_input_bytes_max &&
           gathered + counts + members * wire::start_member_bytes <= room + wire::spare_bytes;
}

std::vector<Piece> Operations::pieces_of(const std::vector<Uuid>& ring, const Ballot& ballot) const {
    const proto::Shape& shape = ballot.votes().begin()->second.vote.shape();
    const auto kind = static_cast<CollectiveKind>(shape.collective());
    std::vector<Piece> pieces;
    for (const Uuid& uuid : ring) {
        const std::uint64_t seniority = state_.members.at(uuid).seniority;
        const auto older = std::count_if(ring.begin(), ring.end(), [&](const Uuid& other) {
            return state_.members.at(other).seniority < seniority;
        });
        // In a scatter the root says what each member gets.
        const proto::Vote& vote =
            ballot.votes().at(kind == CollectiveKind::scatter ? uuid_of(shape.root()) : uuid).vote;
        Piece piece{static_cast<std::uint32_t>(older), vote.count()};
        if (kind == CollectiveKind::scatter && !vote.counts().empty())
            piece.count = vote.counts(static_cast<int>(older));
        else
            piece.counts.assign(vote.counts().begin(), vote.counts().end());
        pieces.push_back(std::move(piece));
    }
    return pieces;
}

std::vector<std::uint32_t> Operations::cut(GroupId group, const std::vector<Uuid>& ring, const Ballot& ballot,
                                           proto::StartDecision& start) {
    const proto::Shape& shape = ballot.votes().begin()->second.vote.shape();
    const std::uint64_t element = element_bytes(static_cast<DataType>(shape.type()));
    if (shape.count() < turn_.limits.unequal_parts_bytes_min / element) return {};
    const auto has_room = [&](std::size_t numbers) {
        return std::all_of(ballot.votes().begin(), ballot.votes().end(), [&](const auto& entry) {
            return wire::start_peer_bytes + numbers * wire::start_share_bytes <=
                   entry.second.vote.room() + wire::spare_bytes;
        });
    };
    std::vector<std::uint32_t> host_ends = hosts_.ends_of(ring);
    if (!host_ends.empty() && (!has_room(ring.size() + host_ends.size()) ||
                               !direct_.usable(group, Hosts::edges_within(ring, host_ends))))
        host_ends.clear();
    if (!host_ends.empty()) start.mutable_direct()->mutable_host_ends()->Assign(host_ends.begin(), host_ends.end());
    const std::vector<std::uint32_t>& shares = optimizer_.shares_of(group, host_ends);
    if (!shares.empty() && !has_room(shares.size() + host_ends.size())) return {};
    if (!shares.empty()) PROBE(started_with_shares);
    return shares;
}

bool Operations::goes_direct(GroupId group, const std::vector<Uuid>& ring, const proto::Shape& shape,
                             const std::vector<Piece>& pieces, proto::Direct& direct) {
    const auto kind = static_cast<CollectiveKind>(shape.collective());
    if (!is_of_pieces(kind) || ring.size() > turn_.limits.direct_peers_max) return false;
    const Uuid root = uuid_of(shape.root());
    const auto at = kind == CollectiveKind::all_to_all ? 0 : std::find(ring.begin(), ring.end(), root) - ring.begin();
    const Graph graph =
        graph_of(kind, static_cast<std::uint32_t>(ring.size()), 0, static_cast<std::uint32_t>(at), pieces);
    std::uint64_t travels = 0, along_the_ring = 0;
    for (const Part& part : graph.parts) {
        travels += part.copy_hops == 0 ? 0 : part.elements;
        along_the_ring += part.copy_hops * part.elements;
    }
    // Small ones would have ended with their start if each member's piece were small.
    const std::size_t element = element_bytes(static_cast<DataType>(shape.type()));
    if (along_the_ring == travels || travels <= turn_.limits.vote_input_bytes_max / element) return false;
    RunningOp op;
    for (const Uuid& uuid : ring) op.members.push_back({uuid, 0, 0});
    direct.set_to_root(kind == CollectiveKind::gather);
    direct.set_from_root(kind == CollectiveKind::scatter);
    direct.set_root(static_cast<std::uint32_t>(at));
    op.set_way(direct);
    return direct_.usable(group, op.edges());
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
        if (proto::Direct direct; !in_vote && goes_direct(key.group, ring, shape, pieces, direct))
            *start->mutable_direct() = direct;
    } else if (!in_vote) {
        const bool near = std::all_of(decided.votes().begin(), decided.votes().end(),
                                      [](const auto& entry) { return entry.second.vote.near(); });
        start->set_pairwise(goes_pairwise(ring.size(), shape.count(), static_cast<DataType>(shape.type()),
                                          shape.quantization() != 0, turn_.limits.pairwise_bytes(near)));
        if (!start->pairwise()) shares = cut(key.group, ring, decided, *start);
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
        seat->mutable_counts()->Assign(pieces[i].counts.begin(), pieces[i].counts.end());
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

// `ring`: of the group. The members of the operation are a path of it: the sender, the receiver, and those between
// them, which have launched nothing.
void Operations::begin_send(const BallotKey& key, const std::vector<Uuid>& ring, bool in_vote) {
    const Ballot decided = ballots_.take(key);
    const proto::Vote& sends = decided.votes().at(key.sender).vote;
    proto::Decision decision;
    auto* start = decision.mutable_start();
    start->set_op(decisions_.next_id());
    start->set_group(key.group);
    start->set_tag(key.id);
    start->set_collective(sends.shape().collective());
    *start->mutable_shape() = sends.shape();
    start->mutable_shape()->set_count(sends.count());
    std::vector<Uuid> path{key.sender};
    if (!in_vote) {
        const auto from = static_cast<std::size_t>(std::find(ring.begin(), ring.end(), key.sender) - ring.begin());
        ASSERT(from < ring.size());
        for (std::size_t i = 1; i < ring.size() && ring[(from + i) % ring.size()] != key.receiver; ++i)
            path.push_back(ring[(from + i) % ring.size()]);
    }
    path.push_back(key.receiver);
    for (const Uuid& uuid : path) {
        auto* seat = decision.add_seats();
        seat->set_uuid(to_bytes(uuid));
        const auto cast = decided.votes().find(uuid);
        if (cast != decided.votes().end()) seat->set_serial(cast->second.serial);
    }
    if (in_vote) {
        PROBE(send_in_vote);
        start->set_reduced(true);
        start->set_result(sends.input());
    } else {
        PROBE(send_along_the_ring);
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
            if (equal && op->second.path && electors.size() < op->second.members.size()) PROBE(drafted_outlives_end);
            decide(id, equal ? Result::success : Result::rank_connection_lost,
                   equal ? Cause{} : make_cause<CauseKind::results_differ>());
            return;
        }
    }
    for (const SeatState& seat : op->second.members) {
        if (state_.members.contains(seat.uuid)) continue;
        PROBE(aborted_by_removal);
        if (seat.serial == 0) PROBE(drafted_gone);
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
    if (op.way != RunningOp::Way::ring) {
        const bool all_there = std::all_of(op.members.begin(), op.members.end(), [&](const SeatState& seat) {
            return state_.members.contains(seat.uuid);
        });
        direct_.ended(op.group, result != Result::success && all_there);
    }
    *decision.mutable_sizes() = state_.sizes();
    decisions_.append(decision);
}

std::size_t Operations::starts_of_no_group() const {
    return static_cast<std::size_t>(std::count_if(
        waiting_.begin(), waiting_.end(), [&](const auto& entry) { return !state_.groups.contains(entry.first); }));
}

void Operations::check() const {
    // A ballot that was reduced in its votes, or refused, leaves its place. start_waiting() passes over it, and meanwhile
    // the next ballot of that name may wait, too.
    for (const auto& [group, waiting] : waiting_) {
        for (const auto& [order, start] : waiting) ASSERT(order != 0 && order <= completed_order_);
    }
    for (const auto& [key, ballot] : ballots_.all()) {
        if (ballot.completed_order == 0 || !state_.groups.contains(key.group)) continue;
        const auto waiting = waiting_.find(key.group);
        ASSERT(waiting != waiting_.end() && waiting->second.contains(ballot.completed_order));
    }
}

}  // namespace pccl::core
