#include "core/all_reduce/reductions.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/host_span.hpp"
#include "core/base/probe.hpp"
#include "core/voting/in_vote.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace pccl::core {

// ---- before the start ----------------------------------------------------------------------------------------------

void Reductions::launched(const Launches::Start& launch, bool near) {
    const auto ahead = std::distance(ops_.lower_bound({ahead_mark, 0}), ops_.end());
    if (place_.world == 0 || ahead >= turn_.limits.eager_slices() ||
        launch.collective.kind != CollectiveKind::all_reduce ||
        launch.shape.quantization.algorithm != QuantizationAlgorithm::none)
        return;
    Operation::Identity identity;
    identity.id = ahead_of(launch.serial);
    identity.tag = launch.tag;
    identity.serial = launch.serial;
    identity.world = place_.world;
    identity.position = place_.position;
    identity.successor = place_.successor;
    const bool large = may_have_shares(launch.shape);
    const std::span<const Piece> shares = large ? place_.shares : std::span<const Piece>{};
    const std::span<const std::uint32_t> host_ends = large ? place_.host_ends : std::span<const std::uint32_t>{};
    const bool pairwise =
        goes_pairwise(place_.world, launch.shape.count, launch.shape.type, false, turn_.limits.pairwise_bytes(near));
    identity.shares = pairwise ? name_of_pairwise : name_of_cuts(shares, host_ends);
    auto owned = std::make_unique<Operation>(
        identity, launch.shape,
        pairwise             ? pairwise_of(launch.shape.count)
        : !host_ends.empty() ? hierarchical_of(place_.world, launch.shape.count, host_ends, shares)
                             : graph_of(CollectiveKind::all_reduce, place_.world, launch.shape.count, 0, shares),
        launch.send, launch.receive, turn_.limits);
    if (!owned->wants_to_send()) return;
    PROBE(input_ahead_of_its_start);
    Operation& op = *owned;
    op.ahead = op.left_ahead = true;
    ops_[op.key()] = std::move(owned);
    owner_.operation_may_send(op);
}

bool Reductions::may_have_shares(const ReduceShape& shape) const {
    return shape.count >= turn_.limits.unequal_parts_bytes_min / element_bytes(shape.type);
}

std::unique_ptr<Operation> Reductions::take_ahead(const Operation::Identity& identity) {
    const auto found = ops_.find({ahead_of(identity.serial), 0});
    if (found == ops_.end()) return {};
    const Operation::Identity& guess = found->second->id;
    if (guess.world != identity.world || guess.position != identity.position || guess.successor != identity.successor ||
        guess.shares != identity.shares) {
        PROBE(ahead_on_another_ring);
        drop_ahead(identity.serial);
        return {};
    }
    PROBE(ahead_taken);
    std::unique_ptr<Operation> op = std::move(found->second);
    ops_.erase(found);
    op->started(identity, turn_.now);
    owner_.operation_started(*op, ahead_of(identity.serial));
    return op;
}

void Reductions::drop_ahead(Serial serial) {
    const auto found = ops_.find({ahead_of(serial), 0});
    if (found == ops_.end()) return;
    PROBE(ahead_dropped);
    const std::unique_ptr<Operation> op = std::move(found->second);
    ops_.erase(found);
    launches_.sent_in_vain(op->id.tag, op->sent_bytes);
    owner_.operation_dropped(*op);
}

Operation* Reductions::launched_as(Serial serial) {
    const auto found =
        std::find_if(ops_.begin(), ops_.end(), [&](const auto& entry) { return entry.second->id.serial == serial; });
    return found == ops_.end() ? nullptr : found->second.get();
}

Operation* Reductions::of_neighbour(const Uuid& neighbour, Serial serial) {
    const auto found = std::find_if(ops_.begin(), ops_.end(), [&](const auto& entry) {
        return entry.second->id.predecessor == neighbour && entry.second->id.predecessor_serial == serial;
    });
    return found == ops_.end() ? nullptr : found->second.get();
}

// The neighbour may receive the start later than this peer.
Serial Reductions::ahead_from() const {
    Serial from = session_.votes().last_serial() + 1;
    for (const auto& [id, op] : ops_) {
        if (op->left_ahead && !op->decided) from = std::min(from, op->id.serial);
    }
    return from;
}

