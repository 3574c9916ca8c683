// One collective as a graph over slices, seen from one position of the ring.
//
// The graph lists parts (core/voting/graph.hpp), and each part is cut into slices. In an all-reduce a slice of part p
// starts at position p+1 as the input of that member. Each next member reduces it (phase 0) until the last reducer,
// position p, has produced its final bytes. The final bytes then travel on as a copy (phase 1) to all other members.
// Other collectives have fewer parts or hops, or only one of the phases. A member forwards a slice as soon as it has it
// (cut-through); nothing waits for a step of the whole ring.
//
// Without phase 0 the source has the final bytes at the start. They need no slots, because they land in place. Shortly
// before they leave they are brought to their place and summed. Those that are in their place already are summed while
// they leave (Half::unsummed), because they are read then anyway; they count as final bytes of this member afterwards.
//
// A slice has a place in the application's arrays (byte_offset, byte_length) and a form on the wire (wire_offset,
// wire_length). The two are the same unless the operation is quantized. Then slots, reserve and final bytes hold the
// form on the wire, and own input is quantized into `inputs` shortly before it leaves. At the commit all members
// convert the same final bytes back into numbers.
//
// In a pairwise all-reduce both members finish all slices, so the digest counts a slice by its place in the array.
//
// A collective over direct edges has several of these at a member, its lanes (reductions.hpp): one for each member that
// it sends to or receives from, as a path of two members, and lane 0 for what stays here. They share one outcome.
//
// This class holds geometry and bookkeeping; Reductions, SliceSender and SliceReceiver drive it. All tables but `lost`
// are allocated at the start.
// In place, final bytes overwrite the input. A slice of a reduction is overwritten when its final bytes come, if its
// input has been kept in scratch by then: when it was reduced, or when it left, because it is in a near cache then.
// Otherwise the final bytes land in scratch, in the same range, as those of all other operations in place do. So each
// slice has one of the two in each place. At the commit the final bytes that are in scratch are copied to their place;
// if the operation fails, the inputs are. In a pairwise all-reduce both members need their input until the end, so final
// bytes land in scratch.
//
// Invariants: a slice lands at most once per phase; partial sums live in slots, never in the place of final bytes; the
// application's input is not overwritten before the outcome, unless scratch has it.
//
// Slots: a partial sum needs a slot at its receiver, granted by a cumulative credit. Own input enters the ring only
// while more than half of the successor's slots are free; forwarded partial sums may use all of them. So the slots
// around the ring can never all fill up. What leaves before the successor is ready does not know its slots. So the
// receiver leaves a slot free, too: input of the predecessor never takes the last one. Then somewhere in the ring a slot
// is free, and the slices move on. Slices that leave early use credit, too. A declined slice has no slot at the
// successor: it returns its credit, and own input joins the queue of declined input. If it kept the credit, retries could
// occupy the slots that forwarded partial sums need, and the ring would deadlock.
#pragma once

#include "core/base/limits.hpp"
#include "core/events.hpp"
#include "core/numeric/copy.hpp"
#include "core/voting/graph.hpp"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace pccl::core {

enum class InState : std::uint8_t { none, landing, landed };
enum class OutState : std::uint8_t { idle, queued, sending, sent, acknowledged };

// So many losses and declines of a slice make its bytes count again. Later copies have to get further than the others.
inline constexpr std::uint8_t again_max = 3;

// Whether scratch has own input that final bytes may overwrite.
enum class Kept : std::uint8_t { no, computing, yes };

// One phase of one slice at this position.
struct Half {
    InState in = InState::none;
    OutState out = OutState::idle;
    Kept kept = Kept::no;     // phase 0
    bool overwrites = false;  // phase 1: final bytes land, or have landed, on the input
    bool counted = false;     // phase 0: has used its credit
    bool unsummed = false;    // phase 1: own final bytes that leave, or have left, and have no checksum yet
    bool read = false;        // phase 1, quantized: its numbers are in the receive array, or will be
    std::uint8_t broken = 0;  // broken landings whose bytes were subtracted from landed_most
    std::uint8_t again = 0;   // losses and declines that made `moved` begin anew
    std::uint32_t next = 0;   // next slice in its queue
    std::uint32_t moved = 0;  // most bytes that the successor reported of a copy, since it began anew
    std::uint64_t checksum = 0;
    LinkId in_link = 0;
    LinkId out_link = 0;
};

