#include "core/all_reduce/operation.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/numeric/quantize.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

Operation::Operation(const Identity& identity, const ReduceShape& reduce_shape, BufferId send_buffer,
                     BufferId receive_buffer, const Limits& limits)
    : Operation(identity, reduce_shape, graph_of(CollectiveKind::all_reduce, identity.world, reduce_shape.count),
                send_buffer, receive_buffer, limits) {}

Operation::Operation(const Identity& identity, const ReduceShape& reduce_shape, Graph graph, BufferId send_buffer,
                     BufferId receive_buffer, const Limits& limits)
    : id(identity), shape(reduce_shape), send(send_buffer), receive(receive_buffer), graph_(std::move(graph)),
      inputs_ready_(limits.inputs_ready) {
    ASSERT(id.world >= 2 && id.position < id.world);
    in_place = send == receive;
    slice_elements_ = numeric::elements_within(shape.quantization, shape.type, limits.slice_bytes);
    slice_wire_ = wire_of(slice_elements_);
    const std::size_t parts = graph_.parts.size();
    part_first_.resize(parts + 1);
    part_wire_.resize(parts + 1);
    ASSERT(graph_.copies == 1 || parts == graph_.copies);
    for (std::size_t i = 0; i < parts; ++i) {
        const Part& part = graph_.parts[i];
        ASSERT(part.source < id.world && part.copy_hops < id.world);
        ASSERT(part.branch_hops == 0 || part.copy_hops + part.branch_hops == id.world - 1);
        ASSERT(part.reduce_hops == 0 || part.reduce_hops == id.world - 1);
        const std::uint64_t whole = part.elements / slice_elements_;
        const std::uint64_t rest = part.elements % slice_elements_;
        part_first_[i + 1] = part_first_[i] + static_cast<std::uint32_t>(whole + (rest != 0 ? 1 : 0));
        part_wire_[i + 1] = part_wire_[i] + whole * slice_wire_ + wire_of(rest);
        slot_bytes = std::max(slot_bytes, whole != 0 ? slice_wire_ : wire_of(rest));
        elements_ += part.elements;
        if (part.reduce_hops == 0) continue;
        reduces_ = true;
        if (start_of(part) != id.position) continue;
        // Each member starts at most one part, so its slices are one range.
        ASSERT(own_part_ == none);
        own_part_ = static_cast<std::uint32_t>(i);
        inject_next_ = quantize_next_ = part_first_[i];
        inject_end_ = part_first_[i + 1];
    }
    parts_.reserve(slices());
    for (std::uint32_t part = 0; part < parts; ++part) parts_.resize(part_first_[part + 1], part);
    halves_[0].resize(slices());
    halves_[1].resize(slices());
    slot_of_.assign(slices(), none);
    if (reads_ahead()) unread_.reserve(slices());
    if (reduces_) own_final_next_ = slices();
    place_finals();
    count_due();
}

void Operation::carry(Operation& along_the_ring, std::uint32_t part) {
    ASSERT(direct && along_the_ring.part(part).elements == elements_);
    whole = &along_the_ring;
    carried_first_ = along_the_ring.part_first_[part];
    ASSERT(along_the_ring.part_first_[part + 1] - carried_first_ == slices());
    own_final_next_ = slices();  // they are final when they are there
    scratch_bytes_ = 0;
    copies_all_ = false;
}

std::uint32_t Operation::start_of(const Part& part) const {
    return (part.source + id.world - part.reduce_hops) % id.world;
}

std::uint32_t Operation::hops_after(const Part& part) const {
    return (id.position + id.world - part.source) % id.world;
}

void Operation::place_finals() {
    const bool beside = in_place || is_quantized();
    const std::size_t parts = graph_.parts.size();
    places_.resize(parts);
    copies_all_ = !is_quantized();
    for (std::size_t i = 0; i < parts; ++i) {
        const Part& part = graph_.parts[i];
        const bool kept = part.keeper == everyone || part.keeper == id.position;
        copies_all_ =
            copies_all_ && kept && has_final(part) && part_wire_[i] == part.receive_offset * element_bytes(shape.type);
        if (!has_final(part)) continue;
        FinalPlace& place = places_[i];
        if (is_own_final(part) && (!kept || (in_place && part.send_offset == part.receive_offset))) {
            place.where = Where::send;
            copies_all_ = false;
        } else if (kept && !beside) {
            place.where = Where::receive;
        } else {
            const bool on_input = in_place && kept && !is_quantized() && part.reduce_hops != 0 && graph_.copies == 1 &&
                                  part.send_offset == part.receive_offset;
            place.where = on_input ? Where::input : Where::scratch;
            copies_all_ = copies_all_ && !on_input;
            place.scratch_offset = scratch_bytes_;
            scratch_bytes_ += part_wire_[i + 1] - part_wire_[i];
        }
    }
}

