// Slices in motion: which one leaves on which stripe, where one lands, and who is told so.
#include "core/all_reduce/exchange.hpp"
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

namespace {
// So many copies of a slice that was lost begin its clock anew when they leave, or come as far as the one before.
constexpr std::uint32_t copies_patiently = 2;
}  // namespace

// ---- words to the predecessor ----------------------------------------------------------------------------------------

wire::FlowWord Exchange::ready_word(const Operation& op) {
    wire::FlowWord word;
    word.kind = wire::FlowKind::ready;
    word.op = op.id.id;
    word.slice = op.slot_count;
    word.value = op.granted;
    return word;
}

void Exchange::tell_ready(const Operation& op) { send_flow(0, op.id.predecessor, ready_word(op)); }

// The link on which something arrived last: one that is dead or stalled falls behind at once, long before it is closed.
LinkId Exchange::liveliest(const Reserve& reserve) const {
    return *std::max_element(reserve.links.begin(), reserve.links.end(), [this](LinkId a, LinkId b) {
        return links_.at(a).last_received < links_.at(b).last_received;
    });
}

// On `preferred` when it lives, else on the liveliest link that `remote` dialled; if none is open it is told when one comes.
void Exchange::send_flow(LinkId preferred, const Uuid& remote, const wire::FlowWord& word) {
    auto link = links_.find(preferred);
    if (link == links_.end()) {
        const auto reserve = reserves_.find(remote);
        if (reserve == reserves_.end() || reserve->second.links.empty()) return;
        link = links_.find(liveliest(reserve->second));
        ASSERT(link != links_.end());
    }
    turn_.add(SendFlow{link->first, word});
}

void Exchange::acknowledge(LinkId link, const Operation& op, int phase, std::uint32_t slice) {
    wire::FlowWord word;
    word.kind = wire::FlowKind::ack;
    word.op = op.id.id;
    word.slice = slice;
    word.phase = static_cast<std::uint8_t>(phase);
    send_flow(link, op.id.predecessor, word);
}

void Exchange::decline(LinkId link, const wire::BulkHeader& header) {
    wire::FlowWord word;
    word.kind = wire::FlowKind::decline;
    word.op = header.op;
    word.slice = header.slice;
    word.phase = static_cast<std::uint8_t>(header.phase);
    send_flow(link, links_.at(link).remote, word);
}

// ---- sending -------------------------------------------------------------------------------------------------------

void Exchange::pump_edge(const Uuid& target) {
    const auto it = edges_.find(target);
    if (it == edges_.end()) return;
    Edge& edge = it->second;
    const std::size_t count = edge.stripes.size();
    // A stripe whose slices had to go elsewhere gets none while another one works: they would be lost with it again.
    const bool any_works = std::any_of(edge.stripes.begin(), edge.stripes.end(), [this](const Stripe& stripe) {
        const auto link = links_.find(stripe.link);
        return link != links_.end() && link->second.stage == Stage::open && !link->second.stalled;
    });
    for (std::size_t i = 0; i < count; ++i) {
        const LinkId id = edge.stripes[(edge.next_stripe + i) % count].link;
        const auto link = links_.find(id);
        if (link == links_.end() || link->second.stage != Stage::open || link->second.sending.op != 0) continue;
        if (link->second.stalled && any_works) continue;
        if (!send_next(target, edge, id, link->second)) return;
        edge.next_stripe = (edge.next_stripe + i + 1) % count;
        i = static_cast<std::size_t>(-1);
    }
}

