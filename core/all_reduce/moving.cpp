// Progress of slices and the reactions to a lack of it: clocks, stalled stripes, repeated flow words. Also dispatches
// the messages of the master and of neighbours.
#include "core/all_reduce/exchange.hpp"

#include "core/all_reduce/ahead.hpp"
#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/leftovers.hpp"
#include "core/base/packed.hpp"
#include "core/base/probe.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

namespace {
// So many broken landings of a slice give back the bytes that they counted. Later, parts of the slice do not count.
constexpr std::uint8_t landings_given_back = 3;
}  // namespace

// ---- the master ----------------------------------------------------------------------------------------------------

void Exchange::welcomed(const Secret& link_key) {
    predecessors_.welcomed(link_key);
    tell_all_ = true;
    plan_pages_.Clear();
}

void Exchange::on_plan(const proto::DialPlan& page) {
    if (static_cast<std::uint32_t>(plan_pages_.targets_size() + page.targets_size()) > turn_.limits.peers_max ||
        static_cast<std::uint32_t>(plan_pages_.callers_size() + page.callers_size()) > turn_.limits.peers_max ||
        static_cast<std::uint32_t>(plan_pages_.offers_size() + page.offers_size()) > turn_.limits.peers_max) {
        session_.refuse("the master sent a plan with more connections than there can be peers");
        return;
    }
    plan_pages_.MergeFrom(page);
    if (page.more()) return;
    proto::DialPlan plan;
    plan.Swap(&plan_pages_);
    // A connection that the plan names anew is reported, whatever was reported before, because the master forgets the
    // connections that it does not want. After a welcome it may know none of them. Nothing else is reported again:
    // otherwise the reports for a growing plan would grow with the square of its size.
    const bool all = std::exchange(tell_all_, false);
    if (all && session_.state() == State::member) {
        // The master has sent all decisions from before the welcome. A neighbour may have sent slices early for an
        // operation of an earlier incarnation that a lost journal does not contain. Such an operation never starts
        // here: drop them.
        reductions_.settled(OpId{session_.incarnation()} << 32);
        forget_dead_early();
    }
    const std::set<Uuid> named_before = stripes_.planned(plan.targets(), all);
    predecessors_.named(plan.callers(), all);
    offers_.planned(plan.offers());
    stripes_.declare(named_before);
    dial();
    for (const auto& target : plan.targets()) {
        if (reductions_.is_successor(uuid_of(target.peer()))) return;
    }
    reductions_.forget_place();
}

Cause Exchange::start_answered(const proto::Answer& answer) {
    Cause why = reductions_.start_answered(answer);
    forget_dead_early();
    return why;
}

void Exchange::successor_unfinished(OpId id) {
    const Operation* op = reductions_.find(id);
    if (op != nullptr) reductions_.successor_unfinished(id, progress_.sends_in_vain(*op));
}

// Frees slices that neighbours sent early for operations that are over, or will never start here.
void Exchange::forget_dead_early() {
    predecessors_.forget_early([&](OpId id) { return reductions_.is_settled(id) && reductions_.find(id) == nullptr; });
}

void Exchange::membership_over(const LinkTable::Map& closed) {
    for (const auto& [id, link] : closed) {
        if (link.receiving.cell != Operation::none) predecessors_.free_cell(link.remote, link.receiving.cell);
    }
    plan_pages_.Clear();
    stripes_.forget_run();
    offers_.forget_run();
    flows_.clear();
    predecessors_.forget_run();
    reductions_.forget_run();
}

// ---- neighbours ----------------------------------------------------------------------------------------------------

void Exchange::link_lost(LinkId id, const Link& link, const std::string& reason) {
    if (link.receiving.op != 0) {
        PROBE(lost_while_landing);
        PayloadLanded never_landed;
        never_landed.verdict = PayloadLanded::Verdict::discarded;
        links_.put_back(id, link);
        links_.at(id).stage = Stage::dialing;  // so that nothing is sent on it any more
        never_landed.link = id;
        on_landed(never_landed);
        links_.erase(id);
    }
    if (link.purpose == Purpose::offer) return offers_.lost(id, link);
    if (link.purpose != Purpose::outgoing) {
        predecessors_.lost(id, link);
        return offers_.maintain();
    }
    slices_lost(id, link.remote);
    if (stripes_.lost(id, link, reason)) pump_edge(link.remote);
}