// One for the predecessor's input, and one that it must leave free.
inline constexpr std::uint32_t slots_least = 2;

class Operation {
public:
    static constexpr std::uint32_t none = ~0u;

    struct Identity {
        OpId id = 0;
        std::uint32_t lane = 0;
        Tag tag = 0;
        Serial serial = 0;
        std::uint32_t world = 0;
        std::uint32_t position = 0;
        Uuid predecessor;  // nil: nothing comes
        Uuid successor;    // nil: nothing leaves
        Serial predecessor_serial = 0;  // of its vote for the start
        std::uint64_t shares = 0;       // name_of_cuts() or name_of_pairwise; 0: equal parts, or no all-reduce
    };

    Operation(const Identity& identity, const ReduceShape& shape, Graph graph, BufferId send, BufferId receive,
              const Limits& limits);
    // An all-reduce with equal parts.
    Operation(const Identity& identity, const ReduceShape& shape, BufferId send, BufferId receive,
              const Limits& limits);

    // ---- geometry
    std::uint32_t slices() const { return part_first_.back(); }
    std::uint32_t part_of(std::uint32_t slice) const { return parts_[slice]; }
    std::uint64_t byte_offset(std::uint32_t slice) const;     // in the send array
    std::uint64_t receive_offset(std::uint32_t slice) const;  // in the receive array, bytes
    std::uint32_t byte_length(std::uint32_t slice) const;
    std::uint64_t wire_offset(std::uint32_t slice) const;
    std::uint32_t wire_length(std::uint32_t slice) const;
    // Hops from the slice's start to this position: 0 starts it, its part's reduce_hops finishes it.
    std::uint32_t distance(std::uint32_t slice) const;
    bool starts(std::uint32_t slice) const { return reduces_ && distance(slice) == 0; }
    bool finishes(std::uint32_t slice) const {
        return reduces_ && distance(slice) == graph_.parts[part_of(slice)].reduce_hops;
    }
    // The slice comes here from the predecessor in this phase.
    bool takes(int phase, std::uint32_t slice) const;
    bool forwards_final(std::uint32_t slice) const;  // the successor needs the final bytes from here
    bool ends_at_successor(std::uint32_t slice) const {
        return distance(slice) + 1 == graph_.parts[part_of(slice)].reduce_hops;
    }
    // The application gets these final bytes here.
    bool keeps(std::uint32_t slice) const;
    // Where the final bytes are at this position. At a source without phase 0 that may be the send array.
    BufferRef final_ref(std::uint32_t slice) const;
    bool is_in_scratch(std::uint32_t slice) const {
        const Where where = places_[part_of(slice)].where;
        return where == Where::scratch || (where == Where::input && !half(1, slice).overwrites);
    }
    bool is_shared() const { return graph_.shared; }
    std::uint32_t partial_landings() const { return partial_landings_; }
    std::uint64_t bytes() const { return elements_ * element_bytes(shape.type); }
    std::uint64_t wire_bytes() const { return part_wire_.back(); }
    bool is_quantized() const { return shape.quantization.algorithm != QuantizationAlgorithm::none; }
    // Final bytes that land in scratch and not in the application's memory.
    std::uint64_t scratch_bytes() const { return scratch_bytes_; }
    bool has_scratch() const { return scratch_bytes_ != 0; }
    // Scratch has the layout of the receive array, and all of it is copied.
    bool copies_all() const { return copies_all_; }
    // So much is to be copied now that the outcome is known: bytes if copies_all(), else slices are looked through.
    std::uint64_t copies_due() const;

    // Copies between the application's array and scratch go past the caches.
    bool is_larger_than_caches() const { return scratch_bytes_ >= numeric::copy_past_caches_bytes; }

