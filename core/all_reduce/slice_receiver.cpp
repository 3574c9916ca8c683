#include "core/all_reduce/slice_receiver.hpp"

#include "core/all_reduce/ahead.hpp"
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"

#include <algorithm>
#include <map>

namespace pccl::core {

namespace {
// So many broken landings of a slice give back the bytes that they counted. Later, parts of the slice do not count.
constexpr std::uint8_t landings_given_back = 3;
}  // namespace

// ---- words to the predecessor ---------------------------------------------------------------------------------------

wire::FlowWord SliceReceiver::ready_word(const Operation& op) {
    wire::FlowWord word;
    word.kind = wire::FlowKind::ready;
    word.op = op.id.id;
    word.slice = op.slot_count;
    word.value = op.granted;
    return word;
}

void SliceReceiver::tell_ready(const Operation& op) { predecessors_.send(0, op.id.predecessor, ready_word(op)); }

void SliceReceiver::acknowledge(LinkId link, const Operation& op, int phase, std::uint32_t slice) {
    wire::FlowWord word;
    word.kind = wire::FlowKind::ack;
    word.op = op.id.id;
    word.slice = slice;
    word.phase = static_cast<std::uint8_t>(phase);
    predecessors_.send(link, op.id.predecessor, word);
}

void SliceReceiver::decline(LinkId link, const wire::BulkHeader& header) {
    wire::FlowWord word;
    word.kind = wire::FlowKind::decline;
    word.op = on_the_wire(header.op);
    word.slice = header.slice;
    word.phase = static_cast<std::uint8_t>(header.phase);
    predecessors_.send(link, links_.at(link).remote, word);
}

void SliceReceiver::tell_moving(LinkId id, Link& link, const Transfer& receiving) {
    link.told_moving = turn_.now;
    wire::FlowWord word;
    word.kind = wire::FlowKind::moving;
    word.op = on_the_wire(receiving.op);
    word.slice = receiving.slice;
    word.phase = static_cast<std::uint8_t>(receiving.phase);
    word.value = link.arrived;
    turn_.add(SendFlow{id, word});
}

// `ready` is sent on one link, and that link may lose it. If no new bytes come, it is sent again on all links of the
// predecessor. The word is cumulative, so copies do no harm. The wait doubles with each repeat, and a tick repeats
// `ready` for only one operation of each predecessor. Otherwise many operations that wait behind a slow uplink would
// fill it with copies, and nothing else would get through.
void SliceReceiver::repeat_ready() {
    constexpr std::uint32_t doublings_max = 6;
    std::map<Uuid, Operation*> longest;
    const auto quiet_since = [](const Operation& op) {
        const Instant moved = op.whole == nullptr ? 0 : op.whole->landed_at;
        return std::max({op.landed_at, op.repeated_at, moved});
    };
    for (const auto& [id, op] : reductions_.all()) {
        if (!op->prepared || op->decided || op->complete() || op->waits_for_branch()) continue;
        if (op->landed_at > op->repeated_at) op->repeats = 0;
        const Duration patience = turn_.timeouts.repeat() << std::min(op->repeats, doublings_max);
        if (turn_.now - quiet_since(*op) < patience) continue;
        if (predecessors_.links_to_choose(op->id.predecessor) == nullptr) continue;
        Operation*& chosen = longest[op->id.predecessor];
        if (chosen == nullptr || quiet_since(*op) < quiet_since(*chosen)) chosen = op.get();
    }
    for (const auto& [predecessor, op] : longest) {
        PROBE(ready_told_on_all_links);
        op->repeated_at = turn_.now;
        ++op->repeats;
        for (const LinkId link : *predecessors_.links_to_choose(predecessor))
            predecessors_.send(link, predecessor, ready_word(*op));
    }
}

void SliceReceiver::neighbour_connected(const Uuid& neighbour) {
    for (const auto& [id, op] : reductions_.all()) {
        if (op->prepared && !op->decided && op->id.predecessor == neighbour) tell_ready(*op);
    }
}

void SliceReceiver::neighbour_lost_a_link(const Uuid& neighbour) {
    for (const auto& [id, op] : reductions_.all()) {
        if (!op->prepared || op->decided || op->id.predecessor != neighbour) continue;
        PROBE(ready_told_again);
        tell_ready(*op);
    }
}

// ---- landing --------------------------------------------------------------------------------------------------------

void SliceReceiver::on_bulk(LinkId id, Link& link, wire::BulkHeader header) {
    if (is_ahead(header.op)) {
        const Operation* begun = reductions_.of_neighbour(link.remote, serial_of(header.op));
        const bool fits = begun != nullptr && predecessors_.cut_for(begun->id) == header.entry;
        if (fits) PROBE(ahead_behind_its_start);
        header.op = fits ? begun->id.id : header.op | theirs_mark;
    }
    arrives(id, link, header);
}

void SliceReceiver::arrives(LinkId id, Link& link, const wire::BulkHeader& header) {
    Operation* found = reductions_.find_from(header.op, link.remote);
    if (found == nullptr) {
        if (!reductions_.is_settled(header.op) && header.phase == 0) {
            receive_early(id, link, header);
        } else {
            // Final bytes that came before the start are sent again; the neighbour hears when there is a place for them.
            if (!reductions_.is_settled(header.op))
                decline(id, header);
            else
                PROBE(frame_of_dead_operation);
            ++dead_frames_;
            discard(id, link, header);
        }
        return;
    }
    Operation& op = *found;
    if (op.decided) {
        ++dead_frames_;
        discard(id, link, header);
        return;
    }
    if (header.slice >= op.slices() || header.length != op.wire_length(header.slice) ||
        !op.takes(header.phase == 0 ? 0 : 1, header.slice)) {
        links_.refuse(id, "sent a slice that does not fit the operation");
        return;
    }
    if (!op.prepared) {
        if (header.phase == 0) {
            PROBE(partial_before_prepared);
            receive_early(id, link, header);
        } else {
            decline(id, header);
            discard(id, link, header);
        }
        return;
    }
    Half& half = op.half(header.phase, header.slice);
    if (half.in == InState::landed) {
        PROBE(second_copy_discarded);
        acknowledge(id, op, header.phase, header.slice);
        discard(id, link, header);
        return;
    }
    if (header.phase == 1 && op.is_keeping(header.slice)) {
        PROBE(final_declined_while_input_is_kept);
        decline(id, header);
        discard(id, link, header);
        return;
    }
    if (half.in == InState::landing) {
        // A slice has one landing at a time. The earlier copy is on a stripe that stalls: redirect it first.
        PROBE(landing_taken_over);
        Link& other = links_.at(half.in_link);
        other.receiving.dropped = true;
        landing_broke(op, half, other.arrived);
        turn_.add(RedirectReceive{half.in_link});
    } else if (header.phase == 0 && op.take_slot(header.slice) == Operation::none) {
        PROBE(slice_declined);
        decline(id, header);
        discard(id, link, header);
        return;
    }
    half.in = InState::landing;
    half.in_link = id;
    if (header.phase == 1) op.choose_place(header.slice);
    link.receiving = Transfer{header.op, header.phase, header.slice, 0, Operation::none, false};
    const BufferRef place = header.phase == 0 ? op.slot_ref(header.slice) : op.final_ref(header.slice);
    turn_.add(ReceivePayload{id, place});
}

// The operation cannot take its slices here yet. The slice goes to the neighbour's reserve, or is declined and
// discarded. It is never left unread, because everything behind it on the link would wait.
void SliceReceiver::receive_early(LinkId id, Link& link, const wire::BulkHeader& header) {
    const Predecessors::Early* early = predecessors_.keep(id, link, header);
    if (early == nullptr) {
        PROBE(early_declined);
        decline(id, header);
        discard(id, link, header);
        return;
    }
    PROBE(early_kept);
    link.receiving = Transfer{header.op, header.phase, header.slice, header.entry, early->cell, false};
    turn_.add(ReceivePayload{id, predecessors_.place_of(link.remote, *early)});
}

void SliceReceiver::discard(LinkId id, Link& link, const wire::BulkHeader& header) {
    link.receiving =
        Transfer{header.op == 0 ? ~0ull : header.op, header.phase, header.slice, header.entry, Operation::none, true};
    turn_.add(DiscardPayload{id});
}

void SliceReceiver::discard_dead(LinkId id, Link& link, const wire::BulkHeader& header) {
    ++dead_frames_;
    discard(id, link, header);
}

void SliceReceiver::landed(const PayloadLanded& event, Link& link, const Transfer& receiving, bool landed) {
    if (receiving.cell != Operation::none) {
        early_landed(link, receiving, landed);
    } else if (receiving.dropped && link.purpose == Purpose::incoming && link.is_open() &&
               reductions_.is_settled(receiving.op)) {
        // The neighbour may hold this stripe stalled, and no slice will show that it works.
        tell_moving(event.link, link, receiving);
    } else if (!receiving.dropped) {
        Operation* found = reductions_.find_from(receiving.op, link.remote);
        if (found != nullptr && !found->decided) {
            Operation& op = *found;
            Half& half = op.half(receiving.phase, receiving.slice);
            ASSERT(half.in == InState::landing && half.in_link == event.link);
            half.in_link = 0;
            if (landed) {
                half.in = InState::landed;
                slice_landed(op, op.wire_length(receiving.slice));
                acknowledge(event.link, op, receiving.phase, receiving.slice);
                if (receiving.phase == 0) {
                    reductions_.partial_landed(op, receiving.slice, op.slot_ref(receiving.slice), Operation::none,
                                               link.remote);
                } else {
                    reductions_.final_there(op, receiving.slice, event.checksum);
                }
            } else {
                PROBE(landing_failed);
                half.in = InState::none;
                landing_broke(op, half, link.arrived);
                if (receiving.phase == 0) op.return_slot(receiving.slice);
            }
        }
    }
}

// A landing in the reserve has ended. `landed`: with success.
void SliceReceiver::early_landed(const Link& link, const Transfer& receiving, bool landed) {
    Operation* op = reductions_.find(receiving.op);
    const bool dead = op == nullptr ? reductions_.is_settled(receiving.op) : op->decided;
    const bool takes = op != nullptr && op->prepared;
    if (landed && !dead) {
        predecessors_.landed(link.remote, receiving.cell);
        if (is_ahead(receiving.op)) predecessors_.filler_came(link.remote, false);
        if (takes) PROBE(early_landed_after_start);
        if (takes) absorb_early(*op);
        return;
    }
    if (landed) PROBE(early_landed_too_late);
    if (!dead && takes && receiving.slice < op->slices())
        landing_broke(*op, op->half(0, receiving.slice), link.arrived);
    predecessors_.never_landed(link.remote, receiving.cell);
}

void SliceReceiver::absorb_early(Operation& op) {
    for (const Predecessors::Early& early : predecessors_.take(op.id.predecessor, op.id.id)) {
        const bool fits = early.slice < op.slices() && op.takes(0, early.slice) &&
                          early.length == op.wire_length(early.slice) && op.half(0, early.slice).in == InState::none;
        const bool finishes = fits && op.finishes(early.slice);
        if (!fits && early.slice < op.slices()) PROBE(early_copy_late);
        if (!fits || (!finishes && op.take_slot(early.slice) == Operation::none)) {
            if (fits) {
                wire::FlowWord word;
                word.kind = wire::FlowKind::decline;
                word.op = op.id.id;
                word.slice = early.slice;
                predecessors_.send(early.link, op.id.predecessor, word);
            }
            if (early.slice < op.slices()) landing_broke(op, op.half(0, early.slice), early.length);
            predecessors_.free_cell(op.id.predecessor, early.cell);
            continue;
        }
        if (finishes) PROBE(early_to_the_end);
        op.half(0, early.slice).in = InState::landed;
        slice_landed(op, early.length);
        acknowledge(early.link, op, 0, early.slice);
        const BufferRef place = predecessors_.place_of(op.id.predecessor, early);
        reductions_.partial_landed(op, early.slice, place, early.cell, op.id.predecessor);
    }
}

// Frees slices that neighbours sent early for operations that are over, or will never start here.
void SliceReceiver::forget_dead_early() {
    predecessors_.forget_early([&](OpId id) { return reductions_.is_settled(id) && reductions_.find(id) == nullptr; });
}

void SliceReceiver::slice_landed(Operation& op, std::uint32_t bytes) {
    op.landed_one();
    op.received_bytes += bytes;
    op.landed_most = std::max(op.landed_most, op.received_bytes);
    predecessors_.came(op.id.predecessor, op.landed_at);
    op.landed_at = turn_.now;
    op.landed_before = predecessors_.slice_came(op.id.predecessor);
    if (op.direct) session_.computed();
}

// The bytes of the slice that had arrived are lost, so the same bytes count when they come again.
void SliceReceiver::landing_broke(Operation& op, Half& half, std::uint32_t arrived) {
    if (half.broken >= landings_given_back) return;
    ++half.broken;
    op.landed_most = std::max(op.received_bytes, op.landed_most - std::min<std::uint64_t>(op.landed_most, arrived));
}

// ---- slices that take long ------------------------------------------------------------------------------------------

// A part of a frame has arrived. The sender gets a `moving` word from time to time, because a slice on a slow link can
// take longer than the patience with a stripe. If the slice was lost before, the sender decides whether that is
// progress (Operation::Lost::most). The receiver cannot: filler of an abandoned frame counted here like bytes of the
// slice.
void SliceReceiver::payload_moved(LinkId id, Link& link, std::uint32_t arrived) {
    if (link.receiving.op != 0 && link.receiving.dropped) return discarded_moved(id, link, arrived);
    if (link.purpose != Purpose::incoming || link.receiving.op == 0 || link.receiving.phase > 1 ||
        arrived <= link.arrived)
        return;
    const bool begins = link.arrived == 0;
    link.arrived = arrived;
    Operation* found = reductions_.find_from(link.receiving.op, link.remote);
    // A landing in the reserve is not redirected when its operation ends. The rest of it is filler. What comes ahead of
    // its start fills the path, too.
    if (link.receiving.cell != Operation::none &&
        (found != nullptr ? found->decided : is_ahead(link.receiving.op) || reductions_.is_settled(link.receiving.op)))
        predecessors_.filler_came(link.remote, begins);
    // This includes a slice that lands in the reserve because it began before this peer had the operation's memory.
    if (found != nullptr && found->prepared && link.receiving.slice < found->slices()) {
        Operation& op = *found;
        std::uint64_t landed = op.received_bytes;
        for (const auto& [other_id, other] : links_) {
            const Transfer& transfer = other.receiving;
            if (transfer.op == op.id.id && transfer.phase <= 1 && !transfer.dropped && other.remote == link.remote)
                landed += other.arrived;
        }
        if (landed > op.landed_most) {
            op.landed_most = landed;
            predecessors_.came(op.id.predecessor, op.landed_at);
            op.landed_at = turn_.now;
            if (op.direct) session_.computed();
        }
    }
    if (turn_.now - link.told_moving < turn_.timeouts.together()) return;
    PROBE(slice_takes_long);
    tell_moving(id, link, link.receiving);
}

// The rest of a slice that is discarded. Nothing else comes over this connection before it ends: neither other slices
// nor the neighbour's report that it is starved. So the neighbour is not blamed meanwhile. This ends, because only a
// few such frames count (Progress::prolonged).
void SliceReceiver::discarded_moved(LinkId id, Link& link, std::uint32_t arrived) {
    if (link.purpose != Purpose::incoming || link.receiving.phase > 1 || arrived <= link.arrived) return;
    predecessors_.filler_came(link.remote, link.arrived == 0);
    link.arrived = arrived;
    if (turn_.now - link.told_moving >= turn_.timeouts.together()) tell_moving(id, link, link.receiving);
}

// ---- operations -----------------------------------------------------------------------------------------------------

void SliceReceiver::prepared(Operation& op) {
    op.landed_before = predecessors_.arrivals(op.id.predecessor).slices;
    tell_ready(op);
    absorb_early(op);
}

void SliceReceiver::over(const Operation& op) {
    for (const Predecessors::Early& early : predecessors_.take(op.id.predecessor, op.id.id))
        predecessors_.free_cell(op.id.predecessor, early.cell);
}

}  // namespace pccl::core
