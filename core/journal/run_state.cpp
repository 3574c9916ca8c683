#include "core/journal/run_state.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/host_span.hpp"
#include "core/base/probe.hpp"
#include "core/numeric/kernels.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace pccl::core {

namespace {

std::vector<Uuid> order_of(const proto::RingRecord& ring) {
    std::vector<Uuid> order;
    for (const auto& bytes : ring.order()) order.push_back(uuid_of(bytes));
    return order;
}

// The hosts of a hierarchical all-reduce, and the other end of the edge within its host that the seat takes part in.
void tell_hosts(const proto::Decision& decision, int position, proto::StartAnswer& start) {
    const auto& told = decision.start().direct().host_ends();
    const std::vector<std::uint32_t> ends(told.begin(), told.end());
    *start.mutable_host_ends() = told;
    const auto at = static_cast<std::uint32_t>(position);
    const HostSpan host = host_of(at, static_cast<std::uint32_t>(decision.seats_size()), ends);
    if (host.size == 1 || (at != host.first && at != host.last)) return;
    start.set_host_other_end(decision.seats(static_cast<int>(at == host.first ? host.last : host.first)).uuid());
}

// Adds the first holder, which is whole if any is, for entries that come whole from one member, and some others. Each
// receiver begins at another place of the list.
void add_holders(const proto::SyncDecision& sync, int receiver, int told_max,
                 google::protobuf::RepeatedPtrField<proto::SyncHolder>& to) {
    const int count = sync.holders_size();
    const int told = std::min(count, told_max);
    for (int i = 0; i < told; ++i) {
        const std::int64_t others = count - 1;
        const int index = count <= told_max || i == 0
                              ? i
                              : static_cast<int>(1 + (std::int64_t{receiver} * (told_max - 1) + i - 1) % others);
        *to.Add() = sync.holders(index);
    }
}

}  // namespace

std::vector<std::pair<Uuid, Uuid>> RunningOp::edges() const {
    std::vector<std::pair<Uuid, Uuid>> all;
    const std::size_t count = members.size();
    for (std::size_t from = 0; from < count; ++from) {
        if (!direct()) {
            if (!path || from + 1 < count) all.emplace_back(members[from].uuid, members[(from + 1) % count].uuid);
            continue;
        }
        for (std::size_t to = 0; to < count; ++to) {
            const bool used = way == Way::all_pairs || (way == Way::to_root ? to : from) == root;
            if (from != to && used) all.emplace_back(members[from].uuid, members[to].uuid);
        }
    }
    if (way == Way::hierarchical) {
        const auto inside = edges_beside_the_ring();
        all.insert(all.end(), inside.begin(), inside.end());
    }
    return all;
}

std::vector<std::pair<Uuid, Uuid>> RunningOp::edges_beside_the_ring() const {
    if (direct()) return edges();
    std::vector<std::pair<Uuid, Uuid>> inside;
    for (const std::uint32_t end : host_ends) {
        const HostSpan host = host_of(end, static_cast<std::uint32_t>(members.size()), host_ends);
        if (host.size > 1) inside.emplace_back(members[host.last].uuid, members[host.first].uuid);
    }
    return inside;
}

void RunningOp::set_way(const proto::Direct& direct) {
    host_ends.assign(direct.host_ends().begin(), direct.host_ends().end());
    root = direct.root();
    way = !host_ends.empty()   ? Way::hierarchical
          : direct.to_root()   ? Way::to_root
          : direct.from_root() ? Way::from_root
                               : Way::all_pairs;
}

proto::Direct RunningOp::direct_edges() const {
    proto::Direct direct;
    direct.set_to_root(way == Way::to_root);
    direct.set_from_root(way == Way::from_root);
    direct.set_root(root);
    direct.mutable_host_ends()->Assign(host_ends.begin(), host_ends.end());
    return direct;
}

