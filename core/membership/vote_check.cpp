#include "core/membership/vote_check.hpp"

#include "core/base/probe.hpp"
#include "core/numeric/types.hpp"
#include "core/voting/in_vote.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <string>

namespace pccl::core {

namespace {

constexpr std::size_t starts_max = 65'536;  // open votes of one member: the number of tags that it may launch

// No array of a real program has more elements. The bound keeps sums of all members far from overflow.
constexpr std::uint64_t elements_max = std::uint64_t{1} << 50;

bool are_possible_counts(const proto::Vote& vote) {
    if (vote.counts().empty()) return vote.world() == 0 || vote.count() <= elements_max / vote.world();
    // For all other collectives they would only make the answers longer.
    const auto kind = static_cast<CollectiveKind>(vote.shape().collective());
    if (kind != CollectiveKind::scatter && kind != CollectiveKind::all_to_all) return false;
    if (static_cast<std::uint32_t>(vote.counts_size()) != vote.world()) return false;
    std::uint64_t sum = 0;
    for (const std::uint64_t count : vote.counts()) {
        if (count > elements_max - sum) return false;
        sum += count;
    }
    return true;
}

// `root` and `target` are two peers, and the voter is one of them.
bool are_ends_of_send(const proto::Shape& shape, const Uuid& voter) {
    Uuid sender, receiver;
    return shape.count() == 0 && shape.slice_bytes() != 0 && read(shape.root(), sender) &&
           read(shape.target(), receiver) && sender != receiver && (voter == sender || voter == receiver);
}

bool is_possible_collective(const proto::Vote& vote, const Uuid& voter) {
    const proto::Shape& shape = vote.shape();
    if (shape.collective() == 0) return vote.counts().empty();
    if (shape.collective() == static_cast<std::uint32_t>(CollectiveKind::send))
        return are_ends_of_send(shape, voter) && vote.counts().empty() && vote.batch() == 0 &&
               vote.count() <= elements_max && vote.capacity() <= elements_max && shape.quantization() == 0;
    Uuid root;
    return shape.collective() < collective_kind_count && shape.count() <= elements_max &&
           vote.count() <= elements_max && vote.capacity() <= elements_max && shape.quantization() == 0 &&
           (is_rooted(static_cast<CollectiveKind>(shape.collective())) ? read(shape.root(), root) && !root.is_nil()
                                                                       : shape.root().empty()) &&
           are_possible_counts(vote);
}

}  // namespace

void VoteCheck::cast(const Uuid& uuid, const proto::Vote& vote) {
    // A vote has a cause, whose texts are bounded together, a name, numbers and perhaps an input. It is kept until its
    // ballot is complete, unknown fields included, so its size needs a limit.
    constexpr std::size_t vote_bytes_max = 4 * text_bytes_max;
    const std::size_t input_bytes_max = vote.kind() == proto::VOTE_START ? turn_.limits.vote_input_bytes_max : 0;
    if (vote.input().size() > input_bytes_max || vote.ByteSizeLong() - vote.input().size() > vote_bytes_max)
        return roster_.remove(uuid, make_cause<CauseKind::vote_too_large>());
    const MemberState& member = state_.members.at(uuid);
    if (member.consumed.contains(vote.serial())) PROBE(vote_used_already);
    if (member.consumed.contains(vote.serial())) return;  // decided before; a resume sends the answer again
    BallotKey key;
    key.kind = vote.kind();
    switch (vote.kind()) {
    case proto::VOTE_UPDATE_TOPOLOGY:
    case proto::VOTE_OPTIMIZE_TOPOLOGY:
    case proto::VOTE_PEERS_PENDING: break;
    case proto::VOTE_START:
        key.group = member.group;
        key.id = vote.id();
        if (vote.shape().type() >= data_type_count || vote.shape().op() >= reduce_op_count ||
            !is_possible_collective(vote, uuid)) {
            roster_.remove(uuid, make_cause<CauseKind::vote_of_unknown_type>());
            return;
        }
        if (vote.shape().collective() == static_cast<std::uint32_t>(CollectiveKind::send)) {
            key.sender = uuid_of(vote.shape().root());
            key.receiver = uuid_of(vote.shape().target());
        }
        if (carries_input(vote) && whole_input(vote, uuid, turn_.limits.vote_input_bytes_max) != vote.input().size()) {
            roster_.remove(uuid, make_cause<CauseKind::vote_input_misfits>());
            return;
        }
        if (const Ballot* ballot = ballots_.find(key);
            ballots_.starts_of(uuid) >= starts_max && (ballot == nullptr || !ballot->has(uuid)))
            return roster_.remove(uuid, make_cause<CauseKind::too_many_starts>(ballots_.starts_of(uuid) + 1));
        break;
    case proto::VOTE_END: {
        const auto op = state_.ops.find(vote.id());
        if (op == state_.ops.end()) PROBE(end_vote_too_late);
        if (op == state_.ops.end()) return;
        const auto& seats = op->second.members;
        if (std::none_of(seats.begin(), seats.end(), [&](const SeatState& seat) { return seat.uuid == uuid; })) return;
        if (Uuid stuck; !vote.ok() && !vote.stuck().empty() && read(vote.stuck(), stuck))
            rings_.stuck(op->first, op->second, uuid, stuck);
        key.group = op->second.group;
        key.id = vote.id();
        break;
    }
    case proto::VOTE_SYNC:
        key.group = member.group;
        if (vote.entries() > turn_.limits.entries_max) {
            roster_.remove(uuid, make_cause<CauseKind::vote_of_too_many_entries>());
            return;
        }
        if (vote.strategy() >= sync_strategy_count) {
            roster_.remove(uuid, make_cause<CauseKind::vote_of_unknown_strategy>());
            return;
        }
        if (vote.revision() > turn_.limits.revision_max) {
            roster_.remove(uuid, make_cause<CauseKind::vote_of_impossible_revision>());
            return;
        }
        break;
    case proto::VOTE_SYNC_END: {
        const auto& group = state_.groups.at(member.group);
        const auto takes_part = [&](const SeatState& seat) { return seat.uuid == uuid; };
        if (group.sync && std::none_of(group.sync->members.begin(), group.sync->members.end(), takes_part)) return;
        if (!group.sync || group.sync->id != vote.id()) PROBE(sync_end_vote_too_late);
        if (!group.sync || group.sync->id != vote.id()) return;
        key.group = member.group;
        key.id = vote.id();
        break;
    }
    default: return;
    }
    Ballot& ballot = ballots_.cast(key, uuid, vote, turn_.now);
    ballot.limit_room(uuid, wire::input_limit(roster_.control_bytes(uuid)));
    if (carries_input(vote) && !keeps_inputs(ballot, uuid)) {
        PROBE(vote_input_ignored);
        ballot.ignore_input(uuid);
    }
    agenda_.ballots.push_back(key);
    // This vote may show that a member waits for a newcomer in another call, see Admissions::answer_early_updates().
    const BallotKey update{proto::VOTE_UPDATE_TOPOLOGY, 0, 0};
    if (key != update && ballots_.find(update) != nullptr) agenda_.ballots.push_back(update);
}

// The first vote of a ballot decides whether the ballot keeps inputs: it does unless too many may be kept already. An
// input beside a vote without one is of no use.
bool VoteCheck::keeps_inputs(const Ballot& ballot, const Uuid& voter) const {
    if (ballot.votes().size() > 1)
        return std::all_of(ballot.votes().begin(), ballot.votes().end(),
                           [&](const auto& entry) { return entry.first == voter || carries_input(entry.second.vote); });
    return ballots_.all().size() * state_.members.size() * turn_.limits.vote_input_bytes_max <=
           turn_.limits.vote_inputs_held_bytes;
}

}  // namespace pccl::core