void Operation::count_due() {
    for (std::size_t i = 0; i < graph_.parts.size(); ++i) {
        const Part& part = graph_.parts[i];
        const std::uint32_t count = part_first_[i + 1] - part_first_[i];
        if (has_final(part)) finals_due_ += count;
        branches_in_ = branches_in_ || begins_branch(part);
        if (has_final(part) && part.source != id.position && !begins_branch(part)) landings_due_ += count;
        if (part.reduce_hops == 0 || start_of(part) == id.position) continue;
        partial_landings_ += count;
        landings_due_ += count;
        if (part.source != id.position) partials_due_ += count;
    }
}

std::uint64_t Operation::offset_in_part(std::uint32_t slice) const {
    return static_cast<std::uint64_t>(slice - part_first_[part_of(slice)]) * slice_elements_;
}

std::uint64_t Operation::byte_offset(std::uint32_t slice) const {
    return (graph_.parts[part_of(slice)].send_offset + offset_in_part(slice)) * element_bytes(shape.type);
}

std::uint64_t Operation::receive_offset(std::uint32_t slice) const {
    return (graph_.parts[part_of(slice)].receive_offset + offset_in_part(slice)) * element_bytes(shape.type);
}

std::uint64_t Operation::elements(std::uint32_t slice) const {
    return std::min<std::uint64_t>(slice_elements_, graph_.parts[part_of(slice)].elements - offset_in_part(slice));
}

std::uint32_t Operation::byte_length(std::uint32_t slice) const {
    return static_cast<std::uint32_t>(elements(slice) * element_bytes(shape.type));
}

std::uint32_t Operation::wire_of(std::uint64_t elements) const {
    return static_cast<std::uint32_t>(numeric::wire_bytes(shape.quantization, shape.type, elements));
}

std::uint64_t Operation::wire_offset(std::uint32_t slice) const {
    const std::uint32_t part = part_of(slice);
    return part_wire_[part] + static_cast<std::uint64_t>(slice - part_first_[part]) * slice_wire_;
}

std::uint32_t Operation::wire_length(std::uint32_t slice) const { return wire_of(elements(slice)); }

std::uint32_t Operation::distance(std::uint32_t slice) const {
    return (id.position + id.world - start_of(graph_.parts[part_of(slice)])) % id.world;
}

bool Operation::takes(int phase, std::uint32_t slice) const {
    const Part& part = graph_.parts[part_of(slice)];
    if (phase == 0) return part.reduce_hops != 0 && start_of(part) != id.position;
    return part.source != id.position && has_final(part) && !begins_branch(part);
}

bool Operation::forwards_final(std::uint32_t slice) const {
    const Part& part = graph_.parts[part_of(slice)];
    const std::uint32_t hops = hops_after(part);
    return hops < part.copy_hops + part.branch_hops && (hops != part.copy_hops || part.branch_hops == 0);
}

bool Operation::keeps(std::uint32_t slice) const {
    const Part& part = graph_.parts[part_of(slice)];
    return has_final(part) && (part.keeper == everyone || part.keeper == id.position);
}

BufferRef Operation::final_ref(std::uint32_t slice) const {
    if (whole != nullptr) return whole->final_ref(in_whole(slice));
    const std::uint32_t part = part_of(slice);
    const FinalPlace& place = places_[part];
    ASSERT(place.where != Where::none);
    switch (place.where) {
    case Where::send: return input_place(slice);
    case Where::receive: return BufferRef{receive, receive_offset(slice), byte_length(slice)};
    case Where::input:
        if (half(1, slice).overwrites) return BufferRef{receive, receive_offset(slice), byte_length(slice)};
        break;
    default: break;
    }
    return scratch_ref(slice);
}

BufferRef Operation::scratch_ref(std::uint32_t slice) const {
    const std::uint32_t part = part_of(slice);
    return BufferRef{result, places_[part].scratch_offset + wire_offset(slice) - part_wire_[part], wire_length(slice)};
}

BufferRef Operation::own_input(std::uint32_t slice) const {
    return half(1, slice).overwrites ? scratch_ref(slice) : input_place(slice);
}

