#include "core/all_reduce/unfinished.hpp"

#include "core/base/host_span.hpp"
#include "core/base/probe.hpp"
#include "core/wire/control.pb.h"

#include <algorithm>

namespace pccl::core {

// A slow compute counts as work only for a while: a member may say for ever that it works.
bool Unfinished::late(const Uuid& member, Instant changed) const {
    if (!roster_.present(member) || turn_.now - changed <= turn_.timeouts.starved()) return false;
    return turn_.now - worked(member) > turn_.timeouts.starved() ||
           turn_.now - changed > turn_.timeouts.starved_for_good();
}

Instant Unfinished::worked(const Uuid& member) const {
    const auto worked = worked_.find(member);
    return worked == worked_.end() ? 0 : worked->second;
}

std::vector<std::pair<GroupId, Uuid>> Unfinished::syncs_given_up() const {
    std::vector<std::pair<GroupId, Uuid>> given_up;
    if (turn_.timeouts.vote == 0) return given_up;
    const Duration patience = std::max(2 * turn_.timeouts.starved_for_good(), turn_.timeouts.vote);
    for (const auto& [id, group] : state_.groups) {
        if (!group.sync) continue;
        const Ballot* ballot = ballots_.find({proto::VOTE_SYNC_END, id, group.sync->id});
        if (ballot == nullptr || turn_.now - ballot->changed <= patience) continue;
        const auto owes = std::find_if(group.sync->members.begin(), group.sync->members.end(), [&](const SeatState& seat) {
            return roster_.present(seat.uuid) && !ballot->has(seat.uuid) && turn_.now - worked(seat.uuid) > patience;
        });
        if (owes != group.sync->members.end()) given_up.emplace_back(id, owes->uuid);
    }
    return given_up;
}

std::vector<std::pair<OpId, Uuid>> Unfinished::operations_given_up() const {
    std::vector<std::pair<OpId, Uuid>> given_up;
    for (const auto& [id, op] : state_.ops) {
        if (!op.direct()) continue;
        const Ballot* ballot = ballots_.find({proto::VOTE_END, op.group, id});
        if (ballot == nullptr) continue;
        std::vector<Uuid> owe;
        for (const SeatState& seat : op.members) {
            if (state_.members.contains(seat.uuid) && !ballot->has(seat.uuid)) owe.push_back(seat.uuid);
        }
        const Duration patience = turn_.timeouts.starved_for_good();
        const bool all_idle = std::all_of(owe.begin(), owe.end(), [&](const Uuid& member) {
            return roster_.present(member) && turn_.now - std::max(worked(member), ballot->changed) > patience;
        });
        if (owe.empty() || !(owe.size() == 1 ? late(owe.front(), ballot->changed) : all_idle)) continue;
        PROBE(direct_given_up);
        given_up.emplace_back(id, owe.front());
    }
    return given_up;
}

// Who has final bytes for that member of a hierarchical operation, beside its predecessor. Its vote for the end says that
// they were acknowledged.
const Uuid* Unfinished::sends_within_host(const RunningOp& op, std::size_t place) {
    if (op.host_ends.empty()) return nullptr;
    const auto at = static_cast<std::uint32_t>(place);
    const HostSpan host = host_of(at, static_cast<std::uint32_t>(op.members.size()), op.host_ends);
    return host.size > 1 && at == host.first ? &op.members[host.last].uuid : nullptr;
}

void Unfinished::tick() {
    if (turn_.now - asked_at_ < turn_.timeouts.peer) return;
    for (const auto& [id, op] : state_.ops) {
        const Ballot* ballot = ballots_.find({proto::VOTE_END, op.group, id});
        if (ballot == nullptr || op.direct()) continue;
        for (std::size_t i = 0; i < op.members.size(); ++i) {
            const Uuid& member = op.members[i].uuid;
            const Uuid& before = op.members[(i + op.members.size() - 1) % op.members.size()].uuid;
            if (ballot->has(member) || !ballot->has(before) || !late(member, ballot->changed)) continue;
            if (const Uuid* last = sends_within_host(op, i); last != nullptr && !ballot->has(*last)) continue;
            PROBE(neighbour_asked_about_end);
            proto::MasterMessage message;
            message.set_unfinished(id);
            roster_.say(before, std::move(message));
            asked_at_ = turn_.now;
        }
    }
}

}  // namespace pccl::core
