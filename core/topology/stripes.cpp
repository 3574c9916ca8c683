#include "core/topology/stripes.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/packed.hpp"
#include "core/base/probe.hpp"
#include "core/base/secret.hpp"
#include "core/links/waiting_room.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

namespace {

constexpr std::uint32_t stripes_default = 4;

}  // namespace

std::uint32_t Stripes::stripe_count() const {
    const std::uint32_t asked = config_.stripes == 0 ? stripes_default : config_.stripes;
    return std::min(asked, turn_.limits.stripes_max);
}

bool Stripes::in_run() const {
    return master_.state() == MasterLine::State::member || master_.state() == MasterLine::State::connecting;
}

// ---- what the master wants -----------------------------------------------------------------------------------------

std::set<Uuid> Stripes::planned(const google::protobuf::RepeatedPtrField<proto::DialTarget>& targets, bool all) {
    std::set<Uuid> named_before;
    for (auto& [target, edge] : edges_) {
        if (edge.planned) named_before.insert(target);
        edge.planned = false;
    }
    for (const auto& entry : targets) {
        Uuid target;
        Addresses addresses;
        if (!read(entry.peer(), target) || !read_addresses(entry, addresses) || target == who_.uuid) continue;
        Edge& edge = edges_[target];
        edge.planned = true;
        const Addresses before = edge.way.addresses();
        edge.way.aim(addresses);
        edge.pass = pass_from(entry);
        edge.single = entry.single();
        const auto port = static_cast<std::uint16_t>(std::min(entry.source_port(), 65'535u));
        const std::uint16_t from = std::exchange(edge.source_port, port);
        edge.stripes.resize(stripe_count());
        // A dial for a synchronization knows no port that an address translator lets through.
        const bool for_sync = !named_before.contains(target);
        if (for_sync && (before != addresses || from != edge.source_port)) withdraw_dials(edge);
    }
    return all ? std::set<Uuid>{} : named_before;
}

// The next ones begin at once.
void Stripes::withdraw_dials(Edge& edge) {
    for (Stripe& stripe : edge.stripes) {
        const auto link = links_.find(stripe.link);
        if (link == links_.end() || link->second.stage != Link::Stage::dialing) continue;
        PROBE(plan_overtakes_a_dial);
        links_.withdraw(std::exchange(stripe.link, 0));
    }
}

bool Stripes::wanted(const Uuid& target, const Edge& edge) const {
    if (links_.is_revoked(target)) return false;
    return edge.planned || edge.wanted_by_sync || owner_.edge_needed(target);
}

void Stripes::maintain_edges() {
    next_dial_ = never;
    if (!in_run()) return;
    std::vector<Uuid> targets;
    for (const auto& [target, edge] : edges_) targets.push_back(target);
    for (const Uuid& target : targets) {
        Edge& edge = edges_.at(target);
        if (!wanted(target, edge)) {
            close(target);
            continue;
        }
        for (std::size_t i = 0; i < edge.stripes.size(); ++i) {
            Stripe& stripe = edge.stripes[i];
            // One connection shows whether the target is there; the others follow it.
            if (stripe.link != 0 || (i > 0 && (edge.report != Edge::Report::up || edge.single))) continue;
            if (stripe.next_dial <= turn_.now)
                dial(target, edge, i);
            else
                next_dial_ = std::min(next_dial_, stripe.next_dial);
        }
    }
}

void Stripes::dial(const Uuid& target, Edge& edge, std::size_t index) {
    edge.answered = false;
    const bool from_any = edge.source_port == 0 || edge.way.at_other();
    const auto source_port = static_cast<std::uint16_t>(from_any ? 0 : edge.source_port + index);
    edge.stripes[index].link = links_.dial(Link::Purpose::outgoing, target, static_cast<std::uint32_t>(index),
                                           edge.way.next(), edge.pass, source_port);
    links_.at(edge.stripes[index].link).dial_longest = edge.way.patience(turn_.timeouts.dial, master_.round_trip());
}

void Stripes::forget_run() {
    edges_.clear();
    next_dial_ = never;
}

// ---- connections ---------------------------------------------------------------------------------------------------

void Stripes::opened(LinkId id, const Link& link) {
    proto::LinkMessage message;
    *message.mutable_hello() = links_.hello(link);
    const auto edge = edges_.find(link.remote);
    if (edge != edges_.end() && (!link.dialled || edge->second.source_port != 0))
        message.mutable_hello()->set_stripes(static_cast<std::uint32_t>(edge->second.stripes.size()));
    links_.send(id, message);
}

bool Stripes::offered(LinkId id, const Uuid& target, std::uint32_t stripe) {
    const auto it = edges_.find(target);
    if (it == edges_.end() || !wanted(target, it->second)) return false;
    Edge& edge = it->second;
    if (stripe >= edge.stripes.size() || (edge.single && stripe > 0)) return false;
    LinkId& place = edge.stripes[stripe].link;
    if (const auto own = links_.find(place); own != links_.end()) {
        if (own->second.stage != Link::Stage::dialing) return false;
        PROBE(offer_overtakes_a_dial);
        links_.withdraw(place);
    }
    PROBE(offer_taken);
    place = id;
    edge.answered = false;
    Link& link = links_.at(id);
    link.purpose = Link::Purpose::outgoing;
    link.remote = target;
    link.stripe = stripe;
    link.pass = edge.pass;
    opened(id, link);
    return true;
}

void Stripes::answered(LinkId id, Link& link, const proto::LinkMessage& message) {
    // Both ends have dialled, and the two dials became one connection. The answer to our hello follows.
    if (link.dialled && message.has_hello() && message.hello().offer()) {
        PROBE(dials_met);
        return;
    }
    const auto it = edges_.find(link.remote);
    if (!message.has_welcome() || message.welcome().from() != to_bytes(link.remote) ||
        !same_secret(link.pass.welcome, message.welcome().pass())) {
        if (it != edges_.end() && message.has_refusal()) it->second.answered = message.refusal().present();
        links_.refuse(id, message.has_refusal() ? to_text(cause_of(message.refusal().cause()))
                                                : "did not begin as a data link does");
        return;
    }
    link.stage = Link::Stage::open;
    link.last_progress = turn_.now;
    link.control_bytes = wire::control_limit(turn_.limits, message.welcome().control_bytes_max());
    if (it == edges_.end()) return;
    const Uuid target = link.remote;
    const Duration round_trip = turn_.now - link.opened;
    if (link.dialled) it->second.way.worked();
    if (it->second.report != Edge::Report::up) it->second.opened_before = std::exchange(it->second.opened, turn_.now);
    report(target, it->second, Edge::Report::up, "");
    maintain_edges();
    owner_.edge_opened(target, round_trip);
}

bool Stripes::lost(LinkId id, const Link& link, const std::string& reason) {
    const auto it = edges_.find(link.remote);
    if (it == edges_.end()) return false;
    Edge& edge = it->second;
    // Somebody else may be at the address. If the target itself refuses, it is there.
    const bool failed = link.dialled && !link.is_open() && !edge.answered;
    for (Stripe& stripe : edge.stripes) {
        if (stripe.link != id) continue;
        stripe.link = 0;
        // Opening is no progress. Only a connection that was useful, or that lasted, resets the back-off.
        const bool served = link.useful || turn_.now - link.opened > turn_.timeouts.peer;
        stripe.backoff = stripe.backoff == 0 || served ? turn_.timeouts.redial_min
                                                       : std::min(stripe.backoff * 2, turn_.timeouts.redial_longest());
        stripe.next_dial = turn_.now + stripe.backoff / 2 +
                           static_cast<Duration>(turn_.random.below(static_cast<std::uint64_t>(stripe.backoff)));
        if (failed && open_stripes(edge) == 0 && edge.way.failed()) {
            PROBE(other_address_next);
            stripe.next_dial = turn_.now;
        }
        next_dial_ = std::min(next_dial_, stripe.next_dial);
    }
    if (open_stripes(edge) != 0) {
        PROBE(stripe_lost_others_work);
        return true;
    }
    if (link.renewed) {
        // This is no evidence that the target died.
        edge.report = Edge::Report::none;
        report_unwanted(link.remote);
    } else {
        if (edge.report == Edge::Report::up) PROBE(last_stripe_lost);
        report(link.remote, edge, edge.answered ? Edge::Report::answered : Edge::Report::down, reason);
    }
    return false;
}

void Stripes::renew(LinkId id, const char* why) {
    Link& link = links_.at(id);
    links_.close_on_purpose(id, link);
    link.renewed = true;
    links_.lost(id, why, false);
}

void Stripes::close(const Uuid& target) {
    PROBE(unwanted_edge_closed);
    const Edge edge = std::move(edges_.at(target));
    edges_.erase(target);
    owner_.edge_closed(target);
    if (edge.report != Edge::Report::none) report_unwanted(target);
    for (const Stripe& stripe : edge.stripes) {
        const auto link = links_.find(stripe.link);
        if (link == links_.end()) continue;
        links_.close_on_purpose(stripe.link, link->second);
        links_.erase(link);
    }
}

std::size_t Stripes::open_stripes(const Edge& edge) const {
    return static_cast<std::size_t>(std::count_if(edge.stripes.begin(), edge.stripes.end(),
                                                  [&](const Stripe& stripe) { return links_.is_open(stripe.link); }));
}

// ---- reports -------------------------------------------------------------------------------------------------------

void Stripes::report(const Uuid& target, Edge& edge, Edge::Report report, const std::string& reason) {
    if (edge.report == report) return;
    edge.report = report;
    proto::EdgeReport message;
    message.set_peer(to_bytes(target));
    message.set_outgoing(true);
    message.set_up(report == Edge::Report::up);
    message.set_answered(report == Edge::Report::answered);
    message.set_reason(reason);
    master_.tell_edge(std::move(message));
}

// Reports that this peer closed the edge on purpose.
void Stripes::report_unwanted(const Uuid& target) {
    proto::EdgeReport message;
    message.set_peer(to_bytes(target));
    message.set_outgoing(true);
    message.set_unwanted(true);
    master_.tell_edge(std::move(message));
}

void Stripes::declare(const std::set<Uuid>& but) {
    for (auto& [target, edge] : edges_) {
        if (but.contains(target) || edge.report == Edge::Report::none || !edge.planned) continue;
        PROBE(edge_declared_again);
        const Edge::Report before = std::exchange(edge.report, Edge::Report::none);
        report(target, edge, before, "reported again");
    }
}

// ---- holders of a shared state -------------------------------------------------------------------------------------

void Stripes::aim_at_holder(const Uuid& peer, const Addresses& addresses, const LinkPass& pass) {
    const auto edge = edges_.find(peer);
    if (edge == edges_.end() || edge->second.planned) return;
    edge->second.way.aim(addresses);
    edge->second.pass = pass;
}

void Stripes::want_holder(const Uuid& peer, const Addresses& addresses, const LinkPass& pass, std::uint32_t sharers) {
    Edge& edge = edges_[peer];
    edge.wanted_by_sync = true;
    aim_at_holder(peer, addresses, pass);
    if (edge.stripes.empty()) edge.stripes.resize(std::max(1u, stripe_count() / sharers));
}

void Stripes::unwant_holder(const Uuid& peer) {
    if (const auto edge = edges_.find(peer); edge != edges_.end()) edge->second.wanted_by_sync = false;
}

void Stripes::unwant_all_holders() {
    for (auto& [peer, edge] : edges_) edge.wanted_by_sync = false;
}

std::vector<LinkId> Stripes::open_links_to(const Uuid& peer) const {
    std::vector<LinkId> open;
    const auto edge = edges_.find(peer);
    if (edge == edges_.end()) return open;
    for (const Stripe& stripe : edge->second.stripes) {
        if (links_.is_open(stripe.link)) open.push_back(stripe.link);
    }
    return open;
}

std::size_t Stripes::stripes_to(const Uuid& peer) const {
    const auto edge = edges_.find(peer);
    return edge == edges_.end() ? 1 : std::max<std::size_t>(edge->second.stripes.size(), 1);
}

// ---- observation ---------------------------------------------------------------------------------------------------

bool Stripes::dials_host(const Endpoint& remote) const {
    return std::any_of(edges_.begin(), edges_.end(),
                       [&](const auto& entry) { return entry.second.way.addresses().is_at(remote); });
}

void Stripes::describe(Packed& state) const {
    state.count(edges_.size(), 2);
    bool closed = false, stalled = false, reported_down = false;
    for (const auto& [target, edge] : edges_) {
        for (const Stripe& stripe : edge.stripes) {
            const auto link = links_.find(stripe.link);
            closed |= stripe.link == 0;
            stalled |= link != links_.end() && link->second.stalled;
        }
        reported_down |= edge.report == Edge::Report::down;
    }
    state.flags(closed, stalled, reported_down);
}

void Stripes::count(PeerStatistics& now) const {
    for (const auto& [target, edge] : edges_) {
        PeerStatistics::Edge& told = now.edges.emplace_back();
        told.peer = target;
        told.connections = static_cast<std::uint32_t>(edge.stripes.size());
        told.connections_open = static_cast<std::uint32_t>(open_stripes(edge));
    }
}

std::string Stripes::explain() const {
    std::string text;
    for (const auto& [target, edge] : edges_) {
        text += formatted(", edge to {} {}/{}", short_name(target), open_stripes(edge), edge.stripes.size());
    }
    return text;
}

void Stripes::check() const {
    for (const auto& [target, edge] : edges_) {
        for (std::size_t i = 0; i < edge.stripes.size(); ++i) {
            if (edge.stripes[i].link == 0) continue;
            const auto link = links_.find(edge.stripes[i].link);
            ASSERT(link != links_.end() && link->second.purpose == Link::Purpose::outgoing);
            ASSERT(link->second.remote == target && link->second.stripe == i);
        }
    }
}

}  // namespace pccl::core