// ---- start ---------------------------------------------------------------------------------------------------------

Cause Reductions::start_answered(const proto::Answer& answer) {
    session_.close_vote(answer.serial());
    const proto::StartAnswer& start = answer.start();
    // Before the application gets its buffer back.
    if (start.op() == 0 || start.reduced()) drop_ahead(answer.serial());
    const std::optional<Launches::Start> launch = launches_.answered(answer);
    if (start.op() == 0) return {};
    highest_ = std::max(highest_, start.op());
    settled_ = std::max(settled_, start.op());
    if (answer.serial() == 0 && start.has_shape()) return drafted(start);
    if (start.reduced() && !launch) return {};  // the launch is not ours any more, and nobody waits for us
    if (start.reduced() || (launch && start.world() >= 2 && start.position() < start.world())) {
        if (start.world() < 2 || start.position() >= start.world())
            return make_cause<CauseKind::master_contradicts_collective>();
        std::optional<StartMembers> members = members_in(start, *launch, who_.uuid, turn_.limits);
        if (!members) return make_cause<CauseKind::master_contradicts_collective>();
        if (start.reduced()) {
            const bool is_send = launch->collective.kind == CollectiveKind::send;
            const std::uint64_t bytes =
                is_send ? (members->index == 1 ? members->count * element_bytes(launch->shape.type) : 0)
                        : result_bytes_in_vote(launch->collective, launch->shape, members->pieces);
            if (start.result().size() != bytes) return make_cause<CauseKind::master_contradicts_collective>();
            reduced_in_vote(answer, *launch, std::move(*members));
            return {};
        }
        if (!start.has_shape()) note_place(answer, *launch, *members);
        launches_.begun(launch->tag, start.op());
        begin(start, *launch, std::move(*members));
        return {};
    }
    drop_ahead(answer.serial());
    // The launch is not ours any more. Vote against the operation, because the others must not wait for us.
    proto::Vote vote;
    vote.set_kind(proto::VOTE_END);
    vote.set_id(start.op());
    write(make_cause<CauseKind::not_launched_here>(), *vote.mutable_cause());
    session_.cast(vote);
    return {};
}

void Reductions::note_place(const proto::Answer& answer, const Launches::Start& launch, const StartMembers& members) {
    const proto::StartAnswer& start = answer.start();
    Place place{start.world(), start.position(), uuid_of(start.successor()), answer.view().epoch(), {}, {}};
    if (launch.collective.kind == CollectiveKind::all_reduce && may_have_shares(launch.shape)) {
        place.shares = members.pieces;
        place.host_ends = members.host_ends;
    } else if (place.world == place_.world && place.position == place_.position &&
               place.successor == place_.successor && place.epoch == place_.epoch) {
        place.shares = std::move(place_.shares);
        place.host_ends = std::move(place_.host_ends);
    }
    place_ = std::move(place);
}

// A send between two others goes through this peer. Its application has launched nothing, and is not told.
Cause Reductions::drafted(const proto::StartAnswer& start) {
    const proto::Shape& shape = start.shape();
    if (start.world() < 3 || start.position() == 0 || start.position() + 1 >= start.world() ||
        start.collective() != static_cast<std::uint32_t>(CollectiveKind::send) || shape.type() >= data_type_count ||
        shape.slice_bytes() == 0 ||
        !pieces_fit(shape.count(), 1, element_bytes(static_cast<DataType>(shape.type())), shape.slice_bytes()))
        return make_cause<CauseKind::master_contradicts_collective>();
    PROBE(drafted);
    if (shape.slice_bytes() != turn_.limits.slice_bytes) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_END);
        vote.set_id(start.op());
        vote.set_refused(true);
        const Cause why = make_cause<CauseKind::slices_differ>(turn_.limits.slice_bytes, shape.slice_bytes());
        write(why, *vote.mutable_cause());
        session_.cast(vote);
        return {};
    }
    Launches::Start none;
    none.shape.type = static_cast<DataType>(shape.type());
    none.collective.kind = CollectiveKind::send;
    StartMembers members;
    members.count = shape.count();
    begin(start, none, std::move(members));
    return {};
}

