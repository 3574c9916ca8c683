#include "core/links/link_table.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/links/waiting_room.hpp"

#include <algorithm>

namespace pccl::core {

LinkId LinkTable::dial(Link::Purpose purpose, const Uuid& remote, std::uint32_t stripe, const Endpoint& target,
                       const LinkPass& pass) {
    const LinkId id = next_link_;
    next_link_ += 2;
    Link& link = links_[id];
    link.purpose = purpose;
    link.stage = Link::Stage::dialing;
    link.remote = remote;
    link.stripe = stripe;
    link.pass = pass;
    link.opened = link.last_received = link.last_beat = link.last_progress = link.test.dialled = turn_.now;
    turn_.add(OpenLink{id, target});
    return id;
}

void LinkTable::accept(LinkId id, const Endpoint& remote, bool known) {
    Link& link = links_[id];
    link.from = remote;
    link.known = known;
    link.opened = link.last_received = link.last_beat = link.last_progress = turn_.now;
}

LinkId LinkTable::gives_way(bool known) const {
    std::vector<WaitingLink> waiting;
    for (const auto& [id, link] : links_) {
        if (link.purpose == Link::Purpose::incoming && !link.is_open())
            waiting.push_back({id, link.from, link.opened, link.known});
    }
    return who_gives_way(waiting, known, turn_.limits.unregistered_links_max);
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
            if (turn_.now - link.opened > (link.purpose == Link::Purpose::master ? master_dial : t.dial)) {
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
        } else if (turn_.now - link.last_beat >= t.peer / 5) {
            // Also on a link that carries other messages all the time: a heartbeat tells what they do not.
            link.last_beat = turn_.now;
            beat(id, link);
        }
    }
    return dead;
}

void LinkTable::slept(Duration time) {
    for (auto& [id, link] : links_) {
        for (Instant* clock : {&link.last_received, &link.opened, &link.last_progress, &link.silent_since,
                               &link.answered_at, &link.frame_began})
            *clock = std::min(turn_.now, *clock + time);
    }
}

}  // namespace pccl::core
