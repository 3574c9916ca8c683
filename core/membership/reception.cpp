#include "core/membership/reception.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/links/waiting_room.hpp"
#include "core/membership/welcome.hpp"
#include "core/topology/address_rules.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

Location location_of(const proto::Hello& hello, const Endpoint& remote) {
    Location at;
    Endpoint local;
    at.advertises = !hello.advertised().address().empty();
    if (!read(hello.local(), local) || is_confined(local) || is_confined(remote)) return at;
    const std::uint32_t port =
        hello.listen_port() == 0 && !at.advertises ? hello.advertised().port() : hello.listen_port();
    local.port = static_cast<std::uint16_t>(port <= 65'535 ? port : 0);
    if (why_not_a_target(local) != nullptr) return at;  // members of its network would be asked to dial it there
    at.inside = local;
    at.outside = remote;
    at.keeps_ports = at.is_translated() && (!hello.from_listener() || remote.port == local.port);
    return at;
}

// `before`: where the member was; null: it is none.
Endpoint endpoint_from(const proto::Hello& hello, const Endpoint& remote, const Location& at, const Endpoint* before) {
    Endpoint endpoint;
    if (!hello.advertised().address().empty() && read(hello.advertised(), endpoint)) return endpoint;
    endpoint = remote;
    // If the connection comes from the listener's port, others may reach that port where the master sees it. Else the
    // master has seen that port before, or supposes that the translator keeps it.
    if (at.is_translated() && hello.from_listener()) return endpoint;
    if (at.is_translated() && before != nullptr && same_host(remote, *before)) return *before;
    endpoint.port = static_cast<std::uint16_t>(hello.advertised().port());
    return endpoint;
}

// True for the newest token, and for the one before it until the member has confirmed the newest.
bool holds_seat(const MemberState& member, std::uint64_t token) {
    const bool current = same_secret(token, member.token);
    const bool next = same_secret(token, member.token_next) && member.token_next != 0;
    return current || next;
}

// A member may hold a newer token than the journal contains, if the record of its last resume was lost. Then a token
// that it held before proves the seat. If the journal is complete, the older token is invalid once the newer one was
// confirmed.
bool proves_seat(const MemberState& member, const proto::Hello& hello, std::uint32_t former_max) {
    if (holds_seat(member, hello.token())) return true;
    const auto& former = hello.former_tokens();
    const auto end = former.begin() + std::min(former.size(), static_cast<int>(former_max));
    if (std::none_of(former.begin(), end, [&](std::uint64_t token) { return holds_seat(member, token); })) return false;
    PROBE(resume_was_lost);
    return true;
}

}  // namespace