bool Exchange::send_next(const Uuid& target, Edge& edge, LinkId id, Link& link) {
    // Operations take turns, beginning behind the one that was served last. First those that have lost a slice.
    auto turn = ops_.upper_bound(edge.last_served);
    for (std::size_t i = 0; i < 2 * ops_.size(); ++i, ++turn) {
        if (turn == ops_.end()) turn = ops_.begin();
        Operation& op = *turn->second;
        if (op.decided || !op.prepared || op.id.successor != target) continue;
        if (i < ops_.size() && !op.resends()) continue;
        const std::uint32_t eager_left = cells() > edge.eager_used ? cells() - edge.eager_used : 0;
        const Operation::Next next = op.peek(eager_left);
        if (next.slice == Operation::none) continue;
        op.pop(next);
        if (next.eager) {
            PROBE(early_sent);
            ++op.eager_outstanding;
            ++edge.eager_used;
        }
        if (i >= ops_.size()) edge.last_served = op.id.id;
        const Half& half = op.half(next.phase, next.slice);
        if (!op.unanswered()) op.waits_since = turn_.now;
        op.leaves(next.phase, next.slice, id);
        if (const auto again = op.lost.find({next.phase, next.slice}); again != op.lost.end()) {
            again->second.left_at = turn_.now;
            // How long it waited for a free connection is not the fault of the path.
            Operation::Lost& lost = again->second;
            lost.since = lost.times <= copies_patiently
                             ? turn_.now
                             : std::min(turn_.now, lost.since + (turn_.now - lost.queued_at));
        }
        const bool input = next.phase == 0 && op.starts(next.slice);
        SendPayload send;
        send.link = id;
        send.header.op = op.id.id;
        send.header.slice = next.slice;
        send.header.phase = static_cast<std::uint16_t>(next.phase);
        send.header.length = op.wire_length(next.slice);
        if (next.phase == 1)
            send.source = BufferRef{op.result, op.wire_offset(next.slice), send.header.length};
        else if (!input)
            send.source = op.slot_ref(next.slice);
        else if (op.is_quantized())
            send.source = op.input_ref(next.slice);
        else
            send.source = BufferRef{op.send, op.byte_offset(next.slice), send.header.length};
        send.has_checksum = !input || op.is_quantized();
        send.checksum = half.checksum;
        if (link.sending.op == 0 && turn_.now - link.last_progress > turn_.timeouts.peer / 8)
            link.last_progress = turn_.now;
        link.sending = Transfer{op.id.id, send.header.phase, next.slice, 0, Operation::none, false};
        turn_.add(send);
        quantize_inputs(op);
        return true;
    }
    return false;
}

void Exchange::on_sent(const PayloadSent& event) {
    const auto it = links_.find(event.link);
    if (it == links_.end()) return;
    Link& link = it->second;
    const Transfer sending = link.sending;
    ASSERT(sending.op != 0);
    if (link.purpose == Purpose::test_out) return probe_.frame_sent(event.link);
    link.sending = Transfer{};
    link.last_progress = turn_.now;
    if (!sending.dropped) {
        if (sending.phase == 2) {
            sync_.chunk_sent(sending);
        } else if (const auto op = ops_.find(sending.op); op != ops_.end() && !op->second->decided) {
            Half& half = op->second->half(sending.phase, sending.slice);
            if (half.out == OutState::sending && half.out_link == event.link) half.out = OutState::sent;
            op->second->sent_bytes += op->second->wire_length(sending.slice);
        }
    }
    if (sync_.send_next_chunk(event.link, link)) return;
    if (link.purpose == Purpose::outgoing) pump_edge(link.remote);
}

