// Slices in motion: which one leaves on which stripe, where one lands, and which flow words are sent about it.
#include "core/all_reduce/exchange.hpp"

#include "core/all_reduce/ahead.hpp"
#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

namespace {
// The first copies of a lost slice, as many as this, restart its clock when they leave and when any part of them
// arrives. Later copies restart it only when more arrives than of any copy before.
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

void Exchange::tell_ready(const Operation& op) { predecessors_.send(0, op.id.predecessor, ready_word(op)); }

void Exchange::acknowledge(LinkId link, const Operation& op, int phase, std::uint32_t slice) {
    wire::FlowWord word;
    word.kind = wire::FlowKind::ack;
    word.op = op.id.id;
    word.slice = slice;
    word.phase = static_cast<std::uint8_t>(phase);
    predecessors_.send(link, op.id.predecessor, word);
}

void Exchange::decline(LinkId link, const wire::BulkHeader& header) {
    wire::FlowWord word;
    word.kind = wire::FlowKind::decline;
    word.op = on_the_wire(header.op);
    word.slice = header.slice;
    word.phase = static_cast<std::uint8_t>(header.phase);
    predecessors_.send(link, links_.at(link).remote, word);
}

// ---- sending -------------------------------------------------------------------------------------------------------

void Exchange::pump_edge(const Uuid& target) {
    const Stripes::Edge* edge = stripes_.find(target);
    if (edge == nullptr) return;
    const std::vector<Stripes::Stripe>& stripes = edge->stripes;
    Flow& flow = flows_[target];
    const std::size_t count = stripes.size();
    // A stalled stripe gets no slices while another one works. Otherwise they would be lost with it again.
    const auto any_works = [&] {
        return std::any_of(stripes.begin(), stripes.end(), [this](const Stripes::Stripe& stripe) {
            const auto link = links_.find(stripe.link);
            return link != links_.end() && link->second.stage == Stage::open && !link->second.stalled;
        });
    };
    const auto has_slices_there = [&](const auto& entry) {
        return entry.second->id.successor == target && entry.second->unanswered();
    };
    // The next operation begins on the same stripes as the last one: their windows have grown. If small operations took
    // turns on all of them, the window of each would shrink again before it is used.
    const Reductions::Map& ops = reductions_.all();
    if (flow.next_stripe != 0 && std::none_of(ops.begin(), ops.end(), has_slices_there)) flow.next_stripe = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const LinkId id = stripes[(flow.next_stripe + i) % count].link;
        const auto link = links_.find(id);
        if (link == links_.end() || link->second.stage != Stage::open || link->second.sending.op != 0) continue;
        if (link->second.stalled && any_works()) continue;
        if (!send_next(target, flow, id, link->second)) return hedges_.plan(target, flow, true);
        flow.next_stripe = (flow.next_stripe + i + 1) % count;
        i = static_cast<std::size_t>(-1);
    }
    hedges_.plan(target, flow, false);
}

