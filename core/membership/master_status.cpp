// What the master tells a spectator, and the counters that are kept for this alone. Nothing here changes what it decides.
#include "core/membership/master_core.hpp"
#include "core/numeric/types.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

bool is_run_wide(proto::VoteKind kind) {
    return kind == proto::VOTE_UPDATE_TOPOLOGY || kind == proto::VOTE_PEERS_PENDING ||
           kind == proto::VOTE_OPTIMIZE_TOPOLOGY;
}

}  // namespace

// Called before `record` changes the state: an operation that ends is still known.
void MasterCore::tally(const proto::Record& record) {
    if (record.has_run()) {
        tallies_.groups.clear();
        tallies_.operations.clear();
    }
    if (!record.has_decision()) return;
    const proto::Decision& decision = record.decision();
    if (decision.has_topology()) {
        tallies_.admitted += static_cast<std::uint64_t>(decision.topology().admitted_size());
    } else if (decision.has_removal()) {
        ++tallies_.removed;
        tallies_.removals.push_back({uuid_of(decision.removal().uuid()), decision.removal().reason(), now_});
        if (tallies_.removals.size() > config_.limits.removals_listed) tallies_.removals.pop_front();
        if (decision.removal().ring().order_size() != 0) return;
        // The group ends with its last member.
        const GroupId group = decision.removal().ring().group();
        tallies_.groups.erase(group);
        for (const auto& [id, op] : state_.ops) {
            if (op.group == group) tallies_.operations.erase(id);
        }
    } else if (decision.has_start()) {
        MasterStatus::Tally& tally = tallies_.groups[decision.start().group()];
        ++(decision.start().op() == 0 ? tally.refused : tally.started);
    } else if (decision.has_outcome()) {
        const auto op = state_.ops.find(decision.outcome().op());
        if (op == state_.ops.end()) return;
        MasterStatus::Tally& tally = tallies_.groups[op->second.group];
        ++(decision.outcome().commit() ? tally.committed : tally.aborted);
        const auto begun = tallies_.operations.find(op->first);
        if (begun == tallies_.operations.end()) return;
        if (decision.outcome().commit()) tally.committed_bytes += begun->second.bytes;
        tallies_.operations.erase(begun);
    } else if (decision.has_sync() && decision.sync().final() && state_.groups.contains(decision.sync().group())) {
        const auto& seats = decision.sync().seats();
        const bool success = std::any_of(seats.begin(), seats.end(), [](const auto& seat) {
            return seat.result() == static_cast<std::uint32_t>(Result::success);
        });
        if (success) ++tallies_.groups[decision.sync().group()].syncs;
    }
}

// A decision says nothing of an operation's size: the votes do, which are gone once it is made.
void MasterCore::tally_start(OpId id, const Ballot& ballot) {
    const proto::Vote& vote = ballot.votes().begin()->second.vote;
    tallies_.operations[id] = {now_, vote.count() * element_bytes(static_cast<DataType>(vote.type()))};
}

// One pass over all votes, as at a removal.
std::map<Uuid, MasterStatus::Call> MasterCore::calls() const {
    std::map<Uuid, MasterStatus::Call> calls;
    for (const auto& [key, ballot] : ballots_.all()) {
        for (const auto& [uuid, cast] : ballot.votes()) {
            const auto [call, first] = calls.try_emplace(uuid);
            if (first)
                call->second = {to_text(key.kind), tag_of(key), cast.at, 0};
            else
                ++call->second.others;
        }
    }
    return calls;
}

std::optional<Tag> MasterCore::tag_of(const BallotKey& key) const {
    if (key.kind == proto::VOTE_START) return key.id;
    const auto op = key.kind == proto::VOTE_END ? state_.ops.find(key.id) : state_.ops.end();
    return op == state_.ops.end() ? std::nullopt : std::optional<Tag>(op->second.tag);
}

MasterStatus MasterCore::status() const {
    MasterStatus status;
    status.run = state_.run_id;
    status.incarnation = state_.incarnation;
    status.epoch = state_.epoch;
    status.decisions = state_.last_index;
    status.started = tallies_.began;
    if (in_grace()) status.grace_until = grace_until_;
    if (unwritten_since_ != never) status.journal_waits = unwritten_since_;
    status.stopped = stopped_;
    status.optimizes = survey_.has_value();
    status.tests_running = survey_ ? static_cast<std::uint32_t>(survey_->tests.size()) : 0;
    status.admitted = tallies_.admitted;
    status.removed = tallies_.removed;
    status.frames_refused = refused_frames_;
    for (const auto& [id, link] : links_) status.strangers += link.stage == Link::Stage::fresh ? 1 : 0;
    status.removals.assign(tallies_.removals.begin(), tallies_.removals.end());
    add_peers(status);
    for (const auto& [id, group] : state_.groups) status.groups.push_back(status_of(id, group));
    add_votes(status);
    return status;
}

