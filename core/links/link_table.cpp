#include "core/links/link_table.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/links/waiting_room.hpp"

#include <algorithm>

namespace pccl::core {

LinkId LinkTable::dial(Link::Purpose purpose, const Uuid& remote, std::uint32_t stripe, const Endpoint& target,
                       const LinkPass& pass, std::uint16_t source_port) {
    const LinkId id = next_link_;
    next_link_ += 2;
    Link& link = links_[id];
    link.purpose = purpose;
    link.dialled = true;
    link.stage = Link::Stage::dialing;
    link.remote = remote;
    link.stripe = stripe;
    link.pass = pass;
    link.opened = link.last_received = link.last_beat = link.last_progress = turn_.now;
    turn_.add(OpenLink{id, target, remote, source_port, purpose == Link::Purpose::offer});
    return id;
}

void LinkTable::turn_away(LinkId id, const std::string& why, bool present) {
    turn_.log(LogLevel::info, "refused a data connection: " + why);
    proto::LinkMessage message;
    write(make_cause<CauseKind::text>(why), *message.mutable_refusal()->mutable_cause());
    message.mutable_refusal()->set_protocol_version(wire::protocol_version);
    message.mutable_refusal()->set_present(present);
    send(id, message);
    turn_.add(CloseLink{id, true});
    if (links_.at(id).dialled)
        lost(id, why, false);
    else
        erase(id);
}

proto::LinkHello LinkTable::hello(const Link& link) const {
    proto::LinkHello hello;
    hello.set_protocol_version(wire::protocol_version);
    hello.set_run_id(to_bytes(who_.run));
    hello.set_from(to_bytes(who_.uuid));
    hello.set_to(to_bytes(link.remote));
    hello.set_stripe(link.stripe);
    hello.set_pass(to_bytes(link.pass.hello));
    hello.set_control_bytes_max(turn_.limits.control_bytes_max);
    hello.set_offer(link.purpose == Link::Purpose::offer);
    return hello;
}

void LinkTable::drop(LinkId id, const std::string& reason) {
    if (!links_.contains(id)) return;
    turn_.add(CloseLink{id, false});
    lost(id, reason, false);
}

void LinkTable::withdraw(LinkId id) {
    const std::size_t erased = links_.erase(id);
    ASSERT(erased == 1);
    turn_.add(CloseLink{id, false});
}

void LinkTable::refuse(LinkId id, const std::string& reason) {
    ++refused_;
    drop(id, reason);
}

void LinkTable::lost(LinkId id, const std::string& reason, bool by_remote) {
    const auto found = links_.find(id);
    if (found == links_.end()) return;
    const Link link = std::move(found->second);
    links_.erase(found);
    owner_.link_lost(id, link, reason, by_remote);
}

void LinkTable::accept(const LinkAccepted& event, bool known) {
    const LinkId id = event.link;
    const Endpoint& remote = event.remote;
    if (revoked_.contains(event.identity)) {
        PROBE(data_link_of_a_revoked_peer);
        ++refused_;
        turn_.add(CloseLink{id, false});
        return;
    }
    std::vector<WaitingLink> waiting;
    for (const auto& [other, link] : links_) {
        if (link.purpose == Link::Purpose::incoming && !link.is_open())
            waiting.push_back({other, link.from, link.opened, link.known});
    }
    const Room room{turn_.limits.unregistered_links_max, 0, turn_.timeouts.place()};
    const Place place = place_for(remote, known, waiting, room, turn_.now);
    if (!place.free) {
        PROBE(stranger_turned_away);
        ++refused_;
        turn_.add(CloseLink{id, false});
        return;
    }
    if (place.gives_way != 0) {
        PROBE(stranger_gave_way);
        refuse(place.gives_way, "gave way to a newer connection");
    }
    Link& link = links_[id];
    link.from = remote;
    link.identity = event.identity;
    link.known = known;
    link.opened = link.last_received = link.last_beat = link.last_progress = turn_.now;
}

std::string LinkTable::why_not_the_caller(const Link& link, const Uuid& from) const {
    if (!link.identity.is_nil() && link.identity != from) {
        PROBE(data_link_of_another_identity);
        return formatted("it claims to be peer {}, but its certificate names peer {}", short_name(from),
                         short_name(link.identity));
    }
    if (revoked_.contains(from)) {
        PROBE(data_link_of_a_revoked_peer);
        return formatted("the certificate of peer {} was revoked", short_name(from));
    }
    return {};
}

void LinkTable::revoke(const Uuid& peer) {
    if (revoked_.size() < turn_.limits.peers_max) revoked_.insert(peer);
    std::vector<LinkId> ended;
    for (const auto& [id, link] : links_) {
        // One that has said nothing yet is known by its identity.
        const bool with_it = link.remote == peer || link.identity == peer;
        if (link.purpose != Link::Purpose::master && with_it) ended.push_back(id);
    }
    for (const LinkId id : ended) drop(id, "the certificate of the other end was revoked");
}

void LinkTable::send_encoded(LinkId id, const Link& link, std::string body) {
    ASSERT(body.size() <= link.control_bytes);
    turn_.add(SendControl{id, std::move(body)});
}

std::vector<std::pair<LinkId, const char*>> LinkTable::examine(Duration master_dial,
                                                               const std::function<void(LinkId, Link&)>& beat) {
    const Timeouts& t = turn_.timeouts;
    std::vector<std::pair<LinkId, const char*>> dead;
    for (auto& [id, link] : links_) {
        if (link.stage == Link::Stage::dialing) {
            const Duration usual = link.purpose == Link::Purpose::master ? master_dial : t.dial;
            if (turn_.now - link.opened > (link.dial_longest != 0 ? link.dial_longest : usual)) {
                PROBE(dial_timed_out);
                dead.emplace_back(id, "did not answer the dial");
            }
        } else if (link.stage == Link::Stage::greeting) {
            if (turn_.now - link.opened > t.handshake) {
                PROBE(handshake_timed_out);
                dead.emplace_back(id, "said nothing within the handshake time");
            }
        } else if (turn_.now - link.last_received > t.peer) {
            PROBE(link_silent);
            dead.emplace_back(id, "was silent for too long");
        } else if (turn_.now - link.last_beat >= t.heartbeat()) {
            // Sent even if the link carries other messages all the time: a heartbeat contains data that they do not.
            link.last_beat = turn_.now;
            beat(id, link);
        }
    }
    return dead;
}

void LinkTable::release(OpId op) {
    for (auto& [id, link] : links_) {
        if (link.sending.op == op && !link.sending.dropped) {
            PROBE(abort_cancels_send);
            link.sending.dropped = true;
            turn_.add(CancelSend{id});
        }
        if (link.receiving.op == op && !link.receiving.dropped && link.receiving.cell == Transfer::no_cell) {
            PROBE(abort_redirects_receive);
            link.receiving.dropped = true;
            turn_.add(RedirectReceive{id});
        }
    }
}

void LinkTable::slept(Duration time) {
    for (auto& [id, link] : links_) {
        for (Instant* clock : {&link.last_received, &link.opened, &link.last_progress, &link.silent_since,
                               &link.answered_at, &link.left_at, &link.frame_began})
            *clock = std::min(turn_.now, *clock + time);
    }
}

void LinkTable::close_on_purpose(LinkId id, const Link& link) {
    if (link.stage != Link::Stage::dialing) {
        proto::LinkMessage message;
        message.set_goodbye(true);
        send(id, message);
    }
    turn_.add(CloseLink{id, true});
}

void LinkTable::check() const {
    for (const auto& [id, link] : links_) {
        ASSERT(id != 0 && (id % 2 == 1) == link.dialled);
        ASSERT(!link.dialled || (id < next_link_ && link.purpose != Link::Purpose::test_in));
        ASSERT(link.dialled || link.purpose == Link::Purpose::incoming || link.purpose == Link::Purpose::outgoing ||
               link.purpose == Link::Purpose::test_in);
        ASSERT(link.purpose != Link::Purpose::offer || !link.is_open());
        ASSERT(link.control_bytes >= control_bytes_least);
        ASSERT(link.purpose == Link::Purpose::master || !link.is_open() || !link.remote.is_nil());
        ASSERT(link.is_open() || (link.sending.op == 0 && link.serve.empty()));
    }
}

}  // namespace pccl::core