void Operation::choose_place(std::uint32_t slice) {
    if (whole != nullptr) return whole->choose_place(in_whole(slice));
    if (!may_overwrite(slice) || half(1, slice).overwrites) return;
    Half& input = half(0, slice);
    ASSERT(input.kept != Kept::computing);
    if (input.kept == Kept::no) {
        PROBE(final_beside_input);
    } else if (starts(slice) && input.out == OutState::sending) {
        PROBE(final_beside_input_that_leaves);
        input.kept = Kept::no;
    } else {
        overwrite(slice);
    }
}

void Operation::overwrite(std::uint32_t slice) {
    ASSERT(may_overwrite(slice));
    Half& entry = half(1, slice);
    if (!entry.overwrites) ++overwritten_;
    entry.overwrites = true;
}

std::uint64_t Operation::copies_due() const {
    if (!decided) return 0;
    if (!committed) return overwritten_ != 0 ? slices() : 0;
    if (!has_scratch()) return 0;
    return copies_all_ ? bytes() : slices();
}

bool Operation::is_more_urgent(int phase, std::uint32_t slice, std::uint32_t other) {
    const auto key = [&](std::uint32_t one) { return std::pair(half(phase, one).counted, lost_times(phase, one)); };
    return key(slice) > key(other);
}

void Operation::enqueue(int phase, std::uint32_t slice) {
    Half& entry = half(phase, slice);
    ASSERT(entry.out != OutState::queued && entry.out != OutState::acknowledged);
    left_flight(entry);
    entry.out = OutState::queued;
    ++queued_;
    entry.out_link = 0;
    entry.next = none;
    Queue& queue = queue_of(phase, slice);
    if (entry.counted || lost.contains({phase, slice})) {
        // A resend goes first. It may hold credit already: behind a slice that waits for credit, it would wait for
        // itself. And the clock of a lost slice runs, so its time must not pass in the queue. What was lost more often
        // stays ahead: it may have been the second one on each connection, and only the first one gets through.
        if (queue.head != none) PROBE(resend_goes_first);
        std::uint32_t before = none;
        entry.next = queue.head;
        while (entry.next != none && is_more_urgent(phase, entry.next, slice)) {
            PROBE(lost_more_often_stays_first);
            before = entry.next;
            entry.next = half(phase, before).next;
        }
        (before == none ? queue.head : half(phase, before).next) = slice;
        if (entry.next == none) queue.tail = slice;
        return;
    }
    if (queue.tail == none)
        queue.head = slice;
    else
        half(phase, queue.tail).next = slice;
    queue.tail = slice;
}

void Operation::declined(int phase, std::uint32_t slice) {
    Half& entry = half(phase, slice);
    if (entry.counted) {
        entry.counted = false;
        --used;
    }
    lost.erase({phase, slice});  // a decline is an answer, so the neighbour was reached
    begin_anew(entry, true);
    enqueue(phase, slice);
}

void Operation::acknowledged(int phase, std::uint32_t slice) {
    Half& entry = half(phase, slice);
    left_flight(entry);
    left_queue(entry);
    lost.erase({phase, slice});
    entry.out = OutState::acknowledged;
    if (phase != 0 || entry.counted) return;
    entry.counted = true;  // one of two copies was declined, the other one has a slot
    ++used;
}

void Operation::leaves(int phase, std::uint32_t slice, LinkId link) {
    Half& entry = half(phase, slice);
    left_queue(entry);
    entry.out = OutState::sending;
    entry.out_link = link;
    ++in_flight;
}

bool Operation::moves(int phase, std::uint32_t slice, std::uint32_t bytes) {
    Half& entry = half(phase, slice);
    if (bytes <= entry.moved || bytes > wire_length(slice)) return false;
    entry.moved = bytes;
    return true;
}

void Operation::begin_anew(Half& entry, bool counts) {
    if (entry.again >= again_max) return;
    entry.moved = 0;
    if (counts) ++entry.again;
}

void Operation::left_flight(const Half& entry) {
    if (entry.out != OutState::sending && entry.out != OutState::sent) return;
    ASSERT(in_flight > 0);
    --in_flight;
}

void Operation::left_queue(const Half& entry) {
    if (entry.out != OutState::queued) return;
    ASSERT(queued_ > 0);
    --queued_;
}

bool Operation::lost_again(int phase, std::uint32_t slice, Instant now, Duration together) {
    Lost& entry = lost[{phase, slice}];
    const bool counts = entry.times == 0 || now - entry.counted_at >= together;
    if (entry.times == 0) entry.since = now;
    begin_anew(half(phase, slice), counts);
    if (counts) {
        ++entry.times;
        ++entry.fruitless;
        entry.counted_at = now;
        entry.stalled_on = 0;
    }
    entry.queued_at = now;
    enqueue(phase, slice);
    return counts;
}