bool RunState::apply(const proto::Record& record) {
    switch (record.kind_case()) {
    case proto::Record::kRun: {
        const std::uint32_t incarnation_kept = incarnation;
        *this = RunState(removed_kept_);
        incarnation = incarnation_kept;
        return read(record.run(), run_id) && (record.run_key().empty() || read(record.run_key(), run_key));
    }
    case proto::Record::kIncarnation: incarnation = record.incarnation(); return true;
    case proto::Record::kToken: {
        const auto it = members.find(uuid_of(record.token().uuid()));
        if (it != members.end()) {
            it->second.token = record.token().current();
            it->second.token_next = record.token().next();
            if (record.token().has_address()) read(record.token().address(), it->second.endpoint);
        }
        return true;
    }
    case proto::Record::kDecision:
        if (record.decision().index() != last_index + 1) return false;
        apply_decision(record.decision());
        return true;
    case proto::Record::kSnapshot: return restore(record.snapshot());
    default: return false;
    }
}

void RunState::consume(const std::string& uuid, Serial serial, std::uint64_t index) {
    const auto it = members.find(uuid_of(uuid));
    if (it != members.end() && serial != 0) it->second.consumed[serial] = index;
}

void RunState::apply_topology(const proto::TopologyDecision& topology) {
    for (const auto& admitted : topology.admitted()) {
        MemberState& member = members[uuid_of(admitted.uuid())];
        member = MemberState{};
        member.group = admitted.group();
        member.seniority = next_seniority_++;
        read(admitted.address(), member.endpoint);
        member.token = admitted.token();
        member.concurrent_ops = admitted.concurrent_ops();
        member.host = admitted.host();
        if (!admitted.has_gang()) continue;
        member.gang = gang_of(admitted.gang());
        place(uuid_of(admitted.uuid()), member.gang);
    }
    for (const auto& ring : topology.rings()) groups[ring.group()].ring = order_of(ring);
    if (topology.admitted_size() > 0) ++epoch;
}

void RunState::place(const Uuid& member, const Gang& gang) {
    std::vector<Uuid>& places = gangs[gang.name];
    places.resize(gang.size);
    places[gang.place] = member;
}

std::vector<Uuid> RunState::mates_of(const Uuid& member) const {
    const auto gang = gangs.find(members.at(member).gang.name);
    if (gang == gangs.end()) return {};
    std::vector<Uuid> mates = gang->second;
    std::erase(mates, member);
    return mates;
}

void RunState::apply_removal(const proto::RemovalDecision& removal, const Cause& cause) {
    const Uuid uuid = uuid_of(removal.uuid());
    if (!members.contains(uuid)) return;
    gangs.erase(members.at(uuid).gang.name);
    ++epoch;
    take_out(uuid, cause);
    for (const std::string& mate : removal.mates()) take_out(uuid_of(mate), cause_of(removal.mates_cause()));
    set_ring(removal.ring());
    for (const proto::RingRecord& ring : removal.mates_rings()) set_ring(ring);
}

void RunState::take_out(const Uuid& uuid, const Cause& cause) {
    if (members.erase(uuid) == 0) return;
    removed[uuid] = cause;
    removed_order_.push_back(uuid);
    if (removed_order_.size() > removed_kept_) {
        removed.erase(removed_order_.front());
        removed_order_.pop_front();
    }
    if (const auto waiting = untold_.find(uuid); waiting != untold_.end()) {
        for (const std::uint64_t index : waiting->second) forget(index, uuid);
        untold_.erase(waiting);
    }
}

// After a removal.
void RunState::set_ring(const proto::RingRecord& ring) {
    const GroupId group = ring.group();
    GroupState& state = groups[group];
    state.ring = order_of(ring);
    if (!state.ring.empty()) return;
    // The last member is gone. Nobody is left to decide the group's operations, and its revision starts anew.
    PROBE(last_of_group_gone);
    if (state.running_ops != 0) PROBE(last_of_group_gone_with_operation);
    for (auto op = ops.begin(); op != ops.end();) op = op->second.group == group ? ops.erase(op) : std::next(op);
    groups.erase(group);
}

