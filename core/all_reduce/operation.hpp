// One all-reduce as a graph over slices, seen from one position of the ring.
//
// The vector is cut into `world` parts (part p: elements p·count/world up to (p+1)·count/world) and each part into slices.
// A slice of part p starts at position p+1 as that member's input, is reduced by each next member (phase 0) until the
// last reducer, position p, has produced its final bytes, and then travels on as a copy (phase 1) to everybody else. A
// slice goes on as soon as it is there (cut-through); nothing waits for a step of the whole ring.
//
// A slice has a place in the application's arrays (byte_offset, byte_length) and a form on the wire (wire_offset,
// wire_length). They are the same, unless the operation is quantized: then slots, reserve and final bytes hold the wire's
// form, own input is quantized into `inputs` shortly before it leaves, and everybody reads the same final bytes back into
// numbers at the commit.
//
// This class holds geometry and bookkeeping; Reductions and Exchange drive it. Nothing is allocated after the start.
// Invariants: a slice lands at most once per phase; partial sums live in slots, never in the place of final bytes; the
// application's input is not written before the outcome (final bytes of an in-place operation land in scratch).
//
// Slots: a partial sum needs a slot at its receiver, granted by a cumulative credit. Own input enters the ring only while
// half of the successor's slots are free, partial sums that go on may use all of them: the ring of slots can never fill up.
// What leaves before the successor is ready is counted as well. A slice that is declined has no slot there: it gives its
// credit back and is own input again, or it would take, of all members' slices, those that have to go on their way.
#pragma once

#include "core/base/limits.hpp"
#include "core/events.hpp"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace pccl::core {

enum class InState : std::uint8_t { none, landing, landed };
enum class OutState : std::uint8_t { idle, queued, sending, sent, acknowledged };

// One phase of one slice at this position.
struct Half {
    InState in = InState::none;
    OutState out = OutState::idle;
    bool counted = false;     // phase 0: has used its credit
    std::uint8_t broken = 0;  // landings of it that gave back what they had counted
    std::uint32_t next = 0;   // link of the queue it is in
    std::uint64_t checksum = 0;
    LinkId in_link = 0;
    LinkId out_link = 0;
};

class Operation {
public:
    static constexpr std::uint32_t none = ~0u;

    struct Identity {
        OpId id = 0;
        Tag tag = 0;
        Serial serial = 0;
        std::uint32_t world = 0;
        std::uint32_t position = 0;
        Uuid predecessor;
        Uuid successor;
    };

    Operation(const Identity& identity, const ReduceShape& shape, BufferId send, BufferId receive,
              const Limits& limits);

    // ---- geometry
    std::uint32_t slices() const { return part_first_.back(); }
    std::uint32_t part_of(std::uint32_t slice) const;
    std::uint64_t byte_offset(std::uint32_t slice) const;
    std::uint32_t byte_length(std::uint32_t slice) const;
    std::uint64_t wire_offset(std::uint32_t slice) const;
    std::uint32_t wire_length(std::uint32_t slice) const;
    // Hops from the slice's start to this position: 0 starts it, world-1 finishes it.
    std::uint32_t distance(std::uint32_t slice) const;
    bool starts(std::uint32_t slice) const { return distance(slice) == 0; }
    bool finishes(std::uint32_t slice) const { return distance(slice) == id.world - 1; }
    bool forwards_final(std::uint32_t slice) const;  // the successor needs the final bytes from here
    bool ends_at_successor(std::uint32_t slice) const { return distance(slice) + 2 == id.world; }
    std::uint64_t bytes() const { return shape.count * element_bytes(shape.type); }
    std::uint64_t wire_bytes() const { return part_wire_.back(); }
    bool is_quantized() const { return shape.quantization.algorithm != QuantizationAlgorithm::none; }
    // Final bytes land beside the application's memory.
    bool has_scratch() const { return in_place || is_quantized(); }
    // Held beside the application's buffers.
    std::uint64_t memory_bytes() const {
        return std::uint64_t{slot_count} * slot_bytes + (has_scratch() ? wire_bytes() : 0) +
               (is_quantized() ? input_bytes() : 0);
    }

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
    // The next slice to send, or slice == none. `eager_left`: slices that may leave before the neighbour is ready.
    Next peek(std::uint32_t eager_left);
    // A slice that was lost waits to be sent again: its clock runs.
    bool resends();
    void pop(const Next& next);
    // The neighbour's slots may be fewer than what left before it was ready.
    std::uint32_t free_credit() const { return credit > used ? credit - used : 0; }

    // ---- what gets through
    void leaves(int phase, std::uint32_t slice, LinkId link);
    // It was sent in vain and will be sent again. Connections that break together are one loss: another one counts when it
    // comes later than `together`. Whether it counted.
    bool lost_again(int phase, std::uint32_t slice, Instant now, Duration together);
    bool unanswered() const { return in_flight != 0 || !lost.empty(); }
    bool wants_to_send() const;
    // Nothing is left to do here until the predecessor's bytes come.
    bool waits_for_input() const;