// Slices that were not acknowledged are queued for another stripe. The receiver never lands a second copy.
void Exchange::slices_lost(LinkId id, const Uuid& target) {
    for (auto& [op_id, op] : reductions_.all()) {
        if (op->decided || op->id.successor != target) continue;
        op->each_in_flight_on(id, [&, op = op.get()](int phase, std::uint32_t slice) {
            PROBE(stripe_lost_slice_again);
            op->lost_again(phase, slice, turn_.now, turn_.timeouts.together());
        });
    }
}

bool Exchange::knows_host(const Endpoint& remote) const {
    return stripes_.dials_host(remote) || offers_.dials_host(remote) || predecessors_.any_on_host(remote);
}

void Exchange::dial() {
    stripes_.maintain_edges();
    offers_.maintain();
}

void Exchange::opened(LinkId id, const Link& link) {
    if (link.purpose == Purpose::offer)
        offers_.opened(id);
    else
        stripes_.opened(id, link);
}

void Exchange::caller_uses(const Uuid& neighbour, std::uint32_t stripes) {
    offers_.told(neighbour, stripes);
    offers_.maintain();
}

void Exchange::offer_came(LinkId id, const Uuid& from, std::uint32_t stripe) {
    if (!stripes_.offered(id, from, stripe))
        links_.turn_away(id, "peer " + short_name(from) + " offered it, and it is not needed", true);
}

void Exchange::on_link_message(LinkId id, const ControlArrived& event) {
    proto::LinkMessage message;
    Link& link = links_.at(id);
    if (!decode(event.body, message)) {
        links_.refuse(id, "sent a message that cannot be read");
        return;
    }
    wire::bound_texts(message, text_bytes_max);
    if (link.stage != Stage::open) {
        if (link.purpose == Purpose::outgoing)
            stripes_.answered(id, link, message);
        else if (message.has_hello())
            predecessors_.hello(id, message.hello());
        else if (link.purpose == Purpose::offer && message.has_refusal())
            links_.drop(id, to_text(cause_of(message.refusal().cause())));
        else
            links_.refuse(id, message.has_refusal() ? to_text(cause_of(message.refusal().cause()))
                                                    : "did not begin as a data link does");
        return;
    }
    if (link.purpose == Purpose::test_in && !message.has_heartbeat()) {
        links_.refuse(id, "sent a message that does not fit a test");
        return;
    }
    switch (message.kind_case()) {
    case proto::LinkMessage::kHeartbeat:
        neighbour_started(link.remote, message.started());
        predecessors_.forget_ahead(link.remote, message.ahead_from());
        predecessors_.says_starved(link.remote, message.heartbeat());
        break;
    case proto::LinkMessage::kHashes: sync_.page_arrived(id, message.hashes()); break;
    case proto::LinkMessage::kPartRequest:
    case proto::LinkMessage::kPartDecline:
        if (!sync_.part_message(id, message)) links_.refuse(id, "asked for a part of a shared state that there is not");
        break;
    case proto::LinkMessage::kGoodbye:
        PROBE(neighbour_said_goodbye);
        link.goodbye = true;
        break;
    default: links_.refuse(id, "sent a message that does not fit here"); break;
    }
}

void Exchange::neighbour_started(const Uuid& neighbour, OpId last) {
    for (auto entry = reductions_.all().upper_bound({last, ~0u}); entry != reductions_.all().end(); ++entry) {
        Operation& op = *entry->second;
        if (op.id.successor != neighbour && op.id.predecessor != neighbour) continue;
        PROBE(neighbour_unaware);
        if (op.id.successor == neighbour) op.successor_unaware_at = turn_.now;
        if (op.id.predecessor == neighbour) op.predecessor_unaware_at = turn_.now;
    }
}

void Exchange::edge_opened(const Uuid& target, Duration round_trip) {
    if (stripes_.find(target) != nullptr) {
        Flow& flow = flows_[target];
        flow.greeting = std::min(flow.greeting, round_trip);
    }
    pump_edge(target);
    sync_.connected();
}

