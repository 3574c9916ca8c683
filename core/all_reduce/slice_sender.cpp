#include "core/all_reduce/slice_sender.hpp"

#include "core/all_reduce/ahead.hpp"
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

namespace {
// The first copies of a lost slice, as many as this, restart its clock when they leave and when any part of them
// arrives. Later copies restart it only when more arrives than of any copy before.
constexpr std::uint32_t copies_patiently = 2;
}  // namespace

// ---- which slice leaves ---------------------------------------------------------------------------------------------

void SliceSender::pump_edge(const Uuid& target) {
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

bool SliceSender::send_next(const Uuid& target, Flow& flow, LinkId id, Link& link) {
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

void SliceSender::left(const PayloadSent& event, const Link& link, const Transfer& sending) {
    if (Operation* op = reductions_.find_to(sending.op, link.remote); op && !op->decided) {
        Half& half = op->half(sending.phase, sending.slice);
        if (half.out == OutState::sending && half.out_link == event.link) half.out = OutState::sent;
        op->sent_bytes += op->wire_length(sending.slice);
        ASSERT(!event.cancelled);
        if (sending.phase == 1) reductions_.final_left(*op, sending.slice, event.checksum);
    }
}

// ---- words of the successor -----------------------------------------------------------------------------------------

void SliceSender::on_flow(const FlowArrived& event) {
    const auto it = links_.find(event.link);
    if (it == links_.end()) return;
    Link& link = it->second;
    link.last_received = turn_.now;
    if (link.stage != Stage::open || link.purpose != Purpose::outgoing) {
        links_.refuse(event.link, "sent a flow word where none belongs");
        return;
    }
    const wire::FlowWord& word = event.word;
    Operation* found =
        is_ahead(word.op) ? reductions_.launched_as(serial_of(word.op)) : reductions_.find_to(word.op, link.remote);
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
void SliceSender::answered(LinkId id, Link& link, Operation& op, const wire::FlowWord& word) {
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
            receiver_.tell_ready(op);
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

// The successor reports a part of a frame that is of no use. It fills the path all the same.
void SliceSender::rest_moves(Link& link, Flow& flow, const wire::FlowWord& word) {
    Transfer& rest = link.rest;
    const std::uint32_t moved = std::min(word.value, turn_.limits.payload_bytes_max);
    if (rest.op != word.op || rest.slice != word.slice || rest.phase != word.phase) {
        rest.op = word.op;
        rest.slice = word.slice;
        rest.phase = word.phase;
        ++flow.rests;
    } else if (moved <= link.rest_moved) {
        return;
    }
    link.rest_moved = moved;
    flow.rest_at = turn_.now;
}

// A flow word about a slice that was sent on this stripe came. If the stripe was held stalled, it works after all, and
// the losses that were counted for it are taken back.
void SliceSender::stripe_moves(LinkId id, Link& link, Flow& flow) {
    flow.latest_word = std::max(flow.latest_word, turn_.now - (link.stalled ? link.silent_since : link.last_progress));
    if (!link.stalled) return;
    PROBE(stalled_stripe_moves);
    link.stalled = false;
    for (auto& [op_id, op] : reductions_.all()) {
        if (op->id.successor != link.remote) continue;
        for (auto& [slice, lost] : op->lost) {
            if (lost.stalled_on != id) continue;
            ASSERT(lost.times > 0);
            lost.stalled_on = 0;
            --lost.times;
            lost.fruitless -= std::min(lost.fruitless, 1u);
        }
    }
}

// ---- operations -----------------------------------------------------------------------------------------------------

void SliceSender::begins(Operation& op) {
    if (const auto flow = flows_.find(op.id.successor); flow != flows_.end()) {
        const auto said = flow->second.future_ready.find(op.id.id);
        if (said != flow->second.future_ready.end()) {
            PROBE(ready_before_start);
            op.neighbour_ready = true;
            op.ready_at = turn_.now;
            op.neighbour_slots = said->second.slice;
            op.credit = said->second.value;
        }
    }
    if (const auto flow = flows_.find(op.id.successor); flow != flows_.end()) {
        if (op.neighbour_ready) flow->second.eager_used -= std::exchange(op.eager_outstanding, 0);
        const auto [first, last] = flow->second.future_answers.equal_range(op.id.id);
        const std::vector<std::pair<OpId, std::pair<LinkId, wire::FlowWord>>> said(first, last);
        for (const auto& [id, answer] : said) {
            const auto link = links_.find(answer.first);
            if (link == links_.end() || answer.second.slice >= op.slices() || answer.second.phase > 1) continue;
            PROBE(answer_before_start);
            answered(answer.first, link->second, op, answer.second);
        }
    }
}

// All operations of the start have begun.
void SliceSender::start_taken() {
    for (auto& [target, flow] : flows_) {
        flow.future_ready.erase(flow.future_ready.begin(), flow.future_ready.upper_bound(reductions_.settled()));
        flow.future_answers.erase(flow.future_answers.begin(), flow.future_answers.upper_bound(reductions_.settled()));
    }
}

void SliceSender::started(const Operation& op, OpId ahead) {
    for (auto& [id, link] : links_) {
        if (link.sending.op == ahead) link.sending.op = op.id.id;
    }
    // The time in which the successor could not answer does not count.
    for (std::uint32_t slice = 0; slice < op.slices(); ++slice) {
        const Half& half = op.half(0, slice);
        if (half.out != OutState::sending && half.out != OutState::sent) continue;
        if (const auto link = links_.find(half.out_link); link != links_.end())
            link->second.last_progress = link->second.left_at = turn_.now;
    }
}

void SliceSender::prepared(Operation& op) {
    if (const auto flow = flows_.find(op.id.successor); flow != flows_.end()) op.answered_before = flow->second.answers;
}

void SliceSender::over(Operation& op) {
    const auto flow = flows_.find(op.id.successor);
    if (flow != flows_.end()) flow->second.eager_used -= op.eager_outstanding;
    op.eager_outstanding = 0;
}

// ---- slices that leave again ----------------------------------------------------------------------------------------

// Slices that were not acknowledged are queued for another stripe. The receiver never lands a second copy.
void SliceSender::slices_lost(LinkId id, const Uuid& target) {
    for (auto& [op_id, op] : reductions_.all()) {
        if (op->decided || op->id.successor != target) continue;
        op->each_in_flight_on(id, [&, op = op.get()](int phase, std::uint32_t slice) {
            PROBE(stripe_lost_slice_again);
            op->lost_again(phase, slice, turn_.now, turn_.timeouts.together());
        });
    }
}

// Finds stripes on which nothing was sent or answered for long while another stripe of the edge works. Queues their
// slices again.
void SliceSender::requeue_stalled() {
    for (const auto& [target, edge] : stripes_.all()) {
        // On a slow path flow words come late. A delay that occurred before may occur again, so the patience is twice
        // the longest one. Stripes that share a path may seem to stall although none does, so each of them that is held
        // stalled doubles the least patience. The patience never exceeds four times `least`.
        const auto held_stalled =
            std::count_if(edge.stripes.begin(), edge.stripes.end(), [this](const Stripes::Stripe& stripe) {
                const auto link = links_.find(stripe.link);
                return link != links_.end() && link->second.stalled;
            });
        const Duration least = turn_.timeouts.hiccup();
        const Duration patience =
            std::min(std::max(2 * flows_[target].latest_word, least << std::min<long>(held_stalled, 2)), 4 * least);
        bool moving = false;
        for (const Stripes::Stripe& stripe : edge.stripes) {
            const auto link = links_.find(stripe.link);
            moving = moving || (link != links_.end() && link->second.stage == Stage::open &&
                                (turn_.now - link->second.last_progress <= patience || link->second.sending.op == 0));
        }
        if (!moving) continue;
        bool moved = false;
        for (const Stripes::Stripe& stripe : edge.stripes) {
            const auto it = links_.find(stripe.link);
            if (it == links_.end() || it->second.stage != Stage::open) continue;
            Link& link = it->second;
            // After a while a stalled stripe gets another chance. All that was sent on it may have been answered on
            // other stripes; then no flow word can come that shows that it works.
            if (link.stalled && link.sending.op == 0 && turn_.now - link.stalled_at > turn_.timeouts.starved()) {
                PROBE(stalled_stripe_tried_again);
                link.stalled = false;
                link.last_progress = turn_.now;
            }
            if (turn_.now - link.last_progress <= patience) continue;
            moved = requeue(target, it->first, link) || moved;
        }
        if (moved) pump_edge(target);
    }
}

// Resends the slices that are declined again and again. They did not wait for credit, so the time since then counts.
void SliceSender::send_declined() {
    for (auto& [target, flow] : flows_) {
        const Instant since = std::exchange(flow.declined_at, 0);
        if (since == 0) continue;
        for (const auto& [id, op] : reductions_.all()) {
            if (op->id.successor == target && op->waited != 0) op->waited += turn_.now - since;
        }
        pump_edge(target);
    }
}

// Queues the slices again that are in flight on the stripe, which is held stalled from now on if there are any.
bool SliceSender::requeue(const Uuid& target, LinkId id, Link& link) {
    if (!link.stalled) link.silent_since = link.last_progress;
    link.last_progress = turn_.now;
    bool any = false;
    for (auto& [op_id, op] : reductions_.all()) {
        if (op->decided || op->ahead || op->id.successor != target) continue;
        op->each_in_flight_on(id, [&, op = op.get()](int phase, std::uint32_t slice) {
            if (op->half(phase, slice).out == OutState::sending) {
                PROBE(stalled_send_cancelled);
                link.sending.dropped = true;
                turn_.add(CancelSend{id});
            }
            if (op->lost_again(phase, slice, turn_.now, turn_.timeouts.together()))
                op->lost.at({phase, slice}).stalled_on = id;
            link.stalled = any = true;
            link.stalled_at = turn_.now;
            PROBE(stalled_slice_again);
        });
    }
    return any;
}

void SliceSender::hedge() {
    for (const auto& [target, stripe] : hedges_.late()) {
        if (requeue(target, stripe, links_.at(stripe))) pump_edge(target);
    }
}

// ---- edges ----------------------------------------------------------------------------------------------------------

void SliceSender::edge_opened(const Uuid& target, Duration round_trip) {
    if (stripes_.find(target) != nullptr) {
        Flow& flow = flows_[target];
        flow.greeting = std::min(flow.greeting, round_trip);
    }
    pump_edge(target);
}

void SliceSender::tick() {
    requeue_stalled();
    send_declined();
}

void SliceSender::leave_out(Duration time) {
    const auto later = [&](Instant& clock) { clock = std::min(turn_.now, clock + time); };
    for (const auto& [target, edge] : stripes_.all()) {
        later(flows_[target].answered_at);
        later(flows_[target].through_at);
        later(flows_[target].rest_at);
    }
}

void SliceSender::check() const {
    for (const auto& [target, flow] : flows_) {
        std::uint32_t early = 0;
        for (const auto& [id, op] : reductions_.all()) early += op->id.successor == target ? op->eager_outstanding : 0;
        ASSERT(flow.eager_used == early);
    }
}

}  // namespace pccl::core
