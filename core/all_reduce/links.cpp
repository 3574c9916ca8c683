// Data links: the stripes we dial to a neighbour, the ones neighbours dial to us, and what the master is told of both.
#include "core/all_reduce/exchange.hpp"
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/links/waiting_room.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

namespace {

constexpr std::uint32_t stripes_default = 4;

}  // namespace

std::uint32_t Exchange::stripe_count() const {
    const std::uint32_t asked = config_.stripes == 0 ? stripes_default : config_.stripes;
    return std::min(asked, turn_.limits.stripes_max);
}

void Exchange::on_plan(const proto::DialPlan& page) {
    if (static_cast<std::uint32_t>(plan_pages_.targets_size() + page.targets_size()) > turn_.limits.peers_max ||
        static_cast<std::uint32_t>(plan_pages_.callers_size() + page.callers_size()) > turn_.limits.peers_max) {
        session_.refuse("the master sent a plan with more connections than there can be peers");
        return;
    }
    plan_pages_.MergeFrom(page);
    if (page.more()) return;
    proto::DialPlan plan;
    plan.Swap(&plan_pages_);
    // A connection that is named anew is reported, whatever was told before: the master forgets those that it does not want.
    // After a welcome it may know none of them. Nothing else is told again, or a plan that grows would cost its square.
    const bool all = std::exchange(tell_all_, false);
    if (all && session_.state() == State::member) {
        // All that was decided before the welcome has been told: what neighbours sent early for an operation of an earlier
        // incarnation, of which a lost journal knows nothing, is for nobody.
        settled_ops_ = std::max(settled_ops_, OpId{session_.incarnation()} << 32);
        forget_dead_early();
    }
    std::set<Uuid> named_before;
    for (auto& [target, edge] : edges_) {
        if (edge.planned && !all) named_before.insert(target);
        edge.planned = false;
    }
    for (const auto& entry : plan.targets()) {
        Uuid target;
        Endpoint endpoint;
        if (!read(entry.peer(), target) || !read(entry.address(), endpoint) || target == who_.uuid) continue;
        Edge& edge = edges_[target];
        edge.planned = true;
        edge.target = endpoint;
        edge.pass = pass_from(entry);
        edge.single = entry.single();
        edge.stripes.resize(stripe_count());
    }
    const std::set<Uuid> callers_before = all ? std::set<Uuid>{} : callers_;
    callers_.clear();
    for (const std::string& caller : plan.callers()) {
        Uuid from;
        if (callers_.size() < turn_.limits.peers_max && read(caller, from)) callers_.insert(from);
    }
    for (auto& [remote, reserve] : reserves_) {
        if (reserve.links.empty()) continue;
        const bool waits = callers_.contains(remote);
        if (!waits) prepare_reserve(remote);
        if (waits ? !callers_before.contains(remote) : all) report_incoming(remote, true, false);
    }
    declare_edges(named_before);
    maintain_edges();
}

bool Exchange::edge_used(const Uuid& target, const Edge& edge) const {
    if (edge.planned || edge.wanted_by_sync) return true;
    return std::any_of(ops_.begin(), ops_.end(), [&](const auto& entry) {
        return !entry.second->decided && entry.second->id.successor == target;
    });
}

void Exchange::maintain_edges() {
    next_dial_ = never;
    if (!session_.in_run()) return;
    std::vector<Uuid> targets;
    for (const auto& [target, edge] : edges_) targets.push_back(target);
    for (const Uuid& target : targets) {
        Edge& edge = edges_.at(target);
        if (!edge_used(target, edge)) {
            close_edge(target);
            continue;
        }
        for (std::size_t i = 0; i < edge.stripes.size(); ++i) {
            Stripe& stripe = edge.stripes[i];
            // One connection shows whether the target is there; the others follow it.
            if (stripe.link != 0 || (i > 0 && (edge.report != Edge::Report::up || edge.single))) continue;
            if (stripe.next_dial <= turn_.now)
                dial_stripe(target, edge, i);
            else
                next_dial_ = std::min(next_dial_, stripe.next_dial);
        }
    }
}

