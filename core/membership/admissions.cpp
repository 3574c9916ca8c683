#include "core/membership/admissions.hpp"

#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/voting/electors.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pccl::core {

void Admissions::decide_update(const Ballot& ballot) {
    proto::Decision decision;
    add_seats(ballot, *decision.mutable_seats());
    add_admissions(decision, false);
    decisions_.append(decision);
    if (decision.topology().admitted_size() > 0) agenda_.topology = agenda_.everything = true;
}

// The connect of a newcomer returns together with the update of the members. The program of the newcomer may then
// update once more as its first call, while a member waits for it in another call. Neither call could end. The newcomer
// has nothing to update, so its vote is answered alone and admits nobody. If no member waits in this way, the vote
// stays open, because the others may update too.
void Admissions::answer_early_updates() {
    constexpr Serial first_vote = 1;
    const BallotKey update{proto::VOTE_UPDATE_TOPOLOGY, 0, 0};
    const auto is_waited_for = [&](const Ballot& updates, const Uuid& newcomer) {
        return std::any_of(ballots_.all().begin(), ballots_.all().end(), [&](const auto& entry) {
            const auto& [key, ballot] = entry;
            if (key.kind == proto::VOTE_UPDATE_TOPOLOGY || key.kind == proto::VOTE_END ||
                key.kind == proto::VOTE_SYNC_END || ballot.has(newcomer))
                return false;
            // Voters that also vote for the update do so on another thread. If all voters do, this ballot does not
            // prove that one of them waits.
            if (std::all_of(ballot.votes().begin(), ballot.votes().end(),
                            [&](const auto& vote) { return updates.has(vote.first); }))
                return false;
            const std::vector<Uuid> electors = electors_of(state_, key);
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
        decision.mutable_topology();
        auto* seat = decision.add_seats();
        seat->set_uuid(to_bytes(uuid));
        seat->set_serial(serial);
        *decision.mutable_sizes() = state_.sizes();
        decisions_.append(decision);
    }
}

void Admissions::decide_pending(const Ballot& ballot) {
    proto::Decision decision;
    add_seats(ballot, *decision.mutable_seats());
    decision.set_pending(joiners_.any_admissible());
    if (decision.pending()) PROBE(pending_told);
    *decision.mutable_sizes() = state_.sizes();
    decisions_.append(decision);
}

void Admissions::admit_orphans() {
    if (!state_.members.empty() || joiners_.taking_part() == 0) return;
    PROBE(orphans_admitted);
    proto::Decision decision;
    add_admissions(decision, true);
    decisions_.append(decision);
    agenda_.topology = agenda_.everything = true;
}

// Moves joiners into `decision` and gives them sessions. `all`: no member is left that could connect with them, so all
// joiners are admitted, except for those whose gangs are not complete.
void Admissions::add_admissions(proto::Decision& decision, bool all) {
    proto::TopologyDecision& topology = *decision.mutable_topology();
    std::map<GroupId, std::uint32_t> size;
    for (const auto& [id, group] : state_.groups) size[id] = static_cast<std::uint32_t>(group.ring.size());
    std::set<std::string> gangs;
    for (const auto& [id, admission] : all ? joiners_.everybody() : joiners_.admissible()) {
        auto* record = topology.add_rings();
        record->set_group(id);
        for (const Uuid& uuid : admission.ring) record->add_order(to_bytes(uuid));
        size[id] = static_cast<std::uint32_t>(admission.ring.size());
        for (const Uuid& uuid : admission.admitted) {
            const Joiners::Joiner joiner = *joiners_.find(uuid);
            auto* member = topology.add_admitted();
            member->set_uuid(to_bytes(uuid));
            member->set_group(id);
            write(joiner.endpoint, *member->mutable_address());
            member->set_token(joiner.token);
            member->set_concurrent_ops(joiner.concurrent_ops);
            member->set_host(joiner.host);
            if (!joiner.gang.none()) write(joiner.gang, *member->mutable_gang());
            if (!joiner.gang.none() && gangs.insert(joiner.gang.name).second) PROBE(gang_admitted);
            joiners_.erase(uuid);
            registry_.admit(uuid, joiner);
            turn_.log(LogLevel::info, formatted("peer {} admitted to group {}", short_name(uuid), id));
        }
    }
    auto* sizes = decision.mutable_sizes();
    sizes->set_epoch(state_.epoch + (topology.admitted_size() > 0 ? 1 : 0));
    sizes->set_gangs(static_cast<std::uint32_t>(state_.gangs.size() + gangs.size()));
    for (const auto& [id, count] : size) {
        if (count == 0) continue;
        auto* entry = sizes->add_groups();
        entry->set_group(id);
        entry->set_size(count);
    }
}

}  // namespace pccl::core