void RunState::keep(std::uint64_t index, Kept kept) {
    for (const Uuid& uuid : kept.waiting) untold_[uuid].push_back(index);
    kept.bytes = kept.decision.ByteSizeLong();
    kept_bytes_ += kept.bytes;
    kept_.emplace(index, std::move(kept));
}

void RunState::forget(std::uint64_t index, const Uuid& member) {
    const auto kept = kept_.find(index);
    kept->second.waiting.erase(member);
    if (!kept->second.waiting.empty()) return;
    kept_bytes_ -= kept->second.bytes;
    kept_.erase(kept);
}

void RunState::apply_sync(const proto::Decision& decision) {
    const proto::SyncDecision& sync = decision.sync();
    const auto group = groups.find(sync.group());
    if (group == groups.end()) return;
    if (sync.final()) {
        group->second.expected = sync.expected();
        group->second.sync.reset();
        for (const auto& seat : decision.seats()) {
            const auto member = members.find(uuid_of(seat.uuid()));
            if (member != members.end() && result_in(decision, seat) == 0) member->second.synced = true;
        }
        return;
    }
    if (sync.again()) {
        group->second.sync.reset();
        return;
    }
    RunningSync running;
    running.id = sync.sync();
    running.revision = sync.revision();
    for (const auto& seat : decision.seats()) {
        const Uuid uuid = uuid_of(seat.uuid());
        running.members.push_back({uuid, seat.serial(), 0});
        if (seat.strategy() == static_cast<std::uint32_t>(SyncStrategy::receive_only))
            running.receive_only.insert(uuid);
        if (seat.receives_unequal()) running.lack_whole.insert(uuid);
    }
    for (const auto& holder : sync.holders()) running.holders.push_back({uuid_of(holder.peer()), holder.whole()});
    group->second.sync = std::move(running);
}

void RunState::apply_decision(const proto::Decision& decision) {
    ASSERT(decision.index() == last_index + 1);
    last_index = decision.index();
    chain = decision.chain();
    switch (decision.kind_case()) {
    case proto::Decision::kTopology: apply_topology(decision.topology()); break;
    case proto::Decision::kRemoval: apply_removal(decision.removal(), cause_of(decision.cause())); break;
    case proto::Decision::kRing: {
        const auto group = groups.find(decision.ring().group());
        if (group != groups.end()) group->second.ring = order_of(decision.ring());
        break;
    }
    case proto::Decision::kStart: {
        const auto& start = decision.start();
        if (start.op() == 0 || start.reduced()) break;  // refused, or over already
        RunningOp& op = ops[start.op()];
        op.group = start.group();
        op.tag = start.tag();
        op.path = start.has_shape();
        if (start.has_direct()) op.set_way(start.direct());
        GroupState& group = groups[start.group()];
        for (const auto& seat : decision.seats()) {
            op.members.push_back({uuid_of(seat.uuid()), seat.serial(), seat.batch()});
            if (seat.batch() != 0) ++group.running_of_batch[{op.members.back().uuid, seat.batch()}];
        }
        ++group.running_ops;
        break;
    }
    case proto::Decision::kOutcome: {
        const auto op = ops.find(decision.outcome().op());
        if (op == ops.end()) break;
        const auto group = groups.find(op->second.group);
        if (group != groups.end()) {
            --group->second.running_ops;
            auto& of_batch = group->second.running_of_batch;
            for (const SeatState& seat : op->second.members) {
                const auto count = of_batch.find({seat.uuid, seat.batch});
                if (count != of_batch.end() && --count->second == 0) of_batch.erase(count);
            }
        }
        ops.erase(op);
        break;
    }
    case proto::Decision::kSync: apply_sync(decision); break;
    default: break;
    }
    // The seats of an outcome name the launches, whose start has used their votes.
    if (!decision.has_outcome()) {
        for (const auto& seat : decision.seats()) consume(seat.uuid(), seat.serial(), decision.index());
    }
    for (const auto& vote : decision.votes()) consume(vote.uuid(), vote.serial(), decision.index());
    Kept kept;
    for (const Uuid& uuid : recipients(decision)) {
        if (members.contains(uuid)) kept.waiting.insert(uuid);
    }
    if (!kept.waiting.empty()) {
        kept.decision = decision;
        keep(decision.index(), std::move(kept));
    }
}

