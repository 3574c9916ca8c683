#include "core/state_sync/sync_rounds.hpp"

#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/voting/electors.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

std::vector<Candidate> SyncRounds::candidates_of(const Ballot& ballot, const std::vector<Uuid>& electors) const {
    std::vector<Candidate> candidates;
    for (const Uuid& uuid : electors) {
        const proto::Vote& vote = ballot.votes().at(uuid).vote;
        const MemberState& member = state_.members.at(uuid);
        Candidate& candidate = candidates.emplace_back();
        candidate.uuid = uuid;
        candidate.seniority = member.seniority;
        candidate.synced = member.synced;
        candidate.gang = member.gang.name;
        candidate.revision = vote.revision();
        candidate.strategy = static_cast<SyncStrategy>(vote.strategy());
        candidate.schema = hash_of(vote.schema());
        candidate.content = hash_of(vote.content());
        candidate.unequal = vote.unequal();
    }
    return candidates;
}

void SyncRounds::examine(const BallotKey& key) {
    const Ballot* ballot = ballots_.find(key);
    const std::vector<Uuid> electors = electors_of(state_, key);
    if (!ballot->complete(electors) || state_.groups.at(key.group).sync) return;
    const Election election = elect(candidates_of(*ballot, electors), state_.groups.at(key.group).expected);
    if (keys_.compare(key.group, *ballot, election)) decide(key, electors);
}

void SyncRounds::decide(const BallotKey& key, const std::vector<Uuid>& electors) {
    const Ballot ballot = ballots_.take(key);
    std::vector<Candidate> candidates = candidates_of(ballot, electors);
    for (Candidate& candidate : candidates) candidate.difference = keys_.difference_of(key.group, candidate.uuid);
    keys_.forget(key.group);
    const std::uint64_t expected = state_.groups.at(key.group).expected;
    const Election election = elect(candidates, expected);
    for (const Verdict& verdict : election.verdicts) {
        if (verdict.removed) roster_.remove(verdict.uuid, verdict.cause);
    }
    if (!state_.groups.contains(key.group)) return;  // all its members went with their gangs
    proto::Decision decision;
    auto* sync = decision.mutable_sync();
    sync->set_group(key.group);
    sync->set_revision(election.revision);
    bool transfer = false;
    for (const Verdict& verdict : election.verdicts) {
        if (verdict.removed || !state_.members.contains(verdict.uuid)) continue;  // some go with their gangs
        auto* seat = decision.add_seats();
        seat->set_uuid(to_bytes(verdict.uuid));
        seat->set_serial(ballot.votes().at(verdict.uuid).serial);
        seat->set_strategy(ballot.votes().at(verdict.uuid).vote.strategy());
        seat->set_result(static_cast<std::uint32_t>(verdict.result));
        if (!verdict.cause.empty()) write(verdict.cause, *seat->mutable_cause());
        seat->set_receives(verdict.receives);
        seat->set_receives_unequal(verdict.receives_unequal);
        transfer = transfer || verdict.receives || verdict.receives_unequal;
    }
    sync->set_final(!transfer);
    sync->set_expected(election.failed ? expected : election.revision + 1);
    if (transfer) {
        sync->set_sync(decisions_.next_id());
        write(election.content, *sync->mutable_content());
        // A newcomer may hold the compared content by chance, but it lacks the entries that may differ. So veterans
        // come first.
        std::vector<Uuid> holders = election.holders;
        std::erase_if(holders, [&](const Uuid& uuid) { return !state_.members.contains(uuid); });
        std::stable_partition(holders.begin(), holders.end(),
                              [&](const Uuid& uuid) { return state_.members.at(uuid).synced; });
        for (const Uuid& uuid : holders) {
            auto* holder = sync->add_holders();
            holder->set_peer(to_bytes(uuid));
            write(state_.members.at(uuid).endpoint, *holder->mutable_address());
            holder->set_whole(state_.members.at(uuid).synced);
        }
    }
    *decision.mutable_sizes() = state_.sizes();
    decisions_.append(decision);
    agenda_.everything = true;
}

void SyncRounds::examine_end(GroupId id) {
    const auto group = state_.groups.find(id);
    if (group == state_.groups.end() || !group->second.sync) return;
    const RunningSync& running = *group->second.sync;
    const BallotKey key{proto::VOTE_SYNC_END, id, running.id};
    const std::vector<Uuid> electors = electors_of(state_, key);
    // All members of the round are gone. Members of the group that joined later wait for the next round.
    if (electors.empty()) {
        PROBE(sync_without_members);
        finish(id, false, make_cause<CauseKind::sync_left_alone>());
        return;
    }
    const Ballot* ballot = ballots_.find(key);
    if (ballot != nullptr) {
        for (const auto& [uuid, cast] : ballot->votes()) {
            if (!cast.vote.ok()) {
                PROBE(sync_aborted);
                finish(id, false, make_cause<CauseKind::member_did_not_receive>(uuid, cause_of(cast.vote.cause())));
                return;
            }
        }
        if (ballot->complete(electors)) {
            finish(id, true, {});
            return;
        }
    }
    // If an elected holder is still a member and has everything that others lack, the search through all holders is not
    // needed. The search is too costly to run at each vote.
    if (std::any_of(running.holders.begin(), running.holders.end(), [&](const RunningSync::Holder& holder) {
            return state_.members.contains(holder.uuid) && (holder.whole || running.lack_whole.empty());
        }))
        return;
    const std::vector<RunningSync::Holder> holders = living_holders(id);
    const bool whole = std::any_of(holders.begin(), holders.end(), [](const auto& holder) { return holder.whole; });
    std::vector<Uuid> without_vote = electors;
    std::erase_if(without_vote, [&](const Uuid& uuid) { return ballot != nullptr && ballot->has(uuid); });
    const bool in_vain = std::any_of(without_vote.begin(), without_vote.end(), [&](const Uuid& uuid) {
        return holders.empty() || (!whole && running.lack_whole.contains(uuid));
    });
    if (!in_vain)
        lost_.erase(id);
    else if (running.holders.empty() || nobody_completes(id, without_vote))
        repeat(id);
}