void Reductions::reduced_in_vote(const proto::Answer& answer, const Launches::Start& launch, StartMembers members) {
    PROBE(result_in_vote);
    const proto::StartAnswer& start = answer.start();
    std::string result = start.result();
    const Collective& own = launch.collective;
    const std::size_t element = element_bytes(launch.shape.type);
    const bool is_root = !own.root.is_nil() && start.position() == members.root;
    const std::uint64_t sent = input_elements(own, launch.shape.count, is_root) * element;
    // A sender is told no result.
    result = own_part(own, element, std::move(result), members.pieces, start.position(), members.root);
    const std::uint64_t received = result.size();
    if (own.kind == CollectiveKind::all_reduce || received != 0)
        turn_.add(StoreBytes{BufferRef{launch.receive, 0, result.size()}, result});
    Completion completion = completion_of(answer);
    completion.world = start.world();
    completion.sent_bytes = sent;
    completion.received_bytes = received;
    completion.index = members.index;
    completion.members = std::move(members.by_index);
    launches_.reduced_in_vote(launch.tag, start.op(), std::move(completion));
}

void Reductions::begin(const proto::StartAnswer& start, const Launches::Start& launch, StartMembers members) {
    Operation::Identity identity;
    identity.id = start.op();
    identity.tag = launch.tag;
    identity.serial = launch.serial;
    identity.world = start.world();
    identity.position = start.position();
    identity.predecessor = uuid_of(start.predecessor());
    identity.successor = uuid_of(start.successor());
    identity.predecessor_serial = start.predecessor_serial();
    if (launch.collective.kind == CollectiveKind::all_reduce)
        identity.shares = start.pairwise() ? name_of_pairwise : name_of_cuts(members.pieces, members.host_ends);
    if (start.direct()) {
        make_lanes(identity, start, launch, members);
    } else {
        auto owned = take_ahead(identity);
        if (owned == nullptr) {
            Graph graph = start.pairwise() ? pairwise_of(members.count)
                          : !members.host_ends.empty()
                              ? hierarchical_of(identity.world, members.count, members.host_ends, members.pieces)
                              : graph_of(launch.collective.kind, identity.world, members.count, members.root,
                                         members.pieces, launch.collective.order);
            // The receiver of a send keeps its array until the commit, as if it had the input in it.
            const bool receives = launch.collective.kind == CollectiveKind::send && members.index == 1;
            owned = std::make_unique<Operation>(identity, launch.shape, std::move(graph),
                                                receives ? launch.receive : launch.send, launch.receive, turn_.limits);
        }
        ops_[{start.op(), 0}] = std::move(owned);
        if (!start.host_other_end().empty()) make_host_lane(identity, launch, members, uuid_of(start.host_other_end()));
    }
    Operation& op = *ops_.at({start.op(), 0});
    if (start.pairwise()) PROBE(pairwise_started);
    op.drafted = start.has_shape() && launch.serial == 0;
    op.index = members.index;
    op.members = std::move(members.by_index);
    begin_lanes(start.op());
}

// The edge within a host leads from its last member to its first one. The part that the last one finishes takes it.
void Reductions::make_host_lane(const Operation::Identity& identity, const Launches::Start& launch,
                                const StartMembers& members, const Uuid& other_end) {
    const HostSpan host = host_of(identity.position, identity.world, members.host_ends);
    const bool sends = identity.position == host.last;
    PROBE(hierarchical_started);
    Operation& along_the_ring = *ops_.at({identity.id, 0});
    Operation::Identity own = identity;
    own.lane = 1;
    own.world = 2;
    own.position = sends ? 0 : 1;
    own.predecessor = sends ? Uuid{} : other_end;
    own.successor = sends ? other_end : Uuid{};
    own.predecessor_serial = 0;
    Graph graph;
    graph.shared = false;
    graph.parts.push_back({along_the_ring.part(host.number).elements, 0, 0, 1, 1, 0, 0, 0});
    auto owned =
        std::make_unique<Operation>(own, launch.shape, std::move(graph), launch.send, launch.receive, turn_.limits);
    owned->direct = true;
    owned->carry(along_the_ring, host.number);
    ops_[owned->key()] = std::move(owned);
}

