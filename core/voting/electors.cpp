#include "core/voting/electors.hpp"

#include "core/wire/convert.hpp"

namespace pccl::core {

std::vector<Uuid> electors_of(const RunState& state, const BallotKey& key) {
    const auto alive = [&](const std::vector<SeatState>& seats) {
        std::vector<Uuid> out;
        for (const SeatState& seat : seats) {
            if (state.members.contains(seat.uuid)) out.push_back(seat.uuid);
        }
        return out;
    };
    switch (key.kind) {
    case proto::VOTE_UPDATE_TOPOLOGY:
    case proto::VOTE_OPTIMIZE_TOPOLOGY:
    case proto::VOTE_PEERS_PENDING: return state.everyone();
    case proto::VOTE_START:
    case proto::VOTE_SYNC: {
        const auto group = state.groups.find(key.group);
        if (group == state.groups.end()) return {};
        if (!key.is_send()) return group->second.ring;
        std::vector<Uuid> ends;
        for (const Uuid& end : {key.sender, key.receiver}) {
            const auto member = state.members.find(end);
            if (member != state.members.end() && member->second.group == key.group) ends.push_back(end);
        }
        return ends;
    }
    case proto::VOTE_END: {
        const auto op = state.ops.find(key.id);
        return op == state.ops.end() ? std::vector<Uuid>{} : alive(op->second.members);
    }
    case proto::VOTE_SYNC_END: {
        const auto group = state.groups.find(key.group);
        if (group == state.groups.end() || !group->second.sync) return {};
        return alive(group->second.sync->members);
    }
    default: return {};
    }
}

void add_seats(const Ballot& ballot, google::protobuf::RepeatedPtrField<proto::Seat>& seats) {
    for (const auto& [uuid, cast] : ballot.votes()) {
        auto* seat = seats.Add();
        seat->set_uuid(to_bytes(uuid));
        seat->set_serial(cast.serial);
    }
}

}  // namespace pccl::core