void Reception::hello(LinkId id, const proto::Hello& hello) {
    ControlLinks::Link& link = links_.at(id);
    link.control_bytes = wire::control_limit(turn_.limits, hello.control_bytes_max());
    if (hello.protocol_version() != wire::protocol_version) {
        links_.refuse(id, proto::REFUSED_VERSION,
                      make_cause<CauseKind::versions_differ>(+wire::protocol_version, hello.protocol_version()));
        return;
    }
    Uuid uuid;
    if (!read(hello.uuid(), uuid) || hello.advertised().port() == 0 || hello.advertised().port() > 65'535) {
        links_.close(id, "sent an impossible hello");
        return;
    }
    if (!link.identity.is_nil() && link.identity != uuid) {
        PROBE(hello_of_another_identity);
        links_.refuse(id, proto::REFUSED_OTHER, make_cause<CauseKind::identity_differs>(uuid, link.identity));
        return;
    }
    if (link.group && *link.group != hello.group()) {
        PROBE(group_not_allowed);
        links_.refuse(id, proto::REFUSED_OTHER, make_cause<CauseKind::group_not_allowed>(*link.group, hello.group()));
        return;
    }
    const auto member = state_.members.find(uuid);
    if (!hello.run_id().empty()) {
        if (hello.run_id() != to_bytes(state_.run_id)) {
            PROBE(refused_other_run);
            links_.refuse(id, proto::REFUSED_OTHER_RUN, make_cause<CauseKind::other_run>());
            return;
        }
        // Only a member that proves its seat can have seen decisions that the journal lacks. Anybody else may claim any
        // number. The number alone proves little, because decisions since the restart may have reused the numbers of
        // lost ones. So recall() compares the chain too, and the run ends only for a decision that a master has made.
        if (hello.seen() > 0 && member != state_.members.end() &&
            proves_seat(member->second, hello, turn_.limits.former_tokens_max)) {
            const RunState::Recall recall = state_.recall(uuid, hello.seen(), hello.seen_chain());
            if (recall == RunState::Recall::unknown && hello.seen() <= state_.last_index) PROBE(loss_hidden_by_number);
            if (recall == RunState::Recall::unknown &&
                (registry_.has_come(uuid) || !state_.made(hello.seen(), hello.seen_chain()))) {
                PROBE(claims_decision_of_nobody);
                const Cause why = make_cause<CauseKind::claims_decision>();
                links_.refuse(id, proto::REFUSED_REMOVED, make_cause<CauseKind::removed>(why));
                return registry_.remove(uuid, why);
            }
            if (recall == RunState::Recall::unknown) return registry_.end_run_of_older_journal(id, uuid);
            if (recall == RunState::Recall::older) return links_.close(id, "an older dial of a member");
        }
        if (hello.seen() > state_.last_index) PROBE(claims_unknown_decisions);
    }
    const Location location = location_of(hello, link.remote);
    const Endpoint endpoint = endpoint_from(hello, link.remote, location,
                                            member == state_.members.end() ? nullptr : &member->second.endpoint);
    if (const char* why = why_not_a_target(endpoint)) {
        links_.refuse(id, proto::REFUSED_OTHER, make_cause<CauseKind::not_reachable_at>(to_text(endpoint), why));
        return;
    }
    if (member != state_.members.end()) {
        if (!proves_seat(member->second, hello, turn_.limits.former_tokens_max)) {
            PROBE(token_superseded);
            links_.refuse(id, proto::REFUSED_SUPERSEDED, make_cause<CauseKind::superseded>());
            return;
        }
        registry_.resume(id, hello, uuid, endpoint, location);
        return;
    }
    const auto removed = state_.removed.find(uuid);
    if (removed != state_.removed.end()) {
        PROBE(refused_removed);
        links_.refuse(id, proto::REFUSED_REMOVED, make_cause<CauseKind::removed>(removed->second));
        return;
    }
    if (!hello.run_id().empty() && hello.seen() > 0) {
        links_.refuse(id, proto::REFUSED_REMOVED, make_cause<CauseKind::forgotten>());
        return;
    }
    // A joiner that dials again keeps its place, unless it names another gang.
    // Newcomers whose gangs are not complete have a limit of their own.
    const Gang gang = hello.has_gang() ? gang_of(hello.gang()) : Gang{};
    const std::size_t adds = gang.none() ? 1 : joiners_.gangs().completed_by(gang);
    const Joiners::Joiner* joiner = joiners_.find(uuid);
    if ((joiner == nullptr || joiner->gang != gang) &&
        state_.members.size() + joiners_.taking_part() + adds > turn_.limits.peers_max) {
        links_.refuse(id, proto::REFUSED_FULL, make_cause<CauseKind::run_full>(turn_.limits.peers_max));
        return;
    }
    if (!may_dial(link.remote, endpoint)) {
        PROBE(confined_address_refused);
        links_.refuse(id, proto::REFUSED_OTHER,
                      make_cause<CauseKind::advertises_confined_address>(to_text(endpoint), to_text(link.remote)));
        return;
    }
    if (const auto other = other_side(uuid, gang, endpoint)) {
        const std::string there = to_text(other->second), here = to_text(endpoint);
        links_.refuse(id, proto::REFUSED_OTHER,
                      is_loopback(endpoint) ? make_cause<CauseKind::seen_at_loopback>(here, other->first, there)
                                            : make_cause<CauseKind::member_at_loopback>(other->first, there, here));
        return;
    }
    register_joiner(id, hello, uuid, endpoint, location);
}