bool Exchange::edge_needed(const Uuid& target) const {
    return std::any_of(reductions_.all().begin(), reductions_.all().end(), [&](const auto& entry) {
        return !entry.second->decided && entry.second->id.successor == target;
    });
}

void Exchange::neighbour_connected(const Uuid& neighbour) {
    for (const auto& [id, op] : reductions_.all()) {
        if (op->prepared && !op->decided && op->id.predecessor == neighbour) tell_ready(*op);
    }
}

void Exchange::neighbour_lost_a_link(const Uuid& neighbour) {
    for (const auto& [id, op] : reductions_.all()) {
        if (!op->prepared || op->decided || op->id.predecessor != neighbour) continue;
        PROBE(ready_told_again);
        tell_ready(*op);
    }
}

// ---- operations ----------------------------------------------------------------------------------------------------

void Exchange::operation_begins(Operation& op) {
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
    predecessors_.started(op.id);
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
void Exchange::start_taken() {
    for (auto& [target, flow] : flows_) {
        flow.future_ready.erase(flow.future_ready.begin(), flow.future_ready.upper_bound(reductions_.settled()));
        flow.future_answers.erase(flow.future_answers.begin(), flow.future_answers.upper_bound(reductions_.settled()));
    }
}

void Exchange::operation_started(const Operation& op, OpId ahead) {
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

void Exchange::operation_dropped(Operation& op) {
    links_.release(op.id.id);
    const auto flow = flows_.find(op.id.successor);
    if (flow != flows_.end()) flow->second.eager_used -= std::exchange(op.eager_outstanding, 0);
    // The neighbour keeps what it has received until it hears this.
    const std::vector<LinkId> open = stripes_.open_links_to(op.id.successor);
    if (!open.empty()) links_.send(open.front(), heartbeat());
}

void Exchange::operation_prepared(Operation& op) {
    op.landed_before = predecessors_.arrivals(op.id.predecessor).slices;
    if (const auto flow = flows_.find(op.id.successor); flow != flows_.end()) op.answered_before = flow->second.answers;
    tell_ready(op);
    absorb_early(op);
}

// Cancels all sends of the operation and redirects its landings, so its memory is free at once.
void Exchange::operation_decided(Operation& op) {
    links_.release(op.id.id);
    for (auto& [id, link] : links_) {
        if (link.timed.op == op.id.id) link.timed = {};
    }
    if (const auto flow = flows_.find(op.id.successor); flow != flows_.end())
        flow->second.eager_used -= op.eager_outstanding;
    op.eager_outstanding = 0;
    for (const Predecessors::Early& early : predecessors_.take(op.id.predecessor, op.id.id))
        predecessors_.free_cell(op.id.predecessor, early.cell);
}

// ---- what gets through ---------------------------------------------------------------------------------------------

void Exchange::slice_landed(Operation& op, std::uint32_t bytes) {
    op.landed_one();
    op.received_bytes += bytes;
    op.landed_most = std::max(op.landed_most, op.received_bytes);
    predecessors_.came(op.id.predecessor, op.landed_at);
    op.landed_at = turn_.now;
    op.landed_before = predecessors_.slice_came(op.id.predecessor);
    if (op.direct) session_.computed();
}

// The bytes of the slice that had arrived are lost, so the same bytes count when they come again.
void Exchange::landing_broke(Operation& op, Half& half, std::uint32_t arrived) {
    if (half.broken >= landings_given_back) return;
    ++half.broken;
    op.landed_most = std::max(op.received_bytes, op.landed_most - std::min<std::uint64_t>(op.landed_most, arrived));
}

// A part of a frame has arrived. The sender gets a `moving` word from time to time, because a slice on a slow link can
// take longer than the patience with a stripe. If the slice was lost before, the sender decides whether that is
// progress (Operation::Lost::most). The receiver cannot: filler of an abandoned frame counted here like bytes of the
// slice.
void Exchange::payload_moved(LinkId id, Link& link, std::uint32_t arrived) {
    if (link.receiving.op != 0 && link.receiving.dropped) return discarded_moved(id, link, arrived);
    if (link.receiving.op != 0 && link.receiving.phase == 2) return sync_.chunk_moved(link, arrived);
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
void Exchange::discarded_moved(LinkId id, Link& link, std::uint32_t arrived) {
    if (link.purpose != Purpose::incoming || link.receiving.phase > 1 || arrived <= link.arrived) return;
    predecessors_.filler_came(link.remote, link.arrived == 0);
    link.arrived = arrived;
    if (turn_.now - link.told_moving >= turn_.timeouts.together()) tell_moving(id, link, link.receiving);
}

// The successor reports a part of a frame that is of no use. It fills the path all the same.
void Exchange::rest_moves(Link& link, Flow& flow, const wire::FlowWord& word) {
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

// On a slow path, the rest of a chunk that is discarded delays the neighbour's flow words about reductions. This peer
// dialled the connection, so it closes and redials it.
void Exchange::reopen_filled_links() {
    std::map<Uuid, LinkId> filled;  // one of each edge
    for (const auto& [id, link] : links_) {
        const Transfer& rest = link.receiving;
        if (link.purpose == Purpose::outgoing && rest.op != 0 && rest.phase == 2 && rest.dropped &&
            link.sending.op == 0 && turn_.now - link.frame_began > turn_.timeouts.together())
            filled.emplace(link.remote, id);
    }
    for (const auto& [target, id] : filled)
        stripes_.renew(id, "opened anew: a chunk that is not wanted any more filled it");
}

void Exchange::tell_moving(LinkId id, Link& link, const Transfer& receiving) {
    link.told_moving = turn_.now;
    wire::FlowWord word;
    word.kind = wire::FlowKind::moving;
    word.op = on_the_wire(receiving.op);
    word.slice = receiving.slice;
    word.phase = static_cast<std::uint8_t>(receiving.phase);
    word.value = link.arrived;
    turn_.add(SendFlow{id, word});
}

// Finds stripes on which nothing was sent or answered for long while another stripe of the edge works. Queues their
// slices again.
void Exchange::requeue_stalled() {
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
void Exchange::send_declined() {
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
bool Exchange::requeue(const Uuid& target, LinkId id, Link& link) {
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

void Exchange::hedge() {
    for (const auto& [target, stripe] : hedges_.late()) {
        if (requeue(target, stripe, links_.at(stripe))) pump_edge(target);
    }
}

// A flow word about a slice that was sent on this stripe came. If the stripe was held stalled, it works after all, and
// the losses that were counted for it are taken back.
void Exchange::stripe_moves(LinkId id, Link& link, Flow& flow) {
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

// `ready` is sent on one link, and that link may lose it. If no new bytes come, it is sent again on all links of the
// predecessor. The word is cumulative, so copies do no harm. The wait doubles with each repeat, and a tick repeats
// `ready` for only one operation of each predecessor. Otherwise many operations that wait behind a slow uplink would
// fill it with copies, and nothing else would get through.
void Exchange::repeat_ready() {
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

// ---- time ----------------------------------------------------------------------------------------------------------

void Exchange::leave_out(Duration time) {
    const auto later = [&](Instant& clock) { clock = std::min(turn_.now, clock + time); };
    for (auto& [id, op] : reductions_.all()) {
        for (Instant* clock : {&op->landed_at, &op->answered_at, &op->prepared_at, &op->waits_since, &op->sated_at,
                               &op->ready_at, &op->credit_at, &op->successor_unaware_at, &op->predecessor_unaware_at})
            later(*clock);
        for (auto& [slice, lost] : op->lost) {
            later(lost.since);
            later(lost.queued_at);
            later(lost.left_at);
        }
    }
    for (const auto& [target, edge] : stripes_.all()) {
        later(flows_[target].answered_at);
        later(flows_[target].through_at);
        later(flows_[target].rest_at);
    }
    predecessors_.leave_out(time);
}

void Exchange::forget_predecessors() {
    predecessors_.forget([&](const Uuid& neighbour) {
        return std::any_of(reductions_.all().begin(), reductions_.all().end(),
                           [&](const auto& entry) { return entry.second->id.predecessor == neighbour; });
    });
}

proto::LinkMessage Exchange::heartbeat() const {
    // Without the master this peer may have missed the start of an operation that its neighbours have begun. Over
    // direct edges nobody forwards anything, so what this peer waits for is no reason to send nothing.
    const bool starved =
        !session_.master_open() || std::any_of(reductions_.all().begin(), reductions_.all().end(),
                                               [](const auto& entry) {
                                                   const Operation& op = *entry.second;
                                                   return !op.direct && op.waits_for_input();
                                               });
    proto::LinkMessage message;
    message.set_heartbeat(starved);
    message.set_started(reductions_.highest());
    message.set_ahead_from(reductions_.ahead_from());
    return message;
}

void Exchange::judge_progress() {
    for (const auto& [id, op] : reductions_.all()) {
        if (!op->wants_to_send()) op->sated_at = turn_.now;
    }
    if (!session_.master_open()) return;  // the start may not have reached all members: judged when the master is back
    std::vector<LaneId> stuck;
    std::vector<std::pair<LaneId, Cause>> without_input;
    for (const auto& [id, op] : reductions_.all()) {
        if (!op->prepared || op->decided || op->given_up) continue;
        if (progress_.successor_stuck(*op)) {
            stuck.push_back(id);
        } else if (Cause cause = progress_.starved(*op); !cause.empty()) {
            without_input.emplace_back(id, std::move(cause));
        }
    }
    for (const LaneId& id : stuck) reductions_.give_up_edge(*reductions_.all().at(id));
    for (const auto& [id, cause] : without_input) {
        PROBE(starved_operation_given_up);
        reductions_.give_up(*reductions_.all().at(id), cause);
    }
}

void Exchange::tick() {
    requeue_stalled();
    send_declined();
    repeat_ready();
    reopen_filled_links();
    judge_progress();
}

// ---- observation ---------------------------------------------------------------------------------------------------

void Exchange::mix_into(const std::function<void(std::uint64_t)>& mix) const {
    for (const auto& [id, op] : reductions_.all()) {
        mix(id.op);
        mix(op->finals);
        mix(op->digest);
        mix(op->granted);
        mix(op->used);
        mix(op->computes);
        mix(op->sent_bytes);
    }
}

void Exchange::describe_operations(Packed& state) const {
    state.count(reductions_.size(), 2);
    bool unprepared = false, unready = false, decided = false, given_up = false, ended = false, lost = false;
    for (const auto& [id, op] : reductions_.all()) {
        unprepared |= !op->prepared;
        unready |= !op->neighbour_ready;
        decided |= op->decided;
        given_up |= op->given_up;
        ended |= op->end_serial != 0;
        lost |= !op->lost.empty();
    }
    state.flags(unprepared, unready, decided, given_up, ended, lost);
}

void Exchange::describe_edges(Packed& state) const {
    stripes_.describe(state);
    predecessors_.describe(state);
}

std::string Exchange::explain_operations() const {
    std::string text;
    for (const auto& [id, op] : reductions_.all()) {
        text += formatted(", op {} finals {}/{} credit {}{}{}{} computes {}", id.op & 0xFFFFFFFF, op->finals,
                          op->slices(), op->free_credit(), op->neighbour_ready ? "" : " neighbour not ready",
                          op->prepared ? "" : " not prepared", op->decided ? " decided" : "", op->computes);
    }
    return text;
}

void Exchange::check() const {
    stripes_.check();
    predecessors_.check();
    reductions_.check();
    for (const auto& [target, flow] : flows_) {
        std::uint32_t early = 0;
        for (const auto& [id, op] : reductions_.all()) early += op->id.successor == target ? op->eager_outstanding : 0;
        ASSERT(flow.eager_used == early);
    }
}

std::string Exchange::leftovers() const {
    return name_leftovers({{"edges", stripes_.all().size()},
                           {"flows", flows_.size()},
                           {"arrivals", predecessors_.arrivals_kept()},
                           {"reserves", predecessors_.reserves_kept()},
                           {"callers", predecessors_.callers()},
                           {"offers", offers_.size()},
                           {"pages of a plan", static_cast<std::size_t>(plan_pages_.targets_size()) +
                                                   static_cast<std::size_t>(plan_pages_.callers_size()) +
                                                   static_cast<std::size_t>(plan_pages_.offers_size())}});
}

}  // namespace pccl::core