std::string RunState::promised() const {
    std::string text = formatted("run {} index {} chain {} epoch {} \n", short_name(run_id), last_index, chain, epoch);
    for (const auto& [uuid, m] : members) {
        text += formatted("member {} group {} seniority {} at {}{}", short_name(uuid), m.group, m.seniority,
                          to_text(m.endpoint), m.synced ? " synced" : "");
        if (!m.gang.none()) text += formatted(" place {} of {} of gang {}", m.gang.place, m.gang.size, m.gang.name);
        if (m.host != 0) text += formatted(" on host {:x}", m.host);
        text += "\n";
    }
    for (const auto& [id, group] : groups) {
        text += formatted("group {} expects {} runs {} ring", id, group.expected, group.running_ops);
        for (const Uuid& uuid : group.ring) text += " " + short_name(uuid);
        if (group.sync) {
            text += formatted(" sync {} revision {} ", group.sync->id, group.sync->revision);
            for (const SeatState& seat : group.sync->members)
                text += formatted(" {}:{} ", short_name(seat.uuid), seat.serial);
        }
        text += "\n";
    }
    for (const auto& [id, op] : ops) {
        text += formatted("operation {} group {} tag {}{} ", id, op.group, op.tag,
                          op.path                          ? " path"
                          : op.way != RunningOp::Way::ring ? formatted(" way {} {}", static_cast<int>(op.way), op.root)
                                                           : std::string());
        for (const std::uint32_t end : op.host_ends) text += formatted("end {} ", end);
        for (const SeatState& seat : op.members) {
            text += formatted(" {}:{} ", short_name(seat.uuid), seat.serial);
            if (seat.batch != 0) text += formatted("of {} ", seat.batch);
        }
        text += "\n";
    }
    for (const auto& [uuid, cause] : removed) text += formatted("removed {} {}\n", short_name(uuid), to_text(cause));
    return text;
}

proto::Sizes RunState::sizes() const {
    proto::Sizes sizes;
    sizes.set_epoch(epoch);
    sizes.set_gangs(static_cast<std::uint32_t>(gangs.size()));
    for (const auto& [id, group] : groups) {
        if (group.ring.empty()) continue;
        auto* entry = sizes.add_groups();
        entry->set_group(id);
        entry->set_size(static_cast<std::uint32_t>(group.ring.size()));
    }
    return sizes;
}

bool RunState::has_sizes(const proto::Sizes& told) const {
    const proto::Sizes own = sizes();
    return told.epoch() == own.epoch() && told.gangs() == own.gangs() &&
           std::equal(told.groups().begin(), told.groups().end(), own.groups().begin(), own.groups().end(),
                      [](const auto& a, const auto& b) { return a.group() == b.group() && a.size() == b.size(); });
}

std::vector<Uuid> RunState::everyone() const {
    std::vector<Uuid> all;
    all.reserve(members.size());
    for (const auto& [uuid, member] : members) all.push_back(uuid);
    return all;
}

std::uint64_t RunState::marked(std::uint64_t index, std::uint64_t hash) const {
    hash >>= 32;
    std::array<char, 16> message;
    std::memcpy(message.data(), &index, 8);
    std::memcpy(message.data() + 8, &hash, 8);
    std::uint32_t mark = 0;
    std::memcpy(&mark, derive(run_key, {message.data(), message.size()}).data(), sizeof mark);
    return hash << 32 | mark;
}

std::uint64_t RunState::chain_of(proto::Decision& decision) const {
    decision.set_chain(chain);
    const std::string bytes = decision.SerializeAsString();
    return marked(decision.index(), numeric::checksum64(bytes.data(), bytes.size()));
}