    // ---- input that final bytes overwrite
    // Final bytes of this slice may land on its input, if that is kept.
    bool may_overwrite(std::uint32_t slice) const {
        return whole == nullptr && places_[part_of(slice)].where == Where::input;
    }
    // Where the slice's input is kept, or its final bytes land instead.
    BufferRef scratch_ref(std::uint32_t slice) const;
    // The slice's input can be kept in scratch from now on: nothing else has used the range.
    bool may_keep(std::uint32_t slice) const {
        return prepared && may_overwrite(slice) && half(0, slice).kept == Kept::no &&
               half(1, slice).in == InState::none && !half(1, slice).overwrites;
    }
    // Its range of scratch is being written, so final bytes have no place yet.
    bool is_keeping(std::uint32_t slice) const {
        return whole != nullptr ? whole->is_keeping(in_whole(slice)) : half(0, slice).kept == Kept::computing;
    }
    // Chooses the place of final bytes that land now.
    void choose_place(std::uint32_t slice);
    void overwrite(std::uint32_t slice);
    BufferRef input_place(std::uint32_t slice) const { return BufferRef{send, byte_offset(slice), byte_length(slice)}; }
    // Input as it was, whether it is overwritten or not.
    BufferRef own_input(std::uint32_t slice) const;
    // Memory that the operation needs beside the application's buffers.
    std::uint64_t memory_bytes() const {
        return std::uint64_t{slot_count} * slot_bytes + scratch_bytes() + (is_quantized() ? input_bytes() : 0);
    }
    // So much of it was requested and is not free again.
    std::uint64_t memory_held() const {
        return (slots != 0 ? std::uint64_t{slot_count} * slot_bytes : 0) +
               (result != 0 && result != receive ? scratch_bytes() : 0) + (inputs != 0 ? input_bytes() : 0);
    }
    // All slices that have to come here have come and are reduced.
    bool complete() const { return finals == finals_due_ && partials == partials_due_; }
    std::uint32_t finals_due() const { return finals_due_; }
    // This member may vote for the end. Over direct edges its neighbours must also have acknowledged everything: then
    // a member that alone owes its vote has all that it needs.
    bool finished() const { return complete() && (!direct || (!wants_to_send() && !unanswered())); }
    LaneId key() const { return {id.id, id.lane}; }

    Half& half(int phase, std::uint32_t slice) { return halves_[phase][slice]; }
    const Half& half(int phase, std::uint32_t slice) const { return halves_[phase][slice]; }

    // ---- what may leave next
    void enqueue(int phase, std::uint32_t slice);
    void declined(int phase, std::uint32_t slice);
    void acknowledged(int phase, std::uint32_t slice);
    struct Next {
        int phase = 0;
        std::uint32_t slice = none;
        bool eager = false;
    };
    // The next slice to send, or slice == none. `eager_left`: further own slices that may leave before the neighbour is
    // ready. `slots_most`: so many slots of the neighbour may hold own input.
    Next peek(std::uint32_t eager_left, std::uint32_t slots_most);
    // 0: no lost slice is queued for a resend. Else how often the one that leaves next was lost. It must not wait for its
    // operation's turn, because its clock runs.
    std::uint32_t resends();
    void pop(const Next& next);
    // `used` may exceed `credit`: more slices may have left before the neighbour was ready than it has slots.
    std::uint32_t free_credit() const { return credit > used ? credit - used : 0; }