// One of them may have received all of the content before its last holder was gone. It may still check what has landed,
// its vote may be on its way, or its link may be away. So all of them are recalled.
bool SyncRounds::nobody_completes(GroupId id, const std::vector<Uuid>& without_vote) {
    Recall& recall = lost_[id];
    if (recall.number == 0) recall.number = ++recalls_;
    bool nobody = true;
    for (const Uuid& uuid : without_vote) {
        Recall::Told& told = recall.members[uuid];
        if (told.lacks) continue;
        // It lives, and answers nothing for long. Or its link breaks again and again.
        if (told.link != 0 && turn_.now - told.first > turn_.timeouts.undeclared()) {
            PROBE(sync_recall_unanswered);
            continue;
        }
        nobody = false;
        const LinkId link = roster_.link_of(uuid);
        if (!roster_.present(uuid) || told.link == link) continue;
        if (told.link == 0) told.first = turn_.now;
        told.link = link;
        tell_recall(uuid, state_.groups.at(id).sync->id, recall.number);
    }
    return nobody;
}

void SyncRounds::tell_recall(const Uuid& member, OpId sync, std::uint64_t number) {
    proto::MasterMessage message;
    message.mutable_sync_holders()->set_sync(sync);
    message.mutable_sync_holders()->set_recall(number);
    roster_.say(member, std::move(message));
}

void SyncRounds::end_vote_comes(const Uuid& member, const proto::Vote& vote) const {
    const MemberState& state = state_.members.at(member);
    if (!vote.ok() || state.consumed.contains(vote.serial())) return;
    const auto withdrawn = withdrawn_.find(state.group);
    if (withdrawn != withdrawn_.end() && withdrawn->second == vote.id()) PROBE(sync_vote_lost);
}

void SyncRounds::lacks(const Uuid& member, OpId sync, std::uint64_t recall) {
    const GroupId id = state_.members.at(member).group;
    const auto lost = lost_.find(id);
    if (lost == lost_.end() || lost->second.number != recall || state_.groups.at(id).sync->id != sync) return;
    const auto told = lost->second.members.find(member);
    if (told == lost->second.members.end() || told->second.link == 0) return;
    told->second.lacks = true;
    agenda_.everything = true;
}

// The members that held the content when it was elected, and those that have received and verified all of it since.
std::vector<RunningSync::Holder> SyncRounds::living_holders(GroupId id) const {
    const RunningSync& running = *state_.groups.at(id).sync;
    const Ballot* ballot = ballots_.find(BallotKey{proto::VOTE_SYNC_END, id, running.id});
    const auto has_all = [&](const Uuid& uuid) {
        return ballot != nullptr && ballot->has(uuid) && ballot->votes().at(uuid).vote.ok();
    };
    std::vector<RunningSync::Holder> living;
    for (const RunningSync::Holder& holder : running.holders) {
        if (!state_.members.contains(holder.uuid)) continue;
        // A holder has gained the entries that may differ only if the plan let it receive them.
        const bool gained = running.lack_whole.contains(holder.uuid) && has_all(holder.uuid);
        living.push_back({holder.uuid, holder.whole || gained});
    }
    for (const SeatState& seat : running.members) {
        const bool listed = std::any_of(running.holders.begin(), running.holders.end(),
                                        [&](const auto& holder) { return holder.uuid == seat.uuid; });
        if (!listed && state_.members.contains(seat.uuid) && has_all(seat.uuid) &&
            !running.receive_only.contains(seat.uuid))
            living.push_back({seat.uuid, true});
    }
    return living;
}

