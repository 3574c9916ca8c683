#include "core/all_reduce/exchange.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/leftovers.hpp"
#include "core/base/packed.hpp"
#include "core/base/probe.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace pccl::core {

// ---- the master -----------------------------------------------------------------------------------------------------

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
        receiver_.forget_dead_early();
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
    receiver_.forget_dead_early();
    return why;
}

void Exchange::successor_unfinished(OpId id) {
    const Operation* op = reductions_.find(id);
    if (op != nullptr) reductions_.successor_unfinished(id, progress_.sends_in_vain(*op));
}

void Exchange::membership_over(const LinkTable::Map& closed) {
    for (const auto& [id, link] : closed) {
        if (link.receiving.cell != Operation::none) predecessors_.free_cell(link.remote, link.receiving.cell);
    }
    plan_pages_.Clear();
    stripes_.forget_run();
    offers_.forget_run();
    sender_.forget_run();
    predecessors_.forget_run();
    reductions_.forget_run();
}

// ---- payload --------------------------------------------------------------------------------------------------------

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
        } else {
            sender_.left(event, link, sending);
        }
    }
    sync_.send_next_chunk(event.link, link);
    if (link.purpose == Purpose::outgoing) sender_.pump_edge(link.remote);
}

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
    if (!chunk) return receiver_.on_bulk(event.link, link, event.header);
    if (!sync_.chunk_arrives(event.link, link, event.header)) receiver_.discard_dead(event.link, link, event.header);
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
    if (receiving.phase != 2)
        receiver_.landed(event, link, receiving, landed);
    else if (!receiving.dropped)
        sync_.chunk_landed(event.link, receiving, landed);
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

void Exchange::payload_moved(LinkId id, Link& link, std::uint32_t arrived) {
    if (link.receiving.op != 0 && link.receiving.phase == 2 && !link.receiving.dropped)
        return sync_.chunk_moved(link, arrived);
    receiver_.payload_moved(id, link, arrived);
}

// ---- neighbours -----------------------------------------------------------------------------------------------------

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
    sender_.slices_lost(id, link.remote);
    if (stripes_.lost(id, link, reason)) sender_.pump_edge(link.remote);
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
    sender_.edge_opened(target, round_trip);
    sync_.connected();
}

bool Exchange::edge_needed(const Uuid& target) const {
    return std::any_of(reductions_.all().begin(), reductions_.all().end(), [&](const auto& entry) {
        return !entry.second->decided && entry.second->id.successor == target;
    });
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

// ---- operations -----------------------------------------------------------------------------------------------------

void Exchange::operation_begins(Operation& op) {
    predecessors_.started(op.id);
    sender_.begins(op);
}

void Exchange::operation_dropped(Operation& op) {
    links_.release(op.id.id);
    sender_.over(op);
    // The neighbour keeps what it has received until it hears this.
    const std::vector<LinkId> open = stripes_.open_links_to(op.id.successor);
    if (!open.empty()) links_.send(open.front(), heartbeat());
}

void Exchange::operation_prepared(Operation& op) {
    sender_.prepared(op);
    receiver_.prepared(op);
}

// Cancels all sends of the operation and redirects its landings, so its memory is free at once.
void Exchange::operation_decided(Operation& op) {
    links_.release(op.id.id);
    for (auto& [id, link] : links_) {
        if (link.timed.op == op.id.id) link.timed = {};
    }
    sender_.over(op);
    receiver_.over(op);
}

// ---- time -----------------------------------------------------------------------------------------------------------

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
    sender_.leave_out(time);
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
    const bool starved = !session_.master_open() ||
                         std::any_of(reductions_.all().begin(), reductions_.all().end(), [](const auto& entry) {
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
    sender_.tick();
    receiver_.repeat_ready();
    reopen_filled_links();
    judge_progress();
}

// ---- observation ----------------------------------------------------------------------------------------------------

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
    sender_.check();
}

std::string Exchange::leftovers() const {
    return name_leftovers({{"edges", stripes_.all().size()},
                           {"flows", sender_.flows().size()},
                           {"arrivals", predecessors_.arrivals_kept()},
                           {"reserves", predecessors_.reserves_kept()},
                           {"callers", predecessors_.callers()},
                           {"offers", offers_.size()},
                           {"pages of a plan", static_cast<std::size_t>(plan_pages_.targets_size()) +
                                                   static_cast<std::size_t>(plan_pages_.callers_size()) +
                                                   static_cast<std::size_t>(plan_pages_.offers_size())}});
}

}  // namespace pccl::core