    // ---- what gets through
    void leaves(int phase, std::uint32_t slice, LinkId link);
    // The successor reports so many bytes of the current copy. True: more of the slice has arrived than before.
    bool moves(int phase, std::uint32_t slice, std::uint32_t bytes);
    // The slice was sent without success: queues it for a resend. Connections that break together count as one loss, so
    // a loss counts only if `together` has passed since the last one that counted. Returns whether it counted.
    bool lost_again(int phase, std::uint32_t slice, Instant now, Duration together);
    // Calls `then` with phase and slice for each slice that is in flight on this stripe; it may queue the slice again.
    template <typename Then>
    void each_in_flight_on(LinkId stripe, const Then& then) const {
        for (const int phase : {0, 1}) {
            for (std::uint32_t slice = 0; slice < slices(); ++slice) {
                const Half& entry = half(phase, slice);
                if (entry.out_link == stripe && (entry.out == OutState::sending || entry.out == OutState::sent))
                    then(phase, slice);
            }
        }
    }
    bool unanswered() const { return in_flight != 0 || !lost.empty(); }
    bool wants_to_send() const;
    // True: this member has not voted for the end, and has nothing to compute, nothing queued and nothing in flight. Own
    // input that has not left yet does not count. So it waits for bytes of the predecessor.
    bool waits_for_input() const;

    // ---- slots
    std::uint32_t take_slot(std::uint32_t slice);  // none: no slot is free for it
    void give_slot(std::uint32_t slice);           // grants one more credit
    void return_slot(std::uint32_t slice);         // the landing failed: no new credit
    BufferRef slot_ref(std::uint32_t slice) const;
    bool has_slot(std::uint32_t slice) const { return slot_of_[slice] != none; }
    void make_slots(std::uint32_t count, std::uint32_t partial_sums);  // partial_sums: how many land here in all

    // ---- the edge within a host, in a hierarchical all-reduce
    // This lane carries the final bytes of one part of `along_the_ring`. They have their place there.
    void carry(Operation& along_the_ring, std::uint32_t part);
    // The slice of `whole` that is this one, and the other way round; none: the lane does not carry it.
    std::uint32_t in_whole(std::uint32_t slice) const { return carried_first_ + slice; }
    std::uint32_t in_lane(std::uint32_t slice_of_whole) const {
        const bool here = slice_of_whole >= carried_first_ && slice_of_whole - carried_first_ < slices();
        return here ? slice_of_whole - carried_first_ : none;
    }
    // Everything that comes along the ring has landed. The rest comes over the edge within the host.
    bool waits_for_branch() const { return branches_in_ && !complete() && landings_ == landings_due_; }
    void landed_one() { ++landings_; }
    const Part& part(std::uint32_t index) const { return graph_.parts[index]; }

    // ---- own input that must be prepared: of a quantized operation, and final bytes without phase 0
    // These own final bytes are in their place, and leave.
    bool sums_while_leaving(std::uint32_t slice) const;
    void leave_unsummed(std::uint32_t slice);
    void summed(std::uint32_t slice, std::uint64_t checksum);  // of final bytes, once
    std::uint64_t input_bytes() const;               // all of it, on the wire (quantized only)
    BufferRef input_ref(std::uint32_t slice) const;  // where the quantized form of a slice is
    // The next slice to prepare, or none. At most Limits::inputs_ready are quantized ahead of those that have left, and
    // so many of the others are in work or unsummed.
    std::uint32_t take_input();

    // ---- results that are read ahead of the outcome: of quantized final bytes, out of place
    bool reads_ahead() const { return is_quantized() && !in_place && whole == nullptr; }
    // Final bytes came. Their numbers may be read, in the order in which they came.
    void may_read(std::uint32_t slice) { unread_.push_back(slice); }
    std::uint32_t take_unread() { return unread_next_ < unread_.size() ? unread_[unread_next_++] : none; }
    // It computes something that the operation needs before the outcome.
    bool is_busy() const { return computes != reading; }

    void add_digest(std::uint32_t slice, std::uint64_t checksum);

    // The start of an operation that was ahead has come. What is in flight stays so; its clocks begin now.
    void started(const Identity& identity, Instant now);

    // Asserts the invariants of the counters that carry the proof against deadlocks. O(slices).
    void check() const;