bool RunState::made(std::uint64_t seen, std::uint64_t chain) const {
    return run_key == Secret{} || same_secret(chain, marked(seen, chain));
}

// Every decision that a member may name is in this state, even after a snapshot: either the member acknowledged it
// last, or it is kept until the member does. Acknowledgements are not journalled, so a restarted master keeps more,
// never less.
RunState::Recall RunState::recall(const Uuid& uuid, std::uint64_t seen, std::uint64_t seen_chain) const {
    const MemberState& member = members.at(uuid);
    if (seen == member.told) return seen_chain == member.told_chain ? Recall::same : Recall::unknown;
    if (seen < member.told) return Recall::older;
    const auto kept = kept_.find(seen);
    const bool for_it = kept != kept_.end() && kept->second.waiting.contains(uuid);
    return for_it && kept->second.decision.chain() == seen_chain ? Recall::same : Recall::unknown;
}

void RunState::acknowledge(const Uuid& uuid, std::uint64_t seen) {
    const auto member = members.find(uuid);
    if (member == members.end()) return;
    const auto told = kept_.find(seen);
    if (told == kept_.end() || !told->second.waiting.contains(uuid)) return;
    member->second.told = seen;
    member->second.told_chain = told->second.decision.chain();
    std::erase_if(member->second.consumed, [&](const auto& entry) { return entry.second <= seen; });
    const auto waiting = untold_.find(uuid);
    if (waiting == untold_.end()) return;
    for (; !waiting->second.empty() && waiting->second.front() <= seen; waiting->second.pop_front())
        forget(waiting->second.front(), uuid);
    if (waiting->second.empty()) untold_.erase(waiting);
}

std::vector<Uuid> RunState::recipients(const proto::Decision& decision) {
    std::vector<Uuid> out;
    for (const auto& seat : decision.seats()) out.push_back(uuid_of(seat.uuid()));
    for (const auto& admitted : decision.topology().admitted()) out.push_back(uuid_of(admitted.uuid()));
    return out;
}

std::optional<proto::Answer> RunState::answer_for(const proto::Decision& decision, const Uuid& member, GroupId group,
                                                  std::uint32_t holders_max) {
    const auto is_member = [name = to_bytes(member)](const auto& record) { return record.uuid() == name; };
    const auto& seats = decision.seats();
    const auto seat = std::find_if(seats.begin(), seats.end(), is_member);
    const auto& admitted = decision.topology().admitted();
    if (seat == seats.end() && std::none_of(admitted.begin(), admitted.end(), is_member)) return std::nullopt;

    proto::Answer answer;
    answer.set_index(decision.index());
    answer.set_chain(decision.chain());
    if (seat != seats.end()) {
        answer.set_serial(seat->serial());
        answer.set_result(result_in(decision, *seat));
        const bool own = seat->result() != 0;
        if (own ? seat->has_cause() : decision.has_cause())
            *answer.mutable_cause() = own ? seat->cause() : decision.cause();
    }
    write(decision.sizes(), group, *answer.mutable_view());
    const auto position = static_cast<int>(seat - seats.begin());
    switch (decision.kind_case()) {
    case proto::Decision::kTopology: answer.set_topology(true); break;
    case proto::Decision::kPending: answer.set_pending(decision.pending()); break;
    case proto::Decision::kOptimize: answer.set_optimize(true); break;
    case proto::Decision::kStart: {
        const int world = seats.size();
        auto& start = *answer.mutable_start();
        start.set_op(decision.start().op());
        start.set_world(static_cast<std::uint32_t>(world));
        start.set_position(static_cast<std::uint32_t>(position));
        start.set_predecessor(seats[(position + world - 1) % world].uuid());
        start.set_predecessor_serial(seats[(position + world - 1) % world].serial());
        start.set_successor(seats[(position + 1) % world].uuid());
        start.set_reduced(decision.start().reduced());
        start.set_collective(decision.start().collective());
        const auto& host_ends = decision.start().direct().host_ends();
        start.set_direct(decision.start().has_direct() && host_ends.empty());
        if (!host_ends.empty()) tell_hosts(decision, position, start);
        start.set_pairwise(decision.start().pairwise());
        if (decision.start().has_shape()) *start.mutable_shape() = decision.start().shape();
        // Only the receiver of a send lacks the result.
        if (!start.has_shape() || position == world - 1) start.set_result(decision.start().result());
        if (std::any_of(seats.begin(), seats.end(), [](const proto::Seat& other) { return other.share() != 0; })) {
            for (const auto& other : seats) start.add_shares(other.share());
        }
        if (decision.start().collective() == 0 || decision.start().op() == 0 || start.has_shape()) break;
        for (const auto& other : seats) {
            auto& told = *start.add_members();
            told.set_peer(other.uuid());
            told.set_index(other.index());
            told.set_count(other.count());
            *told.mutable_counts() = other.counts();
        }
        break;
    }
    case proto::Decision::kOutcome:
        answer.mutable_outcome()->set_op(decision.outcome().op());
        answer.mutable_outcome()->set_commit(decision.outcome().commit());
        break;
    case proto::Decision::kSync: {
        const auto& decided = decision.sync();
        auto& sync = *answer.mutable_sync();
        sync.set_sync(decided.sync());
        sync.set_final(decided.final() || answer.result() != 0);
        sync.set_again(decided.again());
        sync.set_revision(decided.revision());
        sync.set_receives(seat->receives());
        sync.set_receives_unequal(seat->receives_unequal());
        if (decided.has_content()) *sync.mutable_content() = decided.content();
        if (seat->receives() || seat->receives_unequal())
            add_holders(decided, position, static_cast<int>(holders_max), *sync.mutable_holders());
        break;
    }
    default: return std::nullopt;
    }
    return answer;
}