Operation* Reductions::host_lane(const Operation& op) {
    const auto lane = ops_.find({op.id.id, op.id.lane + 1});
    return lane != ops_.end() && lane->second->whole == &op ? lane->second.get() : nullptr;
}

// Each lane is a path of two members. Neither end sends anything back, so its other neighbour is nil.
void Reductions::make_lanes(const Operation::Identity& identity, const proto::StartAnswer& start,
                            const Launches::Start& launch, const StartMembers& members) {
    PROBE(direct_started);
    const Graph graph = graph_of(launch.collective.kind, identity.world, members.count, members.root, members.pieces,
                                 launch.collective.order);
    std::vector<Lane> lanes = lanes_of(graph, identity.position);
    Graph stays;
    stays.shared = false;
    if (!lanes.empty() && lanes.front().peer == identity.position) {
        stays.parts.push_back(lanes.front().part);
        lanes.erase(lanes.begin());
    }
    const auto make = [&](std::uint32_t lane, std::uint32_t position, const Uuid& predecessor, const Uuid& successor,
                          Graph parts) {
        Operation::Identity own = identity;
        own.lane = lane;
        own.world = 2;
        own.position = position;
        own.predecessor = predecessor;
        own.successor = successor;
        own.predecessor_serial = 0;
        auto owned = std::make_unique<Operation>(own, launch.shape, std::move(parts), launch.send, launch.receive,
                                                 turn_.limits);
        owned->direct = true;
        ops_[owned->key()] = std::move(owned);
    };
    make(0, 0, {}, {}, std::move(stays));
    std::uint32_t number = 0;
    for (const Lane& lane : lanes) {
        const Uuid peer = uuid_of(start.members(static_cast<int>(lane.peer)).peer());
        Graph part;
        part.shared = false;
        part.parts.push_back(lane.part);
        if (lane.sends)
            make(++number, 0, {}, peer, std::move(part));
        else
            make(++number, 1, peer, {}, std::move(part));
    }
}

// Of an operation along the ring there is one lane; at an end of a host, there are two.
void Reductions::begin_lanes(OpId id) {
    Operation& op = *ops_.at({id, 0});
    std::uint64_t in_use = 0;
    for (const auto& [key, other] : ops_) in_use += static_cast<std::uint64_t>(other->slot_count) * other->slot_bytes;
    const std::uint32_t partials = op.partial_landings();
    if (partials > 0) {
        const std::uint64_t left = turn_.limits.scratch_bytes > in_use ? (turn_.limits.scratch_bytes - in_use) / 2 : 0;
        const auto affordable =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(left / op.slot_bytes, turn_.limits.slots_max));
        const std::uint64_t room = memory_left(op);
        const std::uint64_t rest = op.memory_bytes();
        const std::uint64_t allowed = room > rest ? (room - rest) / op.slot_bytes : 0;
        const std::uint32_t least = std::max(turn_.limits.min_slots, slots_least);
        op.make_slots(
            std::min(partials,
                     std::max(static_cast<std::uint32_t>(std::min<std::uint64_t>(affordable, allowed)), least)),
            partials);
    }
    std::uint64_t needed = 0;
    each_lane(id, [&](const Operation& lane) { needed += lane.memory_bytes(); });
    if (needed > memory_left(op)) {
        each_lane(id, [](Operation& lane) { lane.result = lane.has_scratch() ? 0 : lane.receive; });
        owner_.start_taken();
        if (needed <= turn_.limits.operation_bytes_max) {
            PROBE(scratch_limit_reached);
            vote_end(op, false, make_cause<CauseKind::no_scratch_left>());
            return;
        }
        PROBE(scratch_limit_too_small);
        if (op.drafted) PROBE(drafted_cannot);
        vote_end(op, false, make_cause<CauseKind::scratch_limit>(needed, turn_.limits.operation_bytes_max), true);
        return;
    }
    each_lane(id, [&](Operation& lane) { request_memory(lane); });
    check_memory();
    each_lane(id, [&](Operation& lane) { owner_.operation_begins(lane); });
    owner_.start_taken();
    each_lane(id, [&](Operation& lane) {
        if (lane.buffers_pending == 0 && !lane.prepared && lane.whole == nullptr) prepared(lane);
    });
}