    Identity id;
    ReduceShape shape;
    BufferId send = 0;
    BufferId receive = 0;
    BufferId result = 0;  // where final bytes land: `receive`, or scratch
    BufferId slots = 0;
    BufferId inputs = 0;  // quantized operation: own input in its form on the wire
    std::uint32_t slot_count = 0;
    std::uint32_t slot_bytes = 0;
    std::uint32_t buffers_pending = 0;
    bool in_place = false;
    bool drafted = false;     // a send of others, which this peer has not launched: it only forwards the bytes
    bool direct = false;      // a lane over direct edges (Reductions): all its slices go from one member to another one
    Operation* whole = nullptr;  // of the lane in a host: the operation along the ring whose final bytes it carries
    bool ahead = false;       // its start is not known: own input leaves, and nothing else happens
    bool left_ahead = false;  // it was ahead when its first slices left
    bool held = false;        // a slice was declined: no other one leaves before the neighbour is ready
    bool prepared = false;    // the buffers exist and `ready` was sent
    bool neighbour_ready = false;
    std::uint32_t neighbour_slots = 0;
    std::uint32_t credit = 0;   // cumulative, from the successor
    std::uint32_t used = 0;     // cumulative, of that credit
    std::uint32_t granted = 0;  // cumulative, to the predecessor
    std::uint32_t eager_outstanding = 0;
    std::uint32_t finals = 0;
    std::uint32_t partials = 0;  // partial sums that were reduced here to travel on
    std::uint64_t digest = 0;
    std::uint32_t computes = 0;  // outstanding
    std::uint32_t reading = 0;   // of these, results that are read ahead of the outcome
    std::uint32_t unsummed = 0;  // slices
    Serial end_serial = 0;       // of the end vote; 0: not voted
    bool given_up = false;       // voted that its edge is stuck
    bool decided = false;
    bool committed = false;
    // Only bytes that get through for the first time are progress. Retries do not renew these clocks.
    Instant landed_at = 0;    // when new bytes last came from the predecessor; at first `prepared_at`
    Instant answered_at = 0;  // when the successor last acknowledged a slice for the first time
    // Slices of all operations that had come from the predecessor when a slice of this one last landed; at first, at
    // `prepared_at`.
    std::uint64_t landed_before = 0;
    // Slices of all operations that the successor had acknowledged at `answered_at`; at first, at `prepared_at`.
    std::uint64_t answered_before = 0;
    // The most bytes of slices that had arrived, those still landing included. It shrinks only when a landing breaks, a
    // few times for each slice (Half::broken).
    std::uint64_t landed_most = 0;
    Instant prepared_at = 0;
    Instant repeated_at = 0;    // when `ready` was last sent on all links of the predecessor
    std::uint32_t repeats = 0;  // how often since new bytes landed
    // When that neighbour last reported that it had not received the start. A late start message of the master is not
    // the neighbour's fault.
    Instant successor_unaware_at = 0;
    Instant predecessor_unaware_at = 0;
    Instant sated_at = 0;         // when a tick last found nothing to send
    Instant credit_at = 0;        // when the successor last sent its credit
    Instant ready_at = 0;         // when the successor first was ready
    Instant waits_since = 0;      // valid if unanswered(): since when that is true
    // How long the last such wait was, if a decline ended it; 0 after an acknowledgement. The next wait goes on from
    // there, because a decline is no progress.
    Duration waited = 0;
    std::uint32_t in_flight = 0;  // slices in OutState sending or sent
    struct Lost {
        // Its clock starts at the first loss. It restarts when more of the slice arrives than before, and when one of
        // the first copies leaves (copies_patiently in slice_sender.cpp).
        Instant since = 0;
        std::uint32_t times = 0;      // losses that counted
        Instant counted_at = 0;       // the last of them
        std::uint32_t fruitless = 0;  // those since more of the slice arrived than before
        Instant queued_at = 0;        // when it was queued again
        Instant left_at = 0;          // when the last copy left
        std::uint32_t most = 0;       // most bytes of a copy that the receiver reported
        Duration took = 0;            // time from the departure of that copy to that report
        LinkId stalled_on = 0;        // the last loss was counted because this stripe seemed to stall; 0: other reason
    };
    std::map<std::pair<int, std::uint32_t>, Lost> lost;  // (phase, slice): lost and not answered since
    // Of copies_due(), as far as it was requested.
    std::uint64_t copied = 0;
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
    Completion outcome;                     // set at the decision, delivered when nothing is outstanding
    std::vector<Completion::Part> members;  // by index; empty for an all-reduce; of a send its two ends
    std::uint32_t index = 0;

private:
    struct Queue {
        std::uint32_t head = none;
        std::uint32_t tail = none;
    };
    // Where the final bytes of a part are at this position. none: it does not have them; input: on it, or in scratch.
    enum class Where : std::uint8_t { none, send, receive, scratch, input };
    struct FinalPlace {
        Where where = Where::none;
        std::uint64_t scratch_offset = 0;
    };
    std::uint64_t offset_in_part(std::uint32_t slice) const;  // elements
    std::uint64_t elements(std::uint32_t slice) const;
    std::uint32_t start_of(const Part& part) const;
    std::uint32_t hops_after(const Part& part) const;  // from its source to this position
    bool is_own_final(const Part& part) const { return part.reduce_hops == 0 && part.source == id.position; }
    bool has_final(const Part& part) const { return hops_after(part) <= part.copy_hops + part.branch_hops; }
    // The final bytes come here over the direct edge of the branch, and not from the predecessor.
    bool begins_branch(const Part& part) const {
        return part.branch_hops != 0 && hops_after(part) == part.copy_hops + 1;
    }
    void place_finals();
    void count_due();
    std::uint32_t wire_of(std::uint64_t elements) const;
    bool may_inject() const;
    Queue& queue_of(int phase, std::uint32_t slice);
    // The next copy begins from its first byte, so the same bytes count again, a few times for each slice.
    static void begin_anew(Half& entry, bool counts);
    void left_flight(const Half& entry);
    void left_queue(const Half& entry);
    std::uint32_t lost_times(int phase, std::uint32_t slice) const;  // 0 also for none
    // Whether `slice`, which is queued, has to leave before `other`, which is to be sent again.
    bool is_more_urgent(int phase, std::uint32_t slice, std::uint32_t other);
    // Drops slices from the head of the queue that were acknowledged while their resend was queued.
    void drop_answered(int phase, Queue& queue);