bool Exchange::send_next(const Uuid& target, Flow& flow, LinkId id, Link& link) {
    const Reductions::Map& ops = reductions_.all();
    const auto may_send = [&](const Operation& op) {
        return !op.decided && (op.prepared || op.ahead) && op.id.successor == target;
    };
    std::uint32_t lost_most = 0;
    for (const auto& [op_id, op] : ops) {
        if (may_send(*op) && !op->ahead) lost_most = std::max(lost_most, op->resends());
    }
    // Operations take turns, starting after the one served last. The slice that was lost most often comes first, then
    // others to resend, and last the operations whose start is not known: when a connection breaks, all that left ahead
    // on it is lost, and others would wait for it.
    enum Round : std::size_t { most_urgent, resends, started, ahead, rounds };
    auto turn = ops.upper_bound({flow.last_served, ~0u});
    for (std::size_t i = lost_most == 0 ? started * ops.size() : 0; i < rounds * ops.size(); ++i, ++turn) {
        if (turn == ops.end()) turn = ops.begin();
        Operation& op = *turn->second;
        if (!may_send(op)) continue;
        const std::size_t round = i / ops.size();
        if ((round == ahead) != op.ahead) continue;
        if (round < started && op.resends() < (round == most_urgent ? lost_most : 1)) continue;
        const bool far = flow.is_far(turn_.limits);
        const std::uint32_t room = far ? turn_.limits.eager_slices() : turn_.limits.near_eager_slices();
        const std::uint32_t eager_left = room > flow.eager_used ? room - flow.eager_used : 0;
        const Operation::Next next = op.peek(
            eager_left, far ? Operation::none : flow.near_slots_bytes(turn_.limits) / std::max(op.slot_bytes, 1u) + 1);
        if (next.slice == Operation::none) continue;
        op.pop(next);
        if (next.eager) {
            PROBE(early_sent);
            ++op.eager_outstanding;
            ++flow.eager_used;
        }
        if (round >= started) flow.last_served = op.id.id;
        const Half& half = op.half(next.phase, next.slice);
        if (!op.unanswered()) op.waits_since = turn_.now - op.waited;
        op.leaves(next.phase, next.slice, id);
        if (const auto again = op.lost.find({next.phase, next.slice}); again != op.lost.end()) {
            again->second.left_at = turn_.now;
            // The wait for a free connection is not the fault of the path, so it is left out of the clock.
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
        if (op.ahead) send.header.entry = cut_of(op.id.world, op.id.position, op.id.shares);
        if (next.phase == 1)
            send.source = op.final_ref(next.slice);
        else if (!input)
            send.source = op.slot_ref(next.slice);
        else if (op.is_quantized())
            send.source = op.input_ref(next.slice);
        else
            send.source = op.own_input(next.slice);
        if (input && send.source.id != op.send && !op.is_quantized()) PROBE(input_left_again_from_scratch);
        send.has_checksum = input ? op.is_quantized() : !half.unsummed;
        send.checksum = half.checksum;
        if (link.sending.op == 0 && turn_.now - link.last_progress > turn_.timeouts.together())
            link.last_progress = turn_.now;
        link.left_at = turn_.now;
        link.sending = Transfer{op.id.id, send.header.phase, next.slice, 0, Operation::none, false};
        if (link.timed.op == 0 && !op.ahead) {
            link.timed = link.sending;
            link.timed_at = turn_.now;
        }
        turn_.add(send);
        if (input) reductions_.input_leaves(op, next.slice);
        reductions_.prepare_inputs(op);
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
        } else if (Operation* op = reductions_.find_to(sending.op, link.remote); op && !op->decided) {
            Half& half = op->half(sending.phase, sending.slice);
            if (half.out == OutState::sending && half.out_link == event.link) half.out = OutState::sent;
            op->sent_bytes += op->wire_length(sending.slice);
            ASSERT(!event.cancelled);
            if (sending.phase == 1) reductions_.final_left(*op, sending.slice, event.checksum);
        }
    }
    sync_.send_next_chunk(event.link, link);
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
    Operation* found = is_ahead(word.op) ? reductions_.launched_as(serial_of(word.op))
                                         : reductions_.find_to(word.op, link.remote);
    Flow& flow = flows_[link.remote];
    if (found == nullptr && !reductions_.is_settled(word.op) && word.kind == wire::FlowKind::ready) {
        // Our start is still on its way. Keep the latest `ready` of each operation, because the neighbour may not
        // repeat it. An operation cannot start unless it was launched here, or is a send of others: no more of those run at
        // a time than the group may.
        const std::size_t most = turn_.limits.tags_max + turn_.limits.concurrent_ops;
        if (flow.future_ready.size() >= most && !flow.future_ready.contains(word.op)) {
            links_.refuse(event.link, "is ready for too many operations that are not known here");
            return;
        }
        flow.future_ready[word.op] = word;
        return;
    }
    if (found == nullptr && !reductions_.is_settled(word.op) && !is_ahead(word.op)) {
        // About a slice that left ahead of the start. If there is no room, the slice is sent again.
        if (flow.future_answers.size() < 2 * turn_.limits.eager_slices())
            flow.future_answers.emplace(word.op, std::pair(event.link, word));
        return;
    }
    if (found == nullptr || found->decided || found->id.successor != link.remote) {
        PROBE(word_of_dead_operation);
        ++dead_frames_;
        // The rest of an abandoned frame fills the path, and nothing else can get through before it. So it is progress.
        if (word.kind == wire::FlowKind::moving) {
            if (link.stalled) stripe_moves(event.link, link, flow);
            flow.answered_at = link.answered_at = turn_.now;
            rest_moves(link, flow, word);
        }
        return;
    }
    Operation& op = *found;
    if (is_ahead(word.op) && word.kind != wire::FlowKind::decline && word.kind != wire::FlowKind::moving) {
        links_.refuse(event.link, "took a slice of an operation that has not begun");
        return;
    }
    answered(event.link, link, op, word);
}