void Reductions::request_memory(Operation& op) {
    if (op.partial_landings() > 0) {
        op.slots =
            memory_.request(static_cast<std::uint64_t>(op.slot_count) * op.slot_bytes, OperationMemory{op.key()});
        ++op.buffers_pending;
    }
    op.result = op.receive;
    if (op.has_scratch()) {
        // Final bytes land in scratch, so that the input stays as it is until the outcome is known.
        op.result = memory_.request(op.scratch_bytes(), OperationMemory{op.key()});
        ++op.buffers_pending;
    }
    if (op.is_quantized() && op.input_bytes() > 0) {
        op.inputs = memory_.request(op.input_bytes(), OperationMemory{op.key()});
        ++op.buffers_pending;
    }
}

// How much memory the limit leaves for this operation beside the others.
std::uint64_t Reductions::memory_left(const Operation& op) const {
    std::uint64_t left = turn_.limits.operation_bytes_max;
    if (left == 0) return std::numeric_limits<std::uint64_t>::max();
    for (const auto& [id, other] : ops_) {
        if (id.op != op.id.id) left -= std::min(left, other->memory_held());
    }
    return left;
}

void Reductions::prepared(Operation& op) {
    ASSERT(!op.prepared);
    op.prepared = true;
    op.landed_at = op.prepared_at = turn_.now;
    if (op.left_ahead) inputs_left_ahead(op);
    owner_.operation_prepared(op);
    vote_end_if_complete(op);
    prepare_inputs(op);
    owner_.operation_may_send(op);
    // What it carries has its place in the memory of the whole.
    if (Operation* lane = host_lane(op)) prepared(*lane);
}

void Reductions::inputs_left_ahead(Operation& op) {
    for (std::uint32_t slice = 0; slice < op.slices(); ++slice) {
        if (op.starts(slice) && op.half(0, slice).out != OutState::idle) results_.input_leaves(op, slice);
    }
}

void Reductions::memory_came(const OperationMemory& owner, const BufferAllocated& event) {
    const auto found = ops_.find(owner.op);
    ASSERT(found != ops_.end() && found->second->buffers_pending > 0);
    Operation& op = *found->second;
    --op.buffers_pending;
    if (op.decided) PROBE(abort_before_buffers);
    if (!event.ok) {
        PROBE(slots_not_allocated);
        if (op.slots == event.buffer) op.slots = 0;
        if (op.result == event.buffer) op.result = 0;
        if (op.inputs == event.buffer) op.inputs = 0;
        vote_end(op, false, make_cause<CauseKind::no_scratch_memory>());
    }
    if (op.decided)
        finish_if_idle(op);
    else if (op.buffers_pending == 0 && op.end_serial == 0)
        prepared(op);
}

// ---- computing -----------------------------------------------------------------------------------------------------

void Reductions::partial_landed(Operation& op, std::uint32_t slice, const BufferRef& place, std::uint32_t cell,
                                const Uuid& remote) {
    Compute compute;
    compute.kind = op.is_quantized() ? Compute::Kind::reduce_quantized : Compute::Kind::reduce;
    compute.type = op.shape.type;
    compute.op = op.shape.op;
    compute.quantization = op.shape.quantization;
    compute.want_checksum = true;
    compute.a = place;
    compute.b = op.input_place(slice);
    const bool keeps = op.may_keep(slice);
    if (keeps) {
        compute.keep = op.scratch_ref(slice);
        compute.past_caches = op.is_larger_than_caches();
    }
    if (op.finishes(slice)) {
        compute.target = keeps ? op.input_place(slice) : op.final_ref(slice);
        compute.divisor = op.shape.op == ReduceOp::avg ? op.id.world : 0;
    } else {
        compute.target = op.slot_ref(slice);
    }
    ++op.computes;
    computes_.request(std::move(compute), SliceReduction{op.key(), slice, cell, remote});
    // If there is no memory for the request, nothing is overwritten (copy_rest()).
    if (!keeps) return;
    op.half(0, slice).kept = Kept::computing;
    if (op.finishes(slice)) op.overwrite(slice);
}