// A peer with which the newcomer could never connect, because one of the two is reached at a loopback address: a
// member, or a newcomer that may become one together with it. Another newcomer at its own place is not such a peer: it
// may be an earlier process with this place, which died.
std::optional<std::pair<Uuid, Endpoint>> Reception::other_side(const Uuid& newcomer, const Gang& gang,
                                                               const Endpoint& endpoint) const {
    const auto apart = [&](const Endpoint& other) { return is_loopback(other) != is_loopback(endpoint); };
    for (const auto& [uuid, member] : state_.members) {
        if (apart(member.endpoint)) return std::pair{uuid, member.endpoint};
    }
    for (const auto& [uuid, joiner] : joiners_.all()) {
        if (uuid == newcomer || !apart(joiner.endpoint)) continue;
        const bool of_its_gang = !gang.none() && joiner.gang.name == gang.name && joiner.gang != gang;
        if (of_its_gang || joiners_.takes_part(uuid, joiner)) return std::pair{uuid, joiner.endpoint};
    }
    return std::nullopt;
}

void Reception::register_joiner(LinkId id, const proto::Hello& hello, const Uuid& uuid, const Endpoint& address,
                                const Location& location) {
    const Joiners::Joiner* existing = joiners_.find(uuid);
    const Gang gang = hello.has_gang() ? gang_of(hello.gang()) : Gang{};
    if (existing != nullptr) {
        // The peers that dial a waiting newcomer have its name, but not its token.
        if (!same_secret(hello.token(), existing->token)) {
            PROBE(joiner_impersonated);
            links_.close(id, "claimed to be a registered peer without its token");
            return;
        }
        if (hello.generation() <= existing->generation) {
            links_.close(id, "an older dial of a registered peer");
            return;
        }
        PROBE(joiner_dialled_again);
    }
    if (hello.has_gang() && (existing == nullptr || existing->gang != gang)) {
        if (const Cause why = joiners_.gangs().why_not(gang); !why.empty()) {
            links_.refuse(id, proto::REFUSED_OTHER, why);
            return;
        }
    }
    if (existing != nullptr) {
        const LinkId old = existing->link;
        ASSERT(old != id);
        joiners_.erase(uuid);
        links_.drop(old, false);
    }
    ControlLinks::Link& link = links_.at(id);
    link.stage = ControlLinks::Link::Stage::registered;
    link.uuid = uuid;
    Joiners::Joiner& joiner = joiners_.add(uuid);
    joiner.link = id;
    joiner.generation = hello.generation();
    joiner.link_key = secrets_.next();
    joiner.newcomer_links = hello.newcomer_links();
    joiner.group = hello.group();
    joiner.endpoint = address;
    joiner.location = location;
    joiner.token = hello.token();
    joiner.concurrent_ops = std::clamp<std::uint32_t>(hello.concurrent_ops(), 1, turn_.limits.tags_max);
    joiner.host = hello.host();
    joiner.gang = gang;
    joiner.gang_patience = static_cast<Duration>(hello.gang().patience_ms()) * millisecond;
    if (!gang.none()) joiners_.enter_gang(uuid);
    proto::MasterMessage message;
    auto* welcome = message.mutable_welcome();
    *welcome = welcome_to(state_, turn_);
    if (location.is_translated()) write(link.remote, *welcome->mutable_seen());
    welcome->set_token(hello.token());
    welcome->set_link_key(to_bytes(joiner.link_key));
    links_.say(id, message);
    turn_.log(LogLevel::info,
              formatted("peer {} registered from {}{}", short_name(uuid), to_text(joiner.endpoint),
                        location.is_translated() ? ", translated from " + to_text(location.inside) : std::string()));
    agenda_.topology = true;
}

}  // namespace pccl::core