void Exchange::dial_stripe(const Uuid& target, Edge& edge, std::size_t index) {
    edge.answered = false;
    edge.stripes[index].link =
        links_.dial(Purpose::outgoing, target, static_cast<std::uint32_t>(index), edge.target, edge.pass);
}

void Exchange::link_lost(LinkId id, const Link& link, const std::string& reason) {
    if (link.receiving.op != 0) {
        PROBE(lost_while_landing);
        PayloadLanded never_landed;
        never_landed.verdict = PayloadLanded::Verdict::discarded;
        links_.put_back(id, link);
        links_.at(id).stage = Stage::dialing;  // nothing is sent on it any more
        never_landed.link = id;
        on_landed(never_landed);
        links_.erase(id);
    }
    if (link.purpose == Purpose::outgoing)
        stripe_lost(id, link, reason);
    else
        incoming_lost(id, link);
}

void Exchange::membership_over(const LinkTable::Map& closed) {
    for (const auto& [id, link] : closed) {
        if (link.receiving.cell != Operation::none) free_cell(link.remote, link.receiving.cell);
    }
    edges_.clear();
    std::vector<Uuid> remotes;
    for (auto& [remote, reserve] : reserves_) {
        reserve.links.clear();
        remotes.push_back(remote);
    }
    for (const Uuid& remote : remotes) {
        const std::vector<Early> slices = std::move(reserves_.at(remote).slices);
        reserves_.at(remote).slices.clear();
        for (const Early& early : slices) {
            if (early.landed) free_cell(remote, early.cell);
        }
        free_cell(remote, Operation::none);
    }
    arrivals_.clear();
    next_dial_ = never;
    link_keys_.forget();
    callers_.clear();
    highest_op_ = settled_ops_ = 0;
}

bool Exchange::knows_host(const Endpoint& remote) const {
    return std::any_of(edges_.begin(), edges_.end(),
                       [&](const auto& entry) { return same_host(entry.second.target, remote); }) ||
           std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
               return entry.second.purpose == Purpose::incoming && entry.second.stage == Stage::open &&
                      same_host(entry.second.from, remote);
           });
}

void Exchange::welcomed(const Secret& link_key) {
    link_keys_.renew(link_key);
    tell_all_ = true;
    plan_pages_.Clear();
}

// ---- to holders of a shared state --------------------------------------------------------------------------------------

void Exchange::aim_at_holder(const Uuid& peer, const Endpoint& endpoint, const LinkPass& pass) {
    const auto edge = edges_.find(peer);
    if (edge == edges_.end() || edge->second.planned) return;
    edge->second.target = endpoint;
    edge->second.pass = pass;
}

void Exchange::want_holder(const Uuid& peer, const Endpoint& endpoint, const LinkPass& pass, std::uint32_t sharers) {
    Edge& edge = edges_[peer];
    edge.wanted_by_sync = true;
    aim_at_holder(peer, endpoint, pass);
    if (edge.stripes.empty()) edge.stripes.resize(std::max(1u, stripe_count() / sharers));
}

void Exchange::unwant_holder(const Uuid& peer) {
    if (const auto edge = edges_.find(peer); edge != edges_.end()) edge->second.wanted_by_sync = false;
}

void Exchange::unwant_all_holders() {
    for (auto& [peer, edge] : edges_) edge.wanted_by_sync = false;
}

std::vector<LinkId> Exchange::open_links_to(const Uuid& peer) const {
    std::vector<LinkId> open;
    const auto edge = edges_.find(peer);
    if (edge == edges_.end()) return open;
    for (const Stripe& stripe : edge->second.stripes) {
        if (links_.is_open(stripe.link)) open.push_back(stripe.link);
    }
    return open;
}

std::size_t Exchange::stripes_to(const Uuid& peer) const {
    const auto edge = edges_.find(peer);
    return edge == edges_.end() ? 1 : std::max<std::size_t>(edge->second.stripes.size(), 1);
}