void Reductions::prepare_inputs(Operation& op) {
    for (std::uint32_t slice = op.take_input(); slice != Operation::none; slice = op.take_input()) {
        if (!op.is_quantized() && op.sums_while_leaving(slice))
            op.leave_unsummed(slice);
        else
            prepare(op, slice);
    }
}

void Reductions::prepare(Operation& op, std::uint32_t slice) {
    Compute compute;
    compute.type = op.shape.type;
    compute.want_checksum = true;
    compute.a = op.input_place(slice);
    if (op.is_quantized()) {
        compute.kind = Compute::Kind::quantize;
        compute.quantization = op.shape.quantization;
        compute.target = op.input_ref(slice);
    } else {
        const BufferRef place = op.final_ref(slice);
        compute.kind = place == compute.a ? Compute::Kind::hash : Compute::Kind::copy;
        if (compute.kind == Compute::Kind::copy) compute.target = place;
    }
    ++op.computes;
    computes_.request(std::move(compute), InputPreparation{op.key(), slice});
}

void Reductions::input_prepared(Operation& op, std::uint32_t slice, std::uint64_t checksum) {
    if (op.decided) return finish_if_idle(op);
    if (!op.is_quantized()) {
        if (op.half(1, slice).unsummed)
            summed_leaving(op, slice, checksum);
        else
            final_there(op, slice, checksum);
        prepare_inputs(op);
        owner_.operation_may_send(op);
        return;
    }
    op.half(0, slice).in = InState::landed;
    op.half(0, slice).checksum = checksum;
    owner_.operation_may_send(op);
}

void Reductions::reduced(Operation& op, const SliceReduction& owner, std::uint64_t checksum) {
    if (owner.cell != SliceReduction::no_cell) owner_.early_cell_free(owner.remote, owner.cell);
    if (Half& input = op.half(0, owner.slice); input.kept == Kept::computing) input.kept = Kept::yes;
    if (op.decided) {
        PROBE(reduced_after_decision);
        finish_if_idle(op);
        return;
    }
    if (op.finishes(owner.slice)) {
        if (op.has_slot(owner.slice))
            op.give_slot(owner.slice);
        else
            ++op.granted;  // it came early and never needed its slot
        owner_.operation_grants(op);
        final_there(op, owner.slice, checksum);
    } else {
        op.half(0, owner.slice).checksum = checksum;
        op.enqueue(0, owner.slice);
        ++op.partials;
        vote_end_if_complete(op);
        owner_.operation_may_send(op);
    }
}

void Reductions::final_there(Operation& op, std::uint32_t slice, std::uint64_t checksum) {
    op.half(1, slice).in = InState::landed;
    op.summed(slice, checksum);
    results_.came(op, slice);
    if (op.forwards_final(slice)) op.enqueue(1, slice);
    if (Operation* lane = host_lane(op); lane != nullptr && lane->id.position == 0) {
        if (const std::uint32_t carried = lane->in_lane(slice); carried != Operation::none)
            final_there(*lane, carried, checksum);
    } else if (op.whole != nullptr && op.id.position == 1) {
        final_there(*op.whole, op.in_whole(slice), checksum);
    }
    vote_end_if_complete(op);
    owner_.operation_may_send(op);
}

void Reductions::summed_leaving(Operation& op, std::uint32_t slice, std::uint64_t checksum) {
    op.summed(slice, checksum);
    vote_end_if_complete(op);
}

void Reductions::final_left(Operation& op, std::uint32_t slice, std::uint64_t checksum) {
    const Half& half = op.half(1, slice);
    if (!half.unsummed || half.out == OutState::acknowledged) return;
    PROBE(summed_while_leaving);
    summed_leaving(op, slice, checksum);
    prepare_inputs(op);
}

// Drivers drop their reports of a connection that this machine closes itself, so there may be none.
void Reductions::final_got_through(Operation& op, std::uint32_t slice) {
    if (op.half(1, slice).unsummed) prepare(op, slice);
}

void Reductions::done(const SliceReduction& owner, const ComputeDone& done) {
    Operation& op = *ops_.at(owner.op);
    --op.computes;
    reduced(op, owner, done.checksum);
}