Operation::Queue& Operation::queue_of(int phase, std::uint32_t slice) {
    return phase == 0 && !half(0, slice).counted && starts(slice) ? declined_ : queues_[phase];
}

void Operation::drop_answered(int phase, Queue& queue) {
    while (queue.head != none && half(phase, queue.head).out == OutState::acknowledged) {
        PROBE(resend_answered_in_queue);
        queue.head = half(phase, queue.head).next;
    }
    if (queue.head == none) queue.tail = none;
}

std::uint32_t Operation::lost_times(int phase, std::uint32_t slice) const {
    const auto found = slice == none ? lost.end() : lost.find({phase, slice});
    return found == lost.end() ? 0 : found->second.times;
}

std::uint32_t Operation::resends() {
    std::uint32_t most = 0;
    if (lost.empty()) return most;
    for (const int phase : {0, 1}) {
        drop_answered(phase, queues_[phase]);
        most = std::max(most, lost_times(phase, queues_[phase].head));
    }
    return most;
}

Operation::Next Operation::peek(std::uint32_t eager_left, std::uint32_t slots_most) {
    Next next;
    if (decided) return next;
    drop_answered(0, queues_[0]);
    drop_answered(1, queues_[1]);
    drop_answered(0, declined_);
    const std::uint32_t free = free_credit();
    if (neighbour_ready) {
        const std::uint32_t first = queues_[0].head;
        const std::uint32_t final = queues_[1].head;
        if (!lost.empty() && lost_times(1, final) > lost_times(0, first)) {
            next.phase = 1;
            next.slice = final;
            return next;
        }
        if (first != none && (half(0, first).counted || free > 0)) {
            next.slice = first;
            return next;
        }
        if (first != none) PROBE(waits_for_credit);
        if (queues_[1].head != none) {
            next.phase = 1;
            next.slice = queues_[1].head;
            return next;
        }
        const std::uint32_t input = declined_.head != none ? declined_.head : may_inject() ? inject_next_ : none;
        if (input != none) {
            const std::uint32_t own = std::min(neighbour_slots, slots_most);
            const std::uint32_t keep = neighbour_slots - (ends_at_successor(input) ? own : own - own / 2);
            if (free > keep)
                next.slice = input;
            else
                PROBE(input_held_back);
        }
    } else if (!held) {
        // By the time that they arrive, the neighbour has probably begun, with as many slots as this member has.
        const std::uint32_t first = queues_[0].head, final = queues_[1].head;
        if (first != none && used < slot_count) {
            next.slice = first;
        } else if (final != none && reduces_) {  // own final bytes would only be declined
            next.phase = 1;
            next.slice = final;
        } else if (may_inject()) {
            const std::uint32_t own = std::min(slot_count, slots_most);
            next.eager = used >= (ends_at_successor(inject_next_) ? own : own / 2);
            if (!next.eager || eager_left > 0) next.slice = inject_next_;
        }
    }
    return next;
}

void Operation::pop(const Next& next) {
    Half& entry = half(next.phase, next.slice);
    if (entry.out == OutState::queued) {
        Queue& queue = queue_of(next.phase, next.slice);
        ASSERT(queue.head == next.slice);
        queue.head = entry.next;
        if (queue.head == none) queue.tail = none;
    } else {
        ASSERT(next.phase == 0 && next.slice == inject_next_ && entry.out == OutState::idle);
        ++inject_next_;
    }
    if (next.phase == 0 && !entry.counted) {
        entry.counted = true;
        ++used;
    }
}

bool Operation::wants_to_send() const {
    return inject_next_ < inject_end_ || queued_ != 0;  // an answered slice may still be linked in its queue
}

// Quantized own input counts as landed when its form on the wire exists.
bool Operation::may_inject() const {
    return inject_next_ < inject_end_ && (!is_quantized() || half(0, inject_next_).in == InState::landed);
}

std::uint64_t Operation::input_bytes() const {
    return own_part_ == none ? 0 : part_wire_[own_part_ + 1] - part_wire_[own_part_];
}

BufferRef Operation::input_ref(std::uint32_t slice) const {
    return BufferRef{inputs, wire_offset(slice) - part_wire_[own_part_], wire_length(slice)};
}

std::uint32_t Operation::take_input() {
    if (is_quantized()) {
        if (quantize_next_ == inject_end_ || quantize_next_ - inject_next_ >= inputs_ready_) return none;
        return quantize_next_++;
    }
    if (computes + unsummed >= inputs_ready_) return none;
    while (own_final_next_ < slices()) {
        const std::uint32_t part = part_of(own_final_next_);
        if (is_own_final(graph_.parts[part])) return own_final_next_++;
        own_final_next_ = part_first_[part + 1];
    }
    return none;
}