std::vector<Uuid> SyncRounds::asked_for_holders(const Uuid& uuid, OpId sync) {
    const GroupId id = state_.members.at(uuid).group;
    const auto group = state_.groups.find(id);
    if (group == state_.groups.end() || !group->second.sync || group->second.sync->id != sync) return {};
    if (lost_.contains(id)) return {};  // it has said that it fetches nothing more
    std::vector<RunningSync::Holder> holders = living_holders(id);
    std::erase_if(holders, [&](const auto& holder) { return holder.uuid == uuid; });
    proto::MasterMessage message;
    std::vector<Uuid> named;
    auto* told = message.mutable_sync_holders();
    told->set_sync(sync);
    // If there are too many holders for one answer, each answer starts at a random one.
    const std::size_t told_max =
        std::min<std::size_t>(turn_.limits.holders_told_again_max,
                              wire::items_per_page(roster_.control_bytes(uuid), wire::sync_holder_bytes));
    const std::size_t first = holders.size() > told_max ? turn_.random.below(holders.size()) : 0;
    for (std::size_t i = 0; i < std::min(holders.size(), told_max); ++i) {
        const RunningSync::Holder& holder = holders[(first + i) % holders.size()];
        named.push_back(holder.uuid);
        auto* entry = told->add_holders();
        entry->set_peer(to_bytes(holder.uuid));
        entry->set_whole(holder.whole);
        roster_.add_way(uuid, *entry);
    }
    roster_.say(uuid, std::move(message));
    return named;
}

// The living members hold no full copy of the elected state. They vote again, and the next election is among them.
void SyncRounds::repeat(GroupId id) {
    PROBE(sync_repeated);
    lost_.erase(id);
    withdrawn_[id] = state_.groups.at(id).sync->id;
    const GroupState& group = state_.groups.at(id);
    const RunningSync& running = *group.sync;
    turn_.log(
        LogLevel::warn,
        formatted("the members of group {} that held the elected shared state are gone; those that live elect again",
                  id));
    proto::Decision decision;
    auto* sync = decision.mutable_sync();
    sync->set_sync(running.id);
    sync->set_group(id);
    sync->set_again(true);
    sync->set_revision(running.revision);
    sync->set_expected(group.expected);
    for (const SeatState& member : running.members) {
        auto* seat = decision.add_seats();
        seat->set_uuid(to_bytes(member.uuid));
        seat->set_serial(member.serial);
    }
    if (const BallotKey key{proto::VOTE_SYNC_END, id, running.id}; ballots_.find(key) != nullptr)
        add_seats(ballots_.take(key), *decision.mutable_votes());
    *decision.mutable_sizes() = state_.sizes();
    decisions_.append(decision);
    agenda_.everything = true;
}

void SyncRounds::finish(GroupId id, bool commit, const Cause& cause) {
    lost_.erase(id);
    const GroupState& group = state_.groups.at(id);
    const RunningSync& running = *group.sync;
    const BallotKey key{proto::VOTE_SYNC_END, id, running.id};
    proto::Decision decision;
    auto* sync = decision.mutable_sync();
    sync->set_sync(running.id);
    sync->set_group(id);
    sync->set_final(true);
    sync->set_revision(running.revision);
    sync->set_expected(commit ? running.revision + 1 : group.expected);
    for (const SeatState& member : running.members) {
        auto* seat = decision.add_seats();
        seat->set_uuid(to_bytes(member.uuid));
        seat->set_serial(member.serial);
    }
    decision.set_result(static_cast<std::uint32_t>(commit ? Result::success : Result::invalid_usage));
    if (!cause.empty()) write(cause, *decision.mutable_cause());
    const Ballot ballot = ballots_.find(key) == nullptr ? Ballot{} : ballots_.take(key);
    if (commit && ballot.votes().size() < running.members.size()) PROBE(sync_member_gone);
    add_seats(ballot, *decision.mutable_votes());
    *decision.mutable_sizes() = state_.sizes();
    decisions_.append(decision);
    agenda_.everything = true;
}

void SyncRounds::give_up_waiting(GroupId group, const Uuid& member) {
    finish(group, false,
           make_cause<CauseKind::member_did_not_receive>(member, make_cause<CauseKind::nothing_new_from>(member)));
}

void SyncRounds::slept(const Sleep& sleep) {
    keys_.slept(sleep);
    for (auto& [group, recall] : lost_) {
        for (auto& [uuid, told] : recall.members) sleep.leave_out(told.first);
    }
}

std::size_t SyncRounds::recalls_of_no_group() const {
    return static_cast<std::size_t>(std::count_if(lost_.begin(), lost_.end(), [&](const auto& entry) {
        const auto group = state_.groups.find(entry.first);
        return group == state_.groups.end() || !group->second.sync;
    }));
}

void SyncRounds::forget(GroupId group) {
    keys_.forget(group);
    lost_.erase(group);
    withdrawn_.erase(group);
}

void SyncRounds::forget_run() {
    keys_.clear();
    lost_.clear();
    withdrawn_.clear();
}

void SyncRounds::give_up(const BallotKey& key, const Cause& cause) {
    proto::Decision decision;
    auto* sync = decision.mutable_sync();
    sync->set_group(key.group);
    sync->set_final(true);
    sync->set_expected(state_.groups.at(key.group).expected);
    add_seats(ballots_.take(key), *decision.mutable_seats());
    decision.set_result(static_cast<std::uint32_t>(Result::invalid_usage));
    if (!cause.empty()) write(cause, *decision.mutable_cause());
    *decision.mutable_sizes() = state_.sizes();
    keys_.forget(key.group);
    decisions_.append(decision);
}

}  // namespace pccl::core