void Reductions::done(const InputPreparation& owner, const ComputeDone& done) {
    Operation& op = *ops_.at(owner.op);
    --op.computes;
    input_prepared(op, owner.slice, done.checksum);
}

void Reductions::done(const InputCopy& owner, const ComputeDone&) {
    Operation& op = *ops_.at(owner.op);
    --op.computes;
    op.half(0, owner.slice).kept = Kept::yes;
    if (op.decided) finish_if_idle(op);
}

void Reductions::done(const CommitCopy& owner, const ComputeDone&) {
    Operation& op = *ops_.at(owner.op);
    --op.computes;
    if (owner.ahead) --op.reading;
    if (!op.decided) return results_.read_ahead(op);
    finish_if_idle(op);
}

// ---- end -----------------------------------------------------------------------------------------------------------

void Reductions::vote_end_if_complete(Operation& op) {
    if (op.end_serial != 0 || !op.finished()) return;
    bool all = true;
    each_lane(op.id.id, [&](const Operation& lane) { all = all && lane.finished(); });
    if (all) vote_end(op, true, {});
}

bool Reductions::is_complete(OpId id) {
    bool all = true;
    each_lane(id, [&](const Operation& lane) { all = all && lane.complete(); });
    return all;
}

void Reductions::vote_end(Operation& op, bool ok, const Cause& cause, bool never) {
    if (op.end_serial != 0 || op.decided) return;
    proto::Vote vote = end_vote(op, ok, cause);
    vote.set_refused(never);
    const Serial serial = session_.cast(vote);
    each_lane(op.id.id, [&](Operation& lane) { lane.end_serial = serial; });
}

proto::Vote Reductions::end_vote(const Operation& op, bool ok, const Cause& cause) const {
    proto::Vote vote;
    vote.set_kind(proto::VOTE_END);
    vote.set_id(op.id.id);
    vote.set_ok(ok);
    vote.set_digest(op.whole == nullptr ? op.digest : op.whole->digest);
    if (!cause.empty()) write(cause, *vote.mutable_cause());
    return vote;
}

void Reductions::give_up_edge(Operation& op) {
    PROBE(edge_stuck);
    if (op.end_serial != 0) PROBE(edge_stuck_after_vote);
    turn_.log(
        LogLevel::warn,
        formatted("what is sent to peer {} does not get through, although it can be connected; look for a firewall "
                  "that inspects contents, a wrong path MTU, or faulty memory on the way",
                  short_name(op.id.successor)));
    session_.close_vote(op.end_serial);
    proto::Vote vote = end_vote(op, false, make_cause<CauseKind::nothing_gets_to>(op.id.successor));
    vote.set_stuck(to_bytes(op.id.successor));
    if (op.direct) PROBE(direct_edge_stuck);
    const Serial serial = session_.cast(vote);
    each_lane(op.id.id, [&](Operation& lane) {
        lane.given_up = true;
        lane.end_serial = serial;
    });
}

void Reductions::successor_unfinished(OpId id, bool in_vain) {
    Operation* op = find(id);
    if (op == nullptr || op->direct || op->decided || op->given_up || op->end_serial == 0 || op->is_busy() ||
        (!in_vain && (op->unanswered() || op->wants_to_send())) ||
        turn_.now - std::max(op->answered_at, op->prepared_at) <= turn_.timeouts.starved())
        return;
    PROBE(successor_never_finishes);
    const Cause why = make_cause<CauseKind::does_not_finish>(op->id.successor);
    turn_.log(LogLevel::warn, "a collective is given up: " + to_text(why));
    op->given_up = true;
    session_.close_vote(op->end_serial);
    proto::Vote vote = end_vote(*op, false, why);
    op->end_serial = session_.cast(vote);
}

Cause Reductions::outcome_answered(const proto::Answer& answer) {
    const proto::OutcomeAnswer& outcome = answer.outcome();
    session_.close_end_votes(outcome.op());
    Operation* op = find(outcome.op());
    if (op == nullptr || op->decided) return {};
    if (outcome.commit() && !is_complete(outcome.op())) return make_cause<CauseKind::master_contradicts_collective>();
    Completion completion = outcome.commit() ? completion_of(answer) : failure_in(answer);
    if (outcome.commit()) completion.result = Result::success;
    if (!op->drafted) launches_.told(op->id.tag, completion);
    decide(*op, outcome.commit(), std::move(completion));
    return {};
}

