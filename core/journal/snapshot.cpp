// RunState as one record, so that a journal need not begin with the first decision of the run.
#include "core/journal/run_state.hpp"
#include "core/wire/convert.hpp"

namespace pccl::core {

namespace {

void write_seats(const std::vector<SeatState>& seats, google::protobuf::RepeatedPtrField<proto::Seat>& to) {
    for (const SeatState& seat : seats) {
        auto* entry = to.Add();
        entry->set_uuid(to_bytes(seat.uuid));
        entry->set_serial(seat.serial);
        entry->set_batch(seat.batch);
    }
}

std::vector<SeatState> read_seats(const google::protobuf::RepeatedPtrField<proto::Seat>& seats) {
    std::vector<SeatState> list;
    for (const auto& seat : seats) list.push_back({uuid_of(seat.uuid()), seat.serial(), seat.batch()});
    return list;
}

void write_member(const Uuid& uuid, const MemberState& member, proto::MemberSnapshot& to) {
    auto& record = *to.mutable_member();
    record.set_uuid(to_bytes(uuid));
    record.set_group(member.group);
    write(member.endpoint, *record.mutable_address());
    record.set_token(member.token);
    record.set_concurrent_ops(member.concurrent_ops);
    record.set_host(member.host);
    if (!member.gang.none()) write(member.gang, *record.mutable_gang());
    to.set_token_next(member.token_next);
    to.set_seniority(member.seniority);
    to.set_synced(member.synced);
    to.set_told(member.told);
    to.set_told_chain(member.told_chain);
    for (const auto& [serial, index] : member.consumed) {
        auto* vote = to.add_consumed();
        vote->set_serial(serial);
        vote->set_index(index);
    }
}

MemberState read_member(const proto::MemberSnapshot& from) {
    MemberState member;
    member.group = from.member().group();
    member.seniority = from.seniority();
    read(from.member().address(), member.endpoint);
    member.token = from.member().token();
    member.token_next = from.token_next();
    member.concurrent_ops = from.member().concurrent_ops();
    member.host = from.member().host();
    if (from.member().has_gang()) member.gang = gang_of(from.member().gang());
    member.synced = from.synced();
    member.told = from.told();
    member.told_chain = from.told_chain();
    for (const auto& vote : from.consumed()) member.consumed[vote.serial()] = vote.index();
    return member;
}

void write_group(GroupId id, const GroupState& group, proto::GroupSnapshot& to) {
    to.mutable_ring()->set_group(id);
    for (const Uuid& uuid : group.ring) to.mutable_ring()->add_order(to_bytes(uuid));
    to.set_expected(group.expected);
    to.set_running_ops(group.running_ops);
    if (!group.sync) return;
    auto& sync = *to.mutable_sync();
    sync.set_id(group.sync->id);
    sync.set_revision(group.sync->revision);
    write_seats(group.sync->members, *sync.mutable_members());
    for (const RunningSync::Holder& holder : group.sync->holders) {
        auto* to_holder = sync.add_holders();
        to_holder->set_peer(to_bytes(holder.uuid));
        to_holder->set_whole(holder.whole);
    }
    for (const Uuid& uuid : group.sync->receive_only) sync.add_receive_only(to_bytes(uuid));
    for (const Uuid& uuid : group.sync->lack_whole) sync.add_lack_whole(to_bytes(uuid));
}

GroupState read_group(const proto::GroupSnapshot& from) {
    GroupState group;
    for (const auto& uuid : from.ring().order()) group.ring.push_back(uuid_of(uuid));
    group.expected = from.expected();
    group.running_ops = from.running_ops();
    if (!from.has_sync()) return group;
    RunningSync sync;
    sync.id = from.sync().id();
    sync.revision = from.sync().revision();
    sync.members = read_seats(from.sync().members());
    for (const auto& holder : from.sync().holders()) sync.holders.push_back({uuid_of(holder.peer()), holder.whole()});
    for (const auto& uuid : from.sync().receive_only()) sync.receive_only.insert(uuid_of(uuid));
    for (const auto& uuid : from.sync().lack_whole()) sync.lack_whole.insert(uuid_of(uuid));
    group.sync = std::move(sync);
    return group;
}

}  // namespace

bool operator==(const RunState::Kept& a, const RunState::Kept& b) {
    return a.waiting == b.waiting && a.decision.SerializeAsString() == b.decision.SerializeAsString();
}

proto::Snapshot RunState::snapshot() const {
    proto::Snapshot to;
    to.set_run(to_bytes(run_id));
    to.set_run_key(to_bytes(run_key));
    to.set_incarnation(incarnation);
    to.set_last_index(last_index);
    to.set_chain(chain);
    to.set_epoch(epoch);
    to.set_next_seniority(next_seniority_);
    for (const auto& [uuid, member] : members) write_member(uuid, member, *to.add_members());
    for (const auto& [id, group] : groups) write_group(id, group, *to.add_groups());
    for (const auto& [id, op] : ops) {
        auto* record = to.add_operations();
        record->set_op(id);
        record->set_group(op.group);
        record->set_tag(op.tag);
        record->set_path(op.path);
        if (op.way != RunningOp::Way::ring) *record->mutable_direct() = op.direct_edges();
        write_seats(op.members, *record->mutable_members());
    }
    for (const Uuid& uuid : removed_order_) {
        auto* record = to.add_removed();
        record->set_uuid(to_bytes(uuid));
        const auto cause = removed.find(uuid);
        if (cause != removed.end()) write(cause->second, *record->mutable_cause());
    }
    for (const auto& [index, kept] : kept_) {
        auto* record = to.add_kept();
        *record->mutable_decision() = kept.decision;
        for (const Uuid& uuid : kept.waiting) record->add_waiting(to_bytes(uuid));
    }
    return to;
}

bool RunState::restore(const proto::Snapshot& from) {
    *this = RunState(removed_kept_);
    if (!read(from.run(), run_id)) return false;
    if (!from.run_key().empty() && !read(from.run_key(), run_key)) return false;
    incarnation = from.incarnation();
    last_index = from.last_index();
    chain = from.chain();
    epoch = from.epoch();
    next_seniority_ = from.next_seniority();
    for (const auto& member : from.members()) {
        const Uuid uuid = uuid_of(member.member().uuid());
        members[uuid] = read_member(member);
        if (!members[uuid].gang.none()) place(uuid, members[uuid].gang);
    }
    for (const auto& group : from.groups()) groups[group.ring().group()] = read_group(group);
    for (const auto& record : from.operations()) {
        RunningOp& op = ops[record.op()];
        op.group = record.group();
        op.tag = record.tag();
        op.path = record.path();
        if (record.has_direct()) op.set_way(record.direct());
        op.members = read_seats(record.members());
        for (const SeatState& seat : op.members) {
            if (seat.batch != 0) ++groups[op.group].running_of_batch[{seat.uuid, seat.batch}];
        }
    }
    for (const auto& record : from.removed()) {
        const Uuid uuid = uuid_of(record.uuid());
        removed[uuid] = cause_of(record.cause());
        removed_order_.push_back(uuid);
    }
    for (const auto& record : from.kept()) {
        Kept kept;
        kept.decision = record.decision();
        for (const auto& uuid : record.waiting()) kept.waiting.insert(uuid_of(uuid));
        keep(record.decision().index(), std::move(kept));
    }
    return true;
}

}  // namespace pccl::core