void RunState::check() const {
    std::size_t seats = 0;
    std::map<GroupId, std::uint32_t> running;
    for (const auto& [id, op] : ops) {
        ASSERT(groups.contains(op.group));
        ++running[op.group];
    }
    for (const auto& [id, group] : groups) {
        ASSERT(!group.ring.empty());
        for (const Uuid& uuid : group.ring) {
            const auto member = members.find(uuid);
            ASSERT(member != members.end() && member->second.group == id);
        }
        ASSERT(std::set<Uuid>(group.ring.begin(), group.ring.end()).size() == group.ring.size());
        seats += group.ring.size();
        ASSERT(group.running_ops == (running.contains(id) ? running.at(id) : 0));
    }
    ASSERT(seats == members.size());
    for (const auto& [uuid, member] : members) ASSERT(member.seniority < next_seniority_ && !removed.contains(uuid));
    std::size_t in_gangs = 0;
    for (const auto& [name, places] : gangs) {
        for (std::uint32_t place = 0; place < places.size(); ++place) {
            const auto member = members.find(places[place]);
            ASSERT(member != members.end());
            ASSERT((member->second.gang == Gang{name, static_cast<std::uint32_t>(places.size()), place}));
        }
        in_gangs += places.size();
    }
    ASSERT(std::count_if(members.begin(), members.end(), [](const auto& entry) { return !entry.second.gang.none(); }) ==
           static_cast<std::ptrdiff_t>(in_gangs));
    std::size_t waiting = 0, untold = 0;
    std::uint64_t bytes = 0;
    for (const auto& [index, kept] : kept_) {
        ASSERT(index <= last_index && index == kept.decision.index() && !kept.waiting.empty());
        waiting += kept.waiting.size();
        bytes += kept.bytes;
    }
    ASSERT(bytes == kept_bytes_);
    for (const auto& [uuid, indices] : untold_) {
        ASSERT(members.contains(uuid) && std::is_sorted(indices.begin(), indices.end()));
        for (const std::uint64_t index : indices) ASSERT(kept_.at(index).waiting.contains(uuid));
        untold += indices.size();
    }
    ASSERT(waiting == untold);
    ASSERT(removed_order_.size() == removed.size() && removed.size() <= removed_kept_);
}

}  // namespace pccl::core
