#include "core/topology/offers.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/links/waiting_room.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <set>

namespace pccl::core {

void Offers::planned(const google::protobuf::RepeatedPtrField<proto::DialTarget>& offers) {
    std::set<Uuid> named;
    for (const auto& entry : offers) {
        Uuid caller;
        Addresses addresses;
        if (!read(entry.peer(), caller) || !read_addresses(entry, addresses)) continue;
        named.insert(caller);
        Offer& offer = offers_[caller];
        offer.target = addresses;
        offer.pass = pass_from(entry);
        offer.source_port = static_cast<std::uint16_t>(std::min(entry.source_port(), 65'535u));
        offer.single = entry.single();
    }
    for (auto it = offers_.begin(); it != offers_.end();) {
        if (named.contains(it->first)) {
            ++it;
            continue;
        }
        for (Attempt& attempt : it->second.attempts) give_up(attempt);
        it = offers_.erase(it);
    }
}

void Offers::told(const Uuid& caller, std::uint32_t stripes) {
    const auto offer = offers_.find(caller);
    if (offer == offers_.end() || stripes == 0) return;
    offer->second.stripes = std::min(stripes, turn_.limits.stripes_max);
}

// A connection that the caller uses already is not an offer any more, and stays.
void Offers::give_up(Attempt& attempt) {
    const auto link = links_.find(attempt.link);
    if (link != links_.end() && link->second.purpose == Link::Purpose::offer) links_.withdraw(attempt.link);
    attempt.link = 0;
}

void Offers::maintain() {
    next_dial_ = never;
    const MasterLine::State state = master_.state();
    if (state != MasterLine::State::member && state != MasterLine::State::connecting) return;
    for (auto& [caller, offer] : offers_) maintain(caller, offer);
}

void Offers::maintain(const Uuid& caller, Offer& offer) {
    const std::uint32_t stripes = offer.single ? 1 : offer.stripes;
    if (offer.attempts.size() < 2 * stripes) offer.attempts.resize(2 * stripes);
    for (std::size_t i = 0; i < offer.attempts.size(); ++i) {
        Attempt& attempt = offer.attempts[i];
        const auto stripe = static_cast<std::uint32_t>(i / 2);
        const bool to_listener = i % 2 == 0;
        const bool wanted = stripe < stripes && !links_.is_revoked(caller) && !owner_.caller_has(caller, stripe) &&
                            (stripe == 0 || owner_.caller_has(caller, 0)) && (to_listener || offer.source_port != 0);
        // The caller has taken it, so it is no offer any more.
        if (const auto link = links_.find(attempt.link);
            link == links_.end() || link->second.purpose != Link::Purpose::offer)
            attempt = attempt.link == 0 ? attempt : Attempt{0, attempt.way};
        if (!wanted) {
            if (attempt.link != 0) PROBE(offer_not_needed);
            give_up(attempt);
            continue;
        }
        if (attempt.link != 0) continue;
        if (attempt.next_dial > turn_.now) {
            next_dial_ = std::min(next_dial_, attempt.next_dial);
            continue;
        }
        if (to_listener) attempt.way.aim(offer.target);
        Endpoint target = to_listener ? attempt.way.next() : offer.target.usual;
        if (!to_listener) {
            PROBE(offer_opens_the_way);
            target.port = static_cast<std::uint16_t>(offer.source_port + stripe);
        }
        attempt.link = links_.dial(Link::Purpose::offer, caller, stripe, target, offer.pass,
                                   to_listener ? std::uint16_t{0} : config_.listen_port);
        if (to_listener)
            links_.at(attempt.link).dial_longest = attempt.way.patience(turn_.timeouts.dial, master_.round_trip());
    }
}

void Offers::opened(LinkId id) {
    PROBE(offer_opened);
    proto::LinkMessage message;
    *message.mutable_hello() = links_.hello(links_.at(id));
    links_.send(id, message);
}

void Offers::lost(LinkId id, const Link& link) {
    const auto offer = offers_.find(link.remote);
    if (offer == offers_.end()) return;
    for (Attempt& attempt : offer->second.attempts) {
        if (attempt.link != id) continue;
        const Timeouts& t = turn_.timeouts;
        attempt.link = 0;
        if (!link.is_open() && attempt.way.failed()) {
            PROBE(other_address_next);
            attempt.next_dial = next_dial_ = turn_.now;
            continue;
        }
        attempt.backoff = attempt.backoff == 0 ? t.redial_min : std::min(attempt.backoff * 2, t.redial_longest());
        attempt.next_dial = turn_.now + attempt.backoff / 2 +
                            static_cast<Duration>(turn_.random.below(static_cast<std::uint64_t>(attempt.backoff)));
        next_dial_ = std::min(next_dial_, attempt.next_dial);
    }
}

void Offers::forget_run() {
    offers_.clear();
    next_dial_ = never;
}

bool Offers::dials_host(const Endpoint& remote) const {
    return std::any_of(offers_.begin(), offers_.end(),
                       [&](const auto& entry) { return entry.second.target.is_at(remote); });
}

void Offers::check() const {
    ASSERT(offers_.size() <= turn_.limits.peers_max);
    for (const auto& [caller, offer] : offers_) {
        ASSERT(offer.attempts.size() <= 2 * std::max(turn_.limits.stripes_max, 1u));
        for (const Attempt& attempt : offer.attempts) {
            const auto link = links_.find(attempt.link);
            ASSERT(link == links_.end() || (link->second.remote == caller && link->second.dialled));
        }
    }
}

}  // namespace pccl::core