void Exchange::on_flow(const FlowArrived& event) {
    const auto it = links_.find(event.link);
    if (it == links_.end()) return;
    Link& link = it->second;
    link.last_received = turn_.now;
    if (link.stage != Stage::open || link.purpose != Purpose::outgoing) {
        links_.refuse(event.link, "sent a flow word where none belongs");
        return;
    }
    const wire::FlowWord& word = event.word;
    const auto found = ops_.find(word.op);
    Edge& edge = edges_.at(link.remote);
    if (found == ops_.end() && word.op > settled_ops_ && word.kind == wire::FlowKind::ready) {
        // The start is on its way to us: kept, the latest of each operation, as the neighbour will not say it again. None
        // starts that was not launched here.
        if (edge.future_ready.size() >= turn_.limits.tags_max && !edge.future_ready.contains(word.op)) {
            links_.refuse(event.link, "is ready for too many operations that are not known here");
            return;
        }
        edge.future_ready[word.op] = word;
        return;
    }
    if (found == ops_.end() || found->second->decided || found->second->id.successor != link.remote) {
        PROBE(word_of_dead_operation);
        ++dead_frames_;
        // The rest of a frame that was given up fills the path: nothing else can get through before.
        if (word.kind == wire::FlowKind::moving) edge.answered_at = link.answered_at = turn_.now;
        return;
    }
    Operation& op = *found->second;
    if (word.kind == wire::FlowKind::ready || word.kind == wire::FlowKind::credit) {
        if (!op.neighbour_ready) {
            op.neighbour_ready = true;
            op.neighbour_slots = word.slice;
            edge.eager_used -= op.eager_outstanding;
            op.eager_outstanding = 0;
        }
        op.credit = std::max(op.credit, word.value);
        op.credit_at = turn_.now;
        pump_edge(link.remote);
        return;
    }
    if (word.slice >= op.slices() || word.phase > 1) {
        links_.refuse(event.link, "acknowledged a slice that does not exist");
        return;
    }
    Half& half = op.half(word.phase, word.slice);
    if (half.out == OutState::acknowledged) PROBE(ack_twice);
    if (link.stalled || half.out_link == event.link) stripe_moves(event.link, link, edge);
    // The rest of another copy of it.
    if (half.out == OutState::acknowledged && word.kind == wire::FlowKind::moving)
        edge.answered_at = link.answered_at = link.last_progress = turn_.now;
    if (half.out == OutState::idle || half.out == OutState::acknowledged) return;
    if (half.out == OutState::sending && word.kind != wire::FlowKind::moving &&
        (word.kind == wire::FlowKind::ack || half.out_link == event.link)) {
        // Another copy has landed, or this one is not wanted now: the frame is given up in its middle.
        PROBE(cancelled_by_ack);
        Link& busy = links_.at(half.out_link);
        busy.sending.dropped = true;
        turn_.add(CancelSend{half.out_link});
    }
    link.last_progress = turn_.now;
    if (word.kind == wire::FlowKind::moving) {
        const auto lost = op.lost.find({word.phase, word.slice});
        if (lost != op.lost.end()) {
            // Another copy got no further than an earlier one: the stripe works, but the slice does not get through.
            // The next copies get the time to come as far; a path that breaks each of them ends this soon.
            if (word.value <= lost->second.most && lost->second.times > copies_patiently) return;
            // A copy that was given up fills its frame with other bytes.
            if (word.value > lost->second.most && half.out_link == event.link) {
                lost->second.most = static_cast<std::uint32_t>(word.value);
                lost->second.took = turn_.now - lost->second.left_at;
            }
            if (op.neighbour_ready) {
                lost->second.since = turn_.now;
                lost->second.fruitless = 0;
            }
        }
        edge.answered_at = link.answered_at = turn_.now;
        return;
    }
    edge.answered_at = link.answered_at = turn_.now;
    link.useful = true;
    if (word.kind == wire::FlowKind::ack) {
        op.acknowledged(word.phase, word.slice);
        op.answered_at = turn_.now;
        op.answered_before = ++edge.answers;
        if (word.phase == 0 && !op.starts(word.slice)) {
            op.give_slot(word.slice);
            tell_ready(op);
        }
    } else if (half.out != OutState::queued && half.out_link == event.link) {
        if (!op.neighbour_ready && op.eager_outstanding > 0) {
            --op.eager_outstanding;
            --edge.eager_used;
        }
        PROBE(decline_read);
        op.declined(word.phase, word.slice);
    }
    pump_edge(link.remote);
}

// ---- landing -------------------------------------------------------------------------------------------------------

void Exchange::on_bulk(const BulkArrived& event) {
    const auto it = links_.find(event.link);
    if (it == links_.end()) return;
    Link& link = it->second;
    link.last_received = turn_.now;
    if (link.purpose == Purpose::test_in && event.header.phase == 3)
        return probe_.frame_arrives(event.link, event.header);
    const bool chunk = event.header.phase == 2;
    if (event.header.phase == 3 || link.stage != Stage::open ||
        link.purpose != (chunk ? Purpose::outgoing : Purpose::incoming)) {
        links_.refuse(event.link, "sent payload where none belongs");
        return;
    }
    ASSERT(link.receiving.op == 0);
    link.arrived = 0;
    link.frame_began = turn_.now;
    if (!chunk) return on_bulk_slice(event.link, link, event.header);
    if (sync_.chunk_arrives(event.link, link, event.header)) return;
    ++dead_frames_;
    discard(event.link, link, event.header);
}