// A word of the successor about one of its operations.
void Exchange::answered(LinkId id, Link& link, Operation& op, const wire::FlowWord& word) {
    Flow& flow = flows_[link.remote];
    if (word.kind == wire::FlowKind::ready || word.kind == wire::FlowKind::credit) {
        if (!op.neighbour_ready) {
            op.neighbour_ready = true;
            op.ready_at = turn_.now;
            op.neighbour_slots = word.slice;
            flow.eager_used -= op.eager_outstanding;
            op.eager_outstanding = 0;
            hedges_.can_answer(link.remote);
        }
        op.credit = std::max(op.credit, word.value);
        op.credit_at = turn_.now;
        pump_edge(link.remote);
        return;
    }
    if (word.slice >= op.slices() || word.phase > 1) {
        links_.refuse(id, "acknowledged a slice that does not exist");
        return;
    }
    Half& half = op.half(word.phase, word.slice);
    if (half.out == OutState::acknowledged) PROBE(ack_twice);
    if (link.stalled || half.out_link == id) stripe_moves(id, link, flow);
    // The word is about the rest of another copy.
    if (half.out == OutState::acknowledged && word.kind == wire::FlowKind::moving) {
        flow.answered_at = link.answered_at = link.last_progress = turn_.now;
        rest_moves(link, flow, word);
    }
    if (half.out == OutState::idle || half.out == OutState::acknowledged) return;
    if (half.out == OutState::sending && word.kind != wire::FlowKind::moving &&
        (word.kind == wire::FlowKind::ack || half.out_link == id)) {
        // Another copy has landed, or this one was declined: abandon the frame in its middle.
        PROBE(cancelled_by_ack);
        Link& busy = links_.at(half.out_link);
        busy.sending.dropped = true;
        turn_.add(CancelSend{half.out_link});
    }
    link.last_progress = turn_.now;
    if (word.kind == wire::FlowKind::moving) {
        if (half.out_link == id && op.moves(word.phase, word.slice, word.value))
            flow.gets_through(turn_.now);
        else
            rest_moves(link, flow, word);
        const auto lost = op.lost.find({word.phase, word.slice});
        if (lost != op.lost.end()) {
            // After the first copies, a copy that gets no further than an earlier one is no progress: the stripe works,
            // but the slice does not get through. Copies have time to come as far as before (`took`, see progress.cpp),
            // but a path that breaks each of them is given up soon.
            if (word.value <= lost->second.most && lost->second.times > copies_patiently) return;
            // Only the current copy counts: an abandoned copy fills its frame with other bytes.
            if (word.value > lost->second.most && half.out_link == id) {
                lost->second.most = static_cast<std::uint32_t>(word.value);
                lost->second.took = turn_.now - lost->second.left_at;
            }
            if (op.neighbour_ready) {
                lost->second.since = turn_.now;
                lost->second.fruitless = 0;
            }
        }
        flow.answered_at = link.answered_at = turn_.now;
        return;
    }
    flow.answered_at = link.answered_at = turn_.now;
    link.useful = true;
    if (link.timed.op == op.id.id && link.timed.phase == word.phase && link.timed.slice == word.slice) {
        if (word.kind == wire::FlowKind::ack && half.out_link == id) {
            flow.acknowledged_within(turn_.now - link.timed_at, op.wire_length(word.slice),
                                     op.lost.contains({word.phase, word.slice}));
        }
        link.timed = {};
    }
    if (word.kind == wire::FlowKind::ack) {
        op.acknowledged(word.phase, word.slice);
        if (op.prepared)
            flow.longest_wait = std::max(flow.longest_wait, turn_.now - std::max(op.answered_at, op.prepared_at));
        op.answered_at = turn_.now;
        flow.gets_through(turn_.now);
        op.waited = 0;
        op.answered_before = ++flow.answers;
        if (word.phase == 1) reductions_.final_got_through(op, word.slice);
        if (op.direct) {
            session_.computed();
            reductions_.got_through(op);
        }
        if (word.phase == 0 && !op.starts(word.slice)) {
            op.give_slot(word.slice);
            tell_ready(op);
        }
    } else if (half.out != OutState::queued && half.out_link == id) {
        if (!op.neighbour_ready && op.eager_outstanding > 0) {
            --op.eager_outstanding;
            --flow.eager_used;
        }
        PROBE(decline_read);
        op.held = true;
        op.declined(word.phase, word.slice);
        if (op.neighbour_ready && !op.unanswered())
            op.waited = turn_.now - std::max({op.waits_since, op.ready_at, flow.through_at});
        // Otherwise the slice would come and go as fast as the path allows.
        if (op.neighbour_ready && half.again == again_max) {
            if (flow.declined_at == 0) flow.declined_at = turn_.now;
            return;
        }
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
    if (!chunk) {
        wire::BulkHeader header = event.header;
        if (is_ahead(header.op)) {
            const Operation* begun = reductions_.of_neighbour(link.remote, serial_of(header.op));
            const bool fits = begun != nullptr && predecessors_.cut_for(begun->id) == header.entry;
            if (fits) PROBE(ahead_behind_its_start);
            header.op = fits ? begun->id.id : header.op | theirs_mark;
        }
        return on_bulk_slice(event.link, link, header);
    }
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
void Exchange::receive_early(LinkId id, Link& link, const wire::BulkHeader& header) {
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
        early_landed(link, receiving, landed);
    } else if (receiving.phase == 2) {
        if (!receiving.dropped) sync_.chunk_landed(event.link, receiving, landed);
    } else if (receiving.dropped && link.purpose == Purpose::incoming && link.is_open() &&
               reductions_.is_settled(receiving.op)) {
        // The neighbour may hold this stripe stalled, and no slice will show that it works.
        tell_moving(event.link, link, receiving);
    } else if (!receiving.dropped) {
        Operation* found = reductions_.find_from(receiving.op, remote);
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
                                               remote);
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
    if (corrupt) {
        PROBE(payload_corrupt);
        turn_.log(
            LogLevel::warn,
            formatted(
                "a slice from peer {} arrived damaged: its program wrote to the buffer while it was being sent, or the "
                "network or a memory is faulty; the connection is opened anew",
                short_name(remote)));
        links_.drop(event.link, "payload with a wrong checksum");
    }
}

// A landing in the reserve has ended. `landed`: with success.
void Exchange::early_landed(const Link& link, const Transfer& receiving, bool landed) {
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

void Exchange::absorb_early(Operation& op) {
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

}  // namespace pccl::core