// ---- opening and closing -----------------------------------------------------------------------------------------------

void Exchange::close_edge(const Uuid& target) {
    PROBE(unwanted_edge_closed);
    const Edge edge = std::move(edges_.at(target));
    edges_.erase(target);
    if (edge.report != Edge::Report::none) report_unwanted(target);
    for (const Stripe& stripe : edge.stripes) {
        const auto link = links_.find(stripe.link);
        if (link == links_.end()) continue;
        close_on_purpose(stripe.link, link->second);
        links_.erase(link);
    }
}

// The other end must not take it for a death.
void Exchange::close_on_purpose(LinkId id, const Link& link) {
    if (link.stage != Stage::dialing) {
        proto::LinkMessage message;
        message.set_goodbye(true);
        links_.send(id, message);
    }
    turn_.add(CloseLink{id, true});
}

void Exchange::on_data_link_opened(LinkId id, Link& link) {
    proto::LinkMessage message;
    *message.mutable_hello() = links_.hello(link);
    links_.send(id, message);
}

void Exchange::report_edge(const Uuid& target, Edge& edge, Edge::Report report, const std::string& reason) {
    if (edge.report == report) return;
    edge.report = report;
    proto::EdgeReport message;
    message.set_peer(to_bytes(target));
    message.set_outgoing(true);
    message.set_up(report == Edge::Report::up);
    message.set_answered(report == Edge::Report::answered);
    message.set_reason(reason);
    session_.tell_edge(std::move(message));
}

// What was open is closed on purpose.
void Exchange::report_unwanted(const Uuid& target) {
    proto::EdgeReport message;
    message.set_peer(to_bytes(target));
    message.set_outgoing(true);
    message.set_unwanted(true);
    session_.tell_edge(std::move(message));
}

void Exchange::report_incoming(const Uuid& remote, bool up, bool unwanted) {
    proto::EdgeReport message;
    message.set_peer(to_bytes(remote));
    message.set_up(up);
    message.set_unwanted(unwanted);
    session_.tell_edge(std::move(message));
}

void Exchange::declare_edges(const std::set<Uuid>& but) {
    for (auto& [target, edge] : edges_) {
        if (but.contains(target) || edge.report == Edge::Report::none || !edge.planned) continue;
        PROBE(edge_declared_again);
        const Edge::Report report = std::exchange(edge.report, Edge::Report::none);
        report_edge(target, edge, report, "reported again");
    }
}

void Exchange::stripe_lost(LinkId id, const Link& link, const std::string& reason) {
    // Slices that were not acknowledged go again on another stripe; a second copy never lands twice.
    for (auto& [op_id, op] : ops_) {
        if (op->decided || op->id.successor != link.remote) continue;
        for (int phase = 0; phase < 2; ++phase) {
            for (std::uint32_t slice = 0; slice < op->slices(); ++slice) {
                const Half& half = op->half(phase, slice);
                if (half.out_link == id && (half.out == OutState::sending || half.out == OutState::sent)) {
                    PROBE(stripe_lost_slice_again);
                    op->lost_again(phase, slice, turn_.now, turn_.timeouts.peer / 8);
                }
            }
        }
    }
    const auto it = edges_.find(link.remote);
    if (it == edges_.end()) return;
    Edge& edge = it->second;
    bool open = false;
    for (Stripe& stripe : edge.stripes) {
        if (stripe.link == id) {
            stripe.link = 0;
            // Opening is no progress: only a connection that was of use, or stayed, lets the next dial come soon.
            const bool served = link.useful || turn_.now - link.opened > turn_.timeouts.peer;
            stripe.backoff = stripe.backoff == 0 || served
                                 ? turn_.timeouts.redial_min
                                 : std::min(stripe.backoff * 2, turn_.timeouts.redial_longest());
            stripe.next_dial = turn_.now + stripe.backoff / 2 +
                               static_cast<Duration>(turn_.random.below(static_cast<std::uint64_t>(stripe.backoff)));
            next_dial_ = std::min(next_dial_, stripe.next_dial);
        } else if (stripe.link != 0) {
            const auto other = links_.find(stripe.link);
            open = open || (other != links_.end() && other->second.stage == Stage::open);
        }
    }
    if (open) {
        PROBE(stripe_lost_others_work);
        pump_edge(link.remote);
    } else if (link.renewed) {
        // No word of anybody's death.
        edge.report = Edge::Report::none;
        report_unwanted(link.remote);
    } else {
        if (edge.report == Edge::Report::up) PROBE(last_stripe_lost);
        report_edge(link.remote, edge, edge.answered ? Edge::Report::answered : Edge::Report::down, reason);
    }
}