void Exchange::discard(LinkId id, Link& link, const wire::BulkHeader& header) {
    link.receiving =
        Transfer{header.op == 0 ? ~0ull : header.op, header.phase, header.slice, header.entry, Operation::none, true};
    turn_.add(DiscardPayload{id});
}

void Exchange::on_bulk_slice(LinkId id, Link& link, const wire::BulkHeader& header) {
    const auto found = ops_.find(header.op);
    if (found == ops_.end()) {
        if (header.op > settled_ops_ && header.phase == 0) {
            receive_early(id, link, header);
        } else {
            PROBE(frame_of_dead_operation);
            ++dead_frames_;
            discard(id, link, header);
        }
        return;
    }
    Operation& op = *found->second;
    if (op.decided || op.id.predecessor != link.remote) {
        ++dead_frames_;
        discard(id, link, header);
        return;
    }
    if (header.slice >= op.slices() || header.length != op.wire_length(header.slice) ||
        (header.phase == 0 ? op.starts(header.slice) : op.finishes(header.slice))) {
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
    if (half.in == InState::landing) {
        // One landing at a time: the earlier copy, on a stripe that stalls, is led away before this one may land.
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
    link.receiving = Transfer{header.op, header.phase, header.slice, 0, Operation::none, false};
    const BufferRef place = header.phase == 0 ? op.slot_ref(header.slice)
                                              : BufferRef{op.result, op.wire_offset(header.slice), header.length};
    turn_.add(ReceivePayload{id, place});
}

// A slice of an operation that is not started here yet: into the neighbour's reserve, never left unread.
void Exchange::receive_early(LinkId id, Link& link, const wire::BulkHeader& header) {
    Reserve& reserve = reserves_.at(link.remote);
    const bool known = std::any_of(reserve.slices.begin(), reserve.slices.end(), [&](const Early& early) {
        return early.op == header.op && early.slice == header.slice;
    });
    if (known || !reserve.usable || reserve.free_cells.empty() || header.length > turn_.limits.slice_bytes) {
        PROBE(early_declined);
        decline(id, header);
        discard(id, link, header);
        return;
    }
    PROBE(early_kept);
    const std::uint32_t cell = reserve.free_cells.back();
    reserve.free_cells.pop_back();
    reserve.slices.push_back(Early{header.op, header.slice, cell, header.length, false, id});
    link.receiving = Transfer{header.op, header.phase, header.slice, 0, cell, false};
    turn_.add(ReceivePayload{
        id, BufferRef{reserve.buffer, static_cast<std::uint64_t>(cell) * turn_.limits.slice_bytes, header.length}});
}

void Exchange::on_landed(const PayloadLanded& event) {
    const auto it = links_.find(event.link);
    if (it == links_.end()) return;
    Link& link = it->second;
    link.last_received = turn_.now;
    if (link.purpose == Purpose::test_in) return probe_.frame_landed(event.link);
    const Transfer receiving = link.receiving;
    link.receiving = Transfer{};
    const bool landed = event.verdict == PayloadLanded::Verdict::landed && !receiving.dropped;
    const bool corrupt = event.verdict == PayloadLanded::Verdict::corrupt;
    const Uuid remote = link.remote;
    if (receiving.cell != Operation::none) {
        Reserve& reserve = reserves_.at(remote);
        const auto early = std::find_if(reserve.slices.begin(), reserve.slices.end(),
                                        [&](const Early& entry) { return entry.cell == receiving.cell; });
        ASSERT(early != reserve.slices.end() && !early->landed);
        const auto op = ops_.find(receiving.op);
        const bool dead = op == ops_.end() ? receiving.op <= settled_ops_ : op->second->decided;
        if (landed && !dead) {
            early->landed = true;
            if (op != ops_.end() && op->second->prepared) PROBE(early_landed_after_start);
            if (op != ops_.end() && op->second->prepared) absorb_early(*op->second);
        } else {
            if (landed) PROBE(early_landed_too_late);
            if (!dead && op != ops_.end() && op->second->prepared && receiving.slice < op->second->slices())
                landing_broke(*op->second, op->second->half(0, receiving.slice), link.arrived);
            reserve.slices.erase(early);
            free_cell(remote, receiving.cell);
        }
    } else if (receiving.phase == 2) {
        if (!receiving.dropped) sync_.chunk_landed(event.link, receiving, landed);
    } else if (!receiving.dropped) {
        const auto found = ops_.find(receiving.op);
        if (found != ops_.end() && !found->second->decided) {
            Operation& op = *found->second;
            Half& half = op.half(receiving.phase, receiving.slice);
            ASSERT(half.in == InState::landing && half.in_link == event.link);
            half.in_link = 0;
            if (landed) {
                half.in = InState::landed;
                slice_landed(op, op.wire_length(receiving.slice));
                acknowledge(event.link, op, receiving.phase, receiving.slice);
                if (receiving.phase == 0) {
                    partial_landed(op, receiving.slice, op.slot_ref(receiving.slice), Operation::none, remote);
                } else {
                    final_there(op, receiving.slice, event.checksum);
                }
            } else {
                PROBE(landing_failed);
                half.in = InState::none;
                landing_broke(op, half, link.arrived);
                if (receiving.phase == 0) op.return_slot(receiving.slice);
            }
        }
    }
    if (corrupt) {
        PROBE(payload_corrupt);
        turn_.log(
            LogLevel::warn,
            "a slice from peer " + short_name(remote) +
                " arrived damaged: its program wrote to the buffer while it was being sent, or the network or a memory "
                "is faulty; the connection is opened anew");
        links_.drop(event.link, "payload with a wrong checksum");
    }
}

void Exchange::absorb_early(Operation& op) {
    const auto found = reserves_.find(op.id.predecessor);
    if (found == reserves_.end()) return;
    std::vector<Early> mine;
    std::erase_if(found->second.slices, [&](const Early& early) {
        if (early.op != op.id.id || !early.landed) return false;
        mine.push_back(early);
        return true;
    });
    for (const Early& early : mine) {
        const bool fits = early.slice < op.slices() && !op.starts(early.slice) &&
                          early.length == op.wire_length(early.slice) && op.half(0, early.slice).in == InState::none;
        const bool finishes = fits && op.finishes(early.slice);
        if (!fits && early.slice < op.slices()) PROBE(early_copy_late);
        if (!fits || (!finishes && op.take_slot(early.slice) == Operation::none)) {
            if (fits) {
                wire::FlowWord word;
                word.kind = wire::FlowKind::decline;
                word.op = op.id.id;
                word.slice = early.slice;
                send_flow(early.link, op.id.predecessor, word);
            }
            if (early.slice < op.slices()) landing_broke(op, op.half(0, early.slice), early.length);
            free_cell(op.id.predecessor, early.cell);
            continue;
        }
        if (finishes) PROBE(early_to_the_end);
        op.half(0, early.slice).in = InState::landed;
        slice_landed(op, early.length);
        acknowledge(early.link, op, 0, early.slice);
        const BufferRef place{found->second.buffer, static_cast<std::uint64_t>(early.cell) * turn_.limits.slice_bytes,
                              early.length};
        partial_landed(op, early.slice, place, early.cell, op.id.predecessor);
    }
}

void Exchange::forget_dead_early() {
    std::vector<std::pair<Uuid, std::uint32_t>> cells_free;
    for (auto& entry : reserves_) {
        std::erase_if(entry.second.slices, [&](const Early& early) {
            if (!early.landed || early.op > settled_ops_ || ops_.contains(early.op)) return false;
            cells_free.emplace_back(entry.first, early.cell);
            return true;
        });
    }
    for (const auto& [neighbour, cell] : cells_free) free_cell(neighbour, cell);
}

// Gives a cell back (none: only looks); a reserve whose neighbour has gone is freed when its last cell is back.
void Exchange::free_cell(const Uuid& remote, std::uint32_t cell) {
    const auto it = reserves_.find(remote);
    if (it == reserves_.end()) return;
    Reserve& reserve = it->second;
    if (cell != Operation::none) reserve.free_cells.push_back(cell);
    if (!reserve.links.empty() || (reserve.buffer != 0 && reserve.free_cells.size() < cells())) return;
    if (reserve.buffer != 0 && !reserve.usable) return;  // its allocation is still to be answered
    PROBE(reserve_freed);
    if (reserve.buffer != 0) memory_.free(reserve.buffer);
    reserves_.erase(it);
}

}  // namespace pccl::core