void Reductions::fail_all(const Cause& cause) {
    while (!ops_.empty() && is_ahead(ops_.rbegin()->first.op)) drop_ahead(serial_of(ops_.rbegin()->first.op));
    std::vector<LaneId> ops;
    for (const auto& [id, op] : ops_) {
        if (id.lane == 0) ops.push_back(id);
    }
    for (const LaneId& id : ops) {
        Operation& op = *ops_.at(id);
        op.outcome.epoch = 0;
        if (!op.decided) PROBE(lost_with_open_operation);
        if (!op.decided) decide(op, false, failure(Result::rank_connection_lost, cause));
    }
}

void Reductions::decide(Operation& op, bool commit, Completion outcome) {
    ASSERT(!op.decided && op.id.lane == 0 && (!commit || is_complete(op.id.id)));
    if (!commit && is_complete(op.id.id)) PROBE(abort_after_completion);
    outcome.sent_bytes = outcome.received_bytes = 0;
    each_lane(op.id.id, [&](Operation& lane) {
        lane.decided = true;
        lane.committed = commit;
        outcome.sent_bytes += lane.sent_bytes;
        outcome.received_bytes += lane.received_bytes;
    });
    outcome.world = op.members.empty() ? op.id.world : static_cast<std::uint32_t>(op.members.size());
    if (commit) {
        outcome.members = std::move(op.members);
        outcome.index = op.index;
    }
    op.outcome = std::move(outcome);
    each_lane(op.id.id, [&](Operation& lane) { owner_.operation_decided(lane); });
    finish_if_idle(op);
}

void Reductions::finish_if_idle(Operation& op) {
    if (!op.decided) return;
    const OpId id = op.id.id;
    bool idle = true;
    each_lane(id, [&](Operation& lane) {
        results_.copy_next(lane);
        idle = idle && lane.computes == 0 && lane.buffers_pending == 0 && lane.copied >= lane.copies_due();
    });
    if (!idle) return;
    each_lane(id, [&](const Operation& lane) {
        if (lane.inputs != 0) memory_.free(lane.inputs);
        if (lane.slots != 0) memory_.free(lane.slots);
        if (lane.result != 0 && lane.result != lane.receive) memory_.free(lane.result);
    });
    Operation& head = *find(id);
    const Tag tag = head.id.tag;
    const Serial serial = head.id.serial;
    const bool drafted = head.drafted;
    Completion outcome = std::move(head.outcome);
    ops_.erase(ops_.lower_bound({id, 0}), ops_.upper_bound({id, ~0u}));
    if (drafted) return launches_.forwarded(outcome);
    launches_.concluded(tag, serial, std::move(outcome));
}

void Reductions::copy_rest(const std::function<void(const Compute&)>& carry_out) {
    for (const auto& [id, op] : ops_) {
        op->decided = true;  // if it is not, it fails
        results_.copy_rest(*op, carry_out);
    }
}

void Reductions::check() const {
    ASSERT(highest_ <= settled_);
    check_memory();
    for (const auto& [id, op] : ops_) {
        ASSERT(op != nullptr && op->key() == id && op->ahead == is_ahead(id.op));
        ASSERT(id.lane == 0 || (op->direct && op->id.predecessor.is_nil() != op->id.successor.is_nil()));
        ASSERT(op->whole == nullptr ||
               (op->whole == ops_.at({id.op, 0}).get() && (!op->prepared || op->whole->prepared)));
        ASSERT(!op->ahead || (!op->prepared && !op->decided && op->end_serial == 0));
        ASSERT(op->id.world >= 2 && op->id.position < op->id.world);
        op->check();
    }
}

void Reductions::check_memory() const {
    if (turn_.limits.operation_bytes_max == 0) return;
    std::uint64_t held = 0;
    for (const auto& [id, op] : ops_) held += op->memory_held();
    ASSERT(held <= turn_.limits.operation_bytes_max);
}

}  // namespace pccl::core