    Graph graph_;
    bool reduces_ = false;  // it has phase 0
    bool copies_all_ = false;
    std::uint32_t overwritten_ = 0;  // slices
    std::uint64_t elements_ = 0;  // of all parts
    std::vector<FinalPlace> places_;
    std::uint64_t scratch_bytes_ = 0;
    std::uint32_t partial_landings_ = 0;
    std::uint32_t partials_due_ = 0;
    std::uint32_t finals_due_ = 0;
    std::uint32_t landings_ = 0;  // slices that have come from the predecessor, in both phases
    std::uint32_t landings_due_ = 0;
    bool branches_in_ = false;         // a part has its branch begin here
    std::uint32_t carried_first_ = 0;  // see carry()
    std::uint32_t slice_elements_ = 1;
    std::uint32_t slice_wire_ = 0;           // bytes of a full slice on the wire
    std::vector<std::uint32_t> part_first_;  // first slice of each part, and one past the last
    std::vector<std::uint64_t> part_wire_;   // offset of each part on the wire, and the end
    std::vector<std::uint32_t> parts_;       // the part of each slice
    std::vector<Half> halves_[2];
    std::vector<std::uint32_t> unread_;  // has room for all slices if reads_ahead()
    std::size_t unread_next_ = 0;
    std::vector<std::uint32_t> slot_of_;
    std::vector<std::uint32_t> free_slots_;
    bool slots_scarce_ = false;  // fewer than partial sums
    Queue queues_[2];
    Queue declined_;            // own input that was declined and needs credit again
    std::uint32_t queued_ = 0;  // slices in OutState queued
    std::uint32_t inject_next_ = 0;
    std::uint32_t inject_end_ = 0;
    std::uint32_t quantize_next_ = 0;
    std::uint32_t own_part_ = none;     // the part that starts here
    std::uint32_t own_final_next_ = 0;  // the next slice of own final bytes to prepare is not before it
    std::uint32_t inputs_ready_;
};

}  // namespace pccl::core