bool Operation::sums_while_leaving(std::uint32_t slice) const {
    return forwards_final(slice) && final_ref(slice) == input_place(slice);
}

void Operation::leave_unsummed(std::uint32_t slice) {
    Half& entry = half(1, slice);
    ASSERT(entry.in == InState::none);
    entry.in = InState::landed;
    entry.unsummed = true;
    ++unsummed;
    enqueue(1, slice);
}

void Operation::summed(std::uint32_t slice, std::uint64_t checksum) {
    Half& entry = half(1, slice);
    if (entry.unsummed) --unsummed;
    entry.unsummed = false;
    entry.checksum = checksum;
    ++finals;
    ASSERT(finals <= finals_due_);
    if (is_shared()) add_digest(slice, checksum);
}

void Operation::make_slots(std::uint32_t count, std::uint32_t partial_sums) {
    slot_count = count;
    slots_scarce_ = count < partial_sums;
    granted = count;
    free_slots_.reserve(count);
    for (std::uint32_t i = count; i > 0; --i) free_slots_.push_back(i - 1);
}

std::uint32_t Operation::take_slot(std::uint32_t slice) {
    ASSERT(slot_of_[slice] == none);
    const bool input_of_predecessor = distance(slice) == 1 && !finishes(slice);
    if (free_slots_.size() <= (input_of_predecessor && slots_scarce_ ? 1u : 0u)) return none;
    slot_of_[slice] = free_slots_.back();
    free_slots_.pop_back();
    return slot_of_[slice];
}

void Operation::return_slot(std::uint32_t slice) {
    ASSERT(slot_of_[slice] != none);
    free_slots_.push_back(slot_of_[slice]);
    slot_of_[slice] = none;
    ASSERT(free_slots_.size() <= slot_count);
}

void Operation::give_slot(std::uint32_t slice) {
    return_slot(slice);
    ++granted;
}

BufferRef Operation::slot_ref(std::uint32_t slice) const {
    ASSERT(slot_of_[slice] != none);
    return BufferRef{slots, static_cast<std::uint64_t>(slot_of_[slice]) * slot_bytes, wire_length(slice)};
}

void Operation::add_digest(std::uint32_t slice, std::uint64_t checksum) {
    // A sum of mixed (slice, checksum) pairs: independent of the order in which slices land.
    const std::uint32_t number = slice % (slices() / graph_.copies);
    std::uint64_t z = checksum ^ (static_cast<std::uint64_t>(number) + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    digest += z ^ (z >> 31);
}

void Operation::started(const Identity& identity, Instant now) {
    ASSERT(ahead && identity.world == id.world && identity.position == id.position);
    id = identity;
    ahead = false;
    waits_since = now;
    for (auto& [slice, entry] : lost) entry.since = entry.queued_at = entry.left_at = now;
}

bool Operation::waits_for_input() const {
    return prepared && !decided && end_serial == 0 && !is_busy() && queued_ == 0 && in_flight == 0;
}

void Operation::check() const {
    std::uint32_t flying = 0, queued = 0, taken = 0, without_sum = 0;
    for (int phase = 0; phase < 2; ++phase) {
        for (const Half& entry : halves_[phase]) {
            const bool flies = entry.out == OutState::sending || entry.out == OutState::sent;
            flying += flies ? 1 : 0;
            queued += entry.out == OutState::queued ? 1 : 0;
            without_sum += entry.unsummed ? 1 : 0;
            ASSERT(phase == 0 || !entry.counted);
            ASSERT(entry.out != OutState::sending || entry.out_link != 0);
            ASSERT(entry.in != InState::landing || entry.in_link != 0);
        }
    }
    ASSERT(flying == in_flight && queued == queued_ && without_sum == unsummed);
    for (const auto& [key, entry] : lost) ASSERT(half(key.first, key.second).out != OutState::acknowledged);
    std::vector<bool> free(slot_count);
    for (const std::uint32_t slot : free_slots_) {
        ASSERT(slot < slot_count && !free[slot]);
        free[slot] = true;
    }
    for (const std::uint32_t slot : slot_of_) {
        if (slot == none) continue;
        ASSERT(slot < slot_count && !free[slot]);
        free[slot] = true;
        ++taken;
    }
    ASSERT(taken + free_slots_.size() == slot_count);
    ASSERT(reading <= computes && unread_next_ <= unread_.size() && unread_.size() <= finals);
    ASSERT(finals <= finals_due_ && partials <= partials_due_);
    ASSERT(!committed || decided);
}

}  // namespace pccl::core