    // ---- slots
    std::uint32_t take_slot(std::uint32_t slice);  // none: no slot free
    void give_slot(std::uint32_t slice);           // grants one more credit
    void return_slot(std::uint32_t slice);         // the landing failed: no new credit
    BufferRef slot_ref(std::uint32_t slice) const;
    bool has_slot(std::uint32_t slice) const { return slot_of_[slice] != none; }
    void make_slots(std::uint32_t count);

    // ---- own input of a quantized operation
    std::uint64_t input_bytes() const;               // all of it, on the wire
    BufferRef input_ref(std::uint32_t slice) const;  // where a slice of it is quantized
    // The next slice to quantize, or none: a few are kept ready beyond what has left.
    std::uint32_t take_input();

    void add_digest(std::uint32_t slice, std::uint64_t checksum);

    Identity id;
    ReduceShape shape;
    BufferId send = 0;
    BufferId receive = 0;
    BufferId result = 0;  // where final bytes land: `receive`, or scratch
    BufferId slots = 0;
    BufferId inputs = 0;  // own input as it leaves, when quantized
    std::uint32_t slot_count = 0;
    std::uint32_t slot_bytes = 0;
    std::uint32_t buffers_pending = 0;
    bool in_place = false;
    bool prepared = false;  // buffers are there, ready was told
    bool neighbour_ready = false;
    std::uint32_t neighbour_slots = 0;
    std::uint32_t credit = 0;   // cumulative, from the successor
    std::uint32_t used = 0;     // cumulative, of that credit
    std::uint32_t granted = 0;  // cumulative, to the predecessor
    std::uint32_t eager_outstanding = 0;
    std::uint32_t finals = 0;
    std::uint64_t digest = 0;
    std::uint32_t computes = 0;  // outstanding
    Serial end_serial = 0;       // of the end vote; 0: not voted
    bool given_up = false;       // voted that its edge is stuck
    bool decided = false;
    bool committed = false;
    // Progress is what gets through for the first time. Retries renew none of these clocks.
    Instant landed_at = 0;    // when something new last came from the predecessor; at first when slices could come
    Instant answered_at = 0;  // when something of it last got through to the successor
    std::uint64_t landed_before = 0;    // slices of all operations that had come from there then
    std::uint64_t answered_before = 0;  // and at `answered_at`, of those that had got through to the successor
    std::uint64_t landed_most = 0;      // bytes of slices, those that are still landing included; never gets less
    Instant prepared_at = 0;
    Instant repeated_at = 0;    // when `ready` was last told on all links of the predecessor
    std::uint32_t repeats = 0;  // how often since something new landed
    // When that neighbour last said that it has not been told the start: how late the master's word comes is not its fault.
    Instant successor_unaware_at = 0;
    Instant predecessor_unaware_at = 0;
    Instant sated_at = 0;         // when it was last seen with nothing to send
    Instant credit_at = 0;        // when the successor last said what it is ready for
    Instant waits_since = 0;      // valid if unanswered(): what was sent first since then has no answer
    std::uint32_t in_flight = 0;  // slices in OutState sending or sent
    struct Lost {
        Instant since = 0;  // the first loss, or when more of it than before last arrived
        std::uint32_t times = 0;
        Instant counted_at = 0;       // the last of them
        std::uint32_t fruitless = 0;  // of them, since more of it than before last arrived
        Instant queued_at = 0;        // when it was queued again
        Instant left_at = 0;          // when the last copy left
        std::uint32_t most = 0;       // bytes of a copy that arrived, as far as the receiver said
        Duration took = 0;            // how long that copy had been on the way
        LinkId stalled_on = 0;        // the last copy was given up because this stripe seemed to stall
    };
    std::map<std::pair<int, std::uint32_t>, Lost> lost;  // sent in vain and not acknowledged since
    std::uint64_t copied = 0;  // of the commit copy, what was issued: bytes, or slices when quantized
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
    Completion outcome;  // prepared when decided, told when nothing is outstanding

private:
    struct Queue {
        std::uint32_t head = none;
        std::uint32_t tail = none;
    };
    std::uint64_t part_begin(std::uint32_t part) const;
    std::uint64_t elements(std::uint32_t slice) const;
    std::uint32_t own_part() const { return (id.position + id.world - 1) % id.world; }
    std::uint32_t wire_of(std::uint64_t elements) const;
    bool may_inject() const;
    Queue& queue_of(int phase, std::uint32_t slice);
    void left_flight(const Half& entry);
    // A resend that waits in the queue while the first copy is acknowledged.
    void drop_answered(int phase, Queue& queue);

    std::uint32_t slice_elements_ = 1;
    std::uint32_t slice_wire_ = 0;           // bytes on the wire of a slice that is full
    std::vector<std::uint32_t> part_first_;  // first slice of each part, world + 1 entries
    std::vector<std::uint64_t> part_wire_;   // where each part begins on the wire, likewise
    std::vector<Half> halves_[2];
    std::vector<std::uint32_t> slot_of_;
    std::vector<std::uint32_t> free_slots_;
    Queue queues_[2];
    Queue declined_;  // own input that has left before and has no credit now
    std::uint32_t inject_next_ = 0;
    std::uint32_t inject_end_ = 0;
    std::uint32_t quantize_next_ = 0;
    std::uint32_t inputs_ready_;
};

}  // namespace pccl::core