void MasterCore::add_peers(MasterStatus& status) const {
    const std::map<Uuid, MasterStatus::Call> waiting = calls();
    const auto heard = [&](LinkId id, Instant otherwise) {
        const auto link = links_.find(id);
        return link == links_.end() ? otherwise : link->second.last_received;
    };
    for (const auto& [uuid, member] : state_.members) {
        MasterStatus::Peer peer;
        peer.uuid = uuid;
        peer.endpoint = member.endpoint;
        peer.group = member.group;
        peer.synced = member.synced;
        peer.state = MasterStatus::PeerState::absent;
        if (const auto session = sessions_.find(uuid); session != sessions_.end()) {
            peer.since = session->second.since;
            peer.heard = heard(session->second.link, session->second.absent_since);
            if (session->second.link != 0) {
                peer.state =
                    session->second.resumed ? MasterStatus::PeerState::member : MasterStatus::PeerState::resuming;
            }
        }
        if (const auto call = waiting.find(uuid); call != waiting.end()) peer.call = call->second;
        status.peers.push_back(std::move(peer));
    }
    for (const auto& [uuid, joiner] : joiners_) {
        MasterStatus::Peer peer;
        peer.uuid = uuid;
        peer.endpoint = joiner.endpoint;
        peer.group = joiner.group;
        peer.state = joiner.told_unreachable ? MasterStatus::PeerState::unreachable : MasterStatus::PeerState::joining;
        peer.since = joiner.since;
        peer.heard = heard(joiner.link, joiner.since);
        status.peers.push_back(std::move(peer));
    }
}

MasterStatus::Group MasterCore::status_of(GroupId id, const GroupState& group) const {
    MasterStatus::Group to;
    to.id = id;
    to.ring = group.ring;
    to.expected_revision = group.expected;
    to.running = group.running_ops;
    for (std::size_t i = 0; i < group.ring.size(); ++i) {
        const Uuid& next = group.ring[(i + 1) % group.ring.size()];
        MasterStatus::Edge edge;
        edge.up = edges_.up(group.ring[i], next);
        if (const auto* known = bandwidths_.find(group.ring[i], next)) {
            edge.bytes_per_second = known->bytes_per_second;
            edge.measured = known->measured;
        }
        to.edges.push_back(edge);
    }
    for (const auto& [op_id, op] : state_.ops) {
        if (to.operations.size() == config_.limits.operations_listed) break;
        if (op.group != id) continue;
        MasterStatus::Operation operation{op_id, op.tag, static_cast<std::uint32_t>(op.members.size()), {}, 0};
        if (const auto begun = tallies_.operations.find(op_id); begun != tallies_.operations.end()) {
            operation.started = begun->second.at;
            operation.bytes = begun->second.bytes;
        }
        to.operations.push_back(operation);
    }
    if (group.sync) {
        to.sync = MasterStatus::Sync{group.sync->revision, static_cast<std::uint32_t>(group.sync->members.size()),
                                     static_cast<std::uint32_t>(group.sync->holders.size())};
    }
    if (const auto tally = tallies_.groups.find(id); tally != tallies_.groups.end()) to.tally = tally->second;
    return to;
}

void MasterCore::add_votes(MasterStatus& status) const {
    using Entry = std::map<BallotKey, Ballot>::value_type;
    std::vector<const Entry*> open;
    for (const Entry& entry : ballots_.all()) open.push_back(&entry);
    status.votes_open = open.size();
    const std::size_t listed = std::min<std::size_t>(open.size(), config_.limits.votes_listed);
    std::partial_sort(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(listed), open.end(),
                      [](const Entry* a, const Entry* b) {
                          return std::tie(a->second.opened, a->first) < std::tie(b->second.opened, b->first);
                      });
    open.resize(listed);
    for (const Entry* entry : open) {
        const auto& [key, ballot] = *entry;
        MasterStatus::Vote vote;
        vote.kind = to_text(key.kind);
        if (!is_run_wide(key.kind)) vote.group = key.group;
        vote.tag = tag_of(key);
        vote.opened = ballot.opened;
        vote.changed = ballot.changed;
        vote.voted = static_cast<std::uint32_t>(ballot.votes().size());
        vote.waits_for = ballot.missing(electors_of(key));
        vote.missing = static_cast<std::uint32_t>(vote.waits_for.size());
        if (vote.waits_for.size() > config_.limits.members_named) vote.waits_for.resize(config_.limits.members_named);
        status.votes.push_back(std::move(vote));
    }
}

}  // namespace pccl::core