void Exchange::incoming_lost(LinkId id, const Link& link) {
    const auto it = reserves_.find(link.remote);
    if (link.stage != Stage::open || it == reserves_.end()) return;
    it->second.links.erase(id);
    if (it->second.links.empty()) {
        if (const auto arrivals = arrivals_.find(link.remote); arrivals != arrivals_.end())
            arrivals->second.starved = false;
        PROBE(neighbour_vanished);
        report_incoming(link.remote, false, link.goodbye);
        free_cell(link.remote, Operation::none);
        return;
    }
    // What was told on the lost link may not have arrived.
    for (const auto& [op_id, op] : ops_) {
        if (!op->prepared || op->decided || op->id.predecessor != link.remote) continue;
        PROBE(ready_told_again);
        tell_ready(*op);
    }
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
        if (link.purpose == Purpose::incoming && message.has_hello()) {
            on_link_hello(id, message.hello());
        } else if (link.purpose == Purpose::outgoing && message.has_welcome() &&
                   message.welcome().from() == to_bytes(link.remote) &&
                   same_secret(link.pass.welcome, message.welcome().pass())) {
            link.stage = Stage::open;
            link.last_progress = turn_.now;
            link.control_bytes = wire::control_limit(turn_.limits, message.welcome().control_bytes_max());
            const auto it = edges_.find(link.remote);
            if (it == edges_.end()) return;
            const Uuid target = link.remote;
            if (it->second.report != Edge::Report::up)
                it->second.opened_before = std::exchange(it->second.opened, turn_.now);
            report_edge(target, it->second, Edge::Report::up, "");
            maintain_edges();
            pump_edge(target);
            sync_.connected();
        } else {
            if (const auto it = edges_.find(link.remote); it != edges_.end() && message.has_refusal())
                it->second.answered = message.refusal().present();
            links_.refuse(id, message.has_refusal() ? message.refusal().text() : "did not begin as a data link does");
        }
        return;
    }
    if (link.purpose == Purpose::test_in && !message.has_heartbeat()) {
        links_.refuse(id, "sent a message that does not fit a test");
        return;
    }
    switch (message.kind_case()) {
    case proto::LinkMessage::kHeartbeat:
        neighbour_started(link.remote, message.started());
        if (reserves_.contains(link.remote)) {
            Arrivals& arrivals = arrivals_[link.remote];
            if (message.heartbeat()) PROBE(neighbour_starved);
            // Afterwards it gets time to send on what it waited for.
            if (message.heartbeat()) arrivals.starved_at = turn_.now;
            arrivals.starved = message.heartbeat();
        }
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

void Exchange::on_link_hello(LinkId id, const proto::LinkHello& hello) {
    Uuid from;
    std::optional<LinkPass> pass;
    std::string refusal;
    LinkId gives_way = 0;
    if (hello.protocol_version() != wire::protocol_version) {
        refusal = "this peer speaks protocol version " + std::to_string(wire::protocol_version) +
                  ", the other one version " + std::to_string(hello.protocol_version());
    } else if (hello.to() != to_bytes(who_.uuid)) {
        refusal = "the peer that was dialled is not at this address any more";
    } else if (!session_.welcomed() || hello.run_id() != to_bytes(who_.run)) {
        // The plan that names us may overtake our welcome.
        refusal = "the peer that was dialled does not take part in this run yet";
    } else if (!read(hello.from(), from) || from == who_.uuid) {
        refusal = "impossible hello";
    } else if (pass = link_keys_.pass_of(from, hello.pass()); !pass) {
        // Its pass may also be one that a master gave out which was restarted meanwhile: it is told another one.
        PROBE(data_link_without_proof);
        refusal = "whoever dialled does not prove to be peer " + short_name(from);
    } else if (!reserves_.contains(from) && reserves_.size() >= turn_.limits.peers_max) {
        refusal = "too many connections";
    } else if (reserves_.contains(from) && reserves_.at(from).links.size() >= turn_.limits.stripes_max) {
        // Who dials anew what it knows to be lost: here it may still look open, but nothing comes over it.
        gives_way = quietest_link(reserves_.at(from));
        if (gives_way == 0) refusal = "too many connections";
    }
    if (!refusal.empty()) {
        PROBE(data_link_refused);
        links_.count_refused();
        turn_.log(LogLevel::info, "refused a data connection: " + refusal);
        proto::LinkMessage message;
        message.mutable_refusal()->set_text(refusal);
        message.mutable_refusal()->set_protocol_version(wire::protocol_version);
        message.mutable_refusal()->set_present(hello.to() == to_bytes(who_.uuid));
        links_.send(id, message);
        links_.erase(id);
        turn_.add(CloseLink{id, true});
        return;
    }
    if (hello.test() != 0) return probe_.accept(id, from, hello, *pass);
    Link& link = links_.at(id);
    link.remote = from;
    link.stage = Stage::open;
    link.control_bytes = wire::control_limit(turn_.limits, hello.control_bytes_max());
    Reserve& reserve = reserves_[from];
    if (reserve.links.empty()) {
        // It gets the time to say that it waits itself, and to send what it could not.
        Arrivals& arrivals = arrivals_[from];
        if (arrivals.at != 0) PROBE(predecessor_back);
        arrivals.starved_at = turn_.now;
        report_incoming(from, true, false);
    }
    reserve.links.insert(id);
    if (!callers_.contains(from)) prepare_reserve(from);
    proto::LinkMessage message;
    message.mutable_welcome()->set_from(to_bytes(who_.uuid));
    message.mutable_welcome()->set_pass(to_bytes(pass->welcome));
    message.mutable_welcome()->set_control_bytes_max(turn_.limits.control_bytes_max);
    links_.send(id, message);
    if (gives_way != 0) {
        PROBE(silent_stripe_gives_way);
        links_.drop(gives_way, "the neighbour has dialled anew");
    }
    for (const auto& [op_id, op] : ops_) {
        if (op->prepared && !op->decided && op->id.predecessor == from) tell_ready(*op);
    }
}

// The connection of a neighbour over which nothing has come for the longest time, if heartbeats are missing on it; else 0.
LinkId Exchange::quietest_link(const Reserve& reserve) const {
    const auto quietest = std::min_element(reserve.links.begin(), reserve.links.end(), [&](LinkId a, LinkId b) {
        return links_.at(a).last_received < links_.at(b).last_received;
    });
    const bool silent =
        quietest != reserve.links.end() && turn_.now - links_.at(*quietest).last_received > turn_.timeouts.peer / 2;
    return silent ? *quietest : 0;
}

// Memory for what a neighbour sends early. One that waits to be admitted sends nothing: many of them cost no memory.
void Exchange::prepare_reserve(const Uuid& remote) {
    Reserve& reserve = reserves_.at(remote);
    if (reserve.buffer != 0 || cells() == 0 || !reserve.free_cells.empty()) return;
    reserve.buffer =
        memory_.request(static_cast<std::uint64_t>(cells()) * turn_.limits.slice_bytes, ReserveMemory{remote});
    for (std::uint32_t cell = cells(); cell > 0; --cell) reserve.free_cells.push_back(cell - 1);
}

}  // namespace pccl::core
