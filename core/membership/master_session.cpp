// The master's sessions: who says hello, who resumes a seat, who loses it.
#include "core/base/assert.hpp"
#include "core/base/link_pass.hpp"
#include "core/base/probe.hpp"
#include "core/base/secret.hpp"
#include "core/membership/master_core.hpp"
#include "core/topology/address_rules.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

constexpr Duration peers_looked_at_once = 64;  // with no more than these each report is looked at when it comes
constexpr Duration look_again_per_peer = 200 * microsecond;

Endpoint endpoint_from(const proto::Hello& hello, const Endpoint& remote) {
    Endpoint endpoint;
    if (hello.advertised().address().empty() || !read(hello.advertised(), endpoint)) {
        endpoint = remote;
        endpoint.port = static_cast<std::uint16_t>(hello.advertised().port());
    }
    return endpoint;
}

// The token that the master gave out last, or the one before it until that is known to have arrived.
bool holds_seat(const MemberState& member, std::uint64_t token) {
    const bool current = same_secret(token, member.token);
    const bool next = same_secret(token, member.token_next) && member.token_next != 0;
    return current || next;
}

// A member may hold a newer token than the journal contains, if the record of its last resume was lost. Then a token that it
// held before proves the seat. While the journal is complete, that token is worth nothing once the newer one was confirmed.
bool proves_seat(const MemberState& member, const proto::Hello& hello, std::uint32_t former_max) {
    if (holds_seat(member, hello.token())) return true;
    const auto& former = hello.former_tokens();
    const auto end = former.begin() + std::min(former.size(), static_cast<int>(former_max));
    if (std::none_of(former.begin(), end, [&](std::uint64_t token) { return holds_seat(member, token); })) return false;
    PROBE(resume_was_lost);
    return true;
}

}  // namespace

void MasterCore::tell_limits(proto::Welcome& welcome) const {
    welcome.set_control_bytes_max(config_.limits.control_bytes_max);
    welcome.set_entries_max(config_.limits.entries_max);
    welcome.set_key_bytes_max(config_.limits.key_bytes_max);
}

void MasterCore::on_hello(LinkId id, const proto::Hello& hello) {
    Link& link = links_.at(id);
    link.control_bytes = wire::control_limit(config_.limits, hello.control_bytes_max());
    if (hello.protocol_version() != wire::protocol_version) {
        refuse(id, proto::REFUSED_VERSION,
               "the master speaks protocol version " + std::to_string(wire::protocol_version) +
                   ", this peer speaks version " + std::to_string(hello.protocol_version()));
        return;
    }
    Uuid uuid;
    if (!read(hello.uuid(), uuid) || hello.advertised().port() == 0 || hello.advertised().port() > 65'535) {
        close_link(id, "sent an impossible hello");
        return;
    }
    const auto member = state_.members.find(uuid);
    if (!hello.run_id().empty()) {
        if (hello.run_id() != to_bytes(state_.run_id)) {
            PROBE(refused_other_run);
            refuse(id, proto::REFUSED_OTHER_RUN, "this peer belongs to another run; connect again as a newcomer");
            return;
        }
        // Only a member that proves its seat can know more than the journal. Everybody else may claim any number. The
        // number alone says little: decisions made since the restart may have taken those that were lost.
        if (hello.seen() > 0 && member != state_.members.end() &&
            proves_seat(member->second, hello, config_.limits.former_tokens_max)) {
            const RunState::Recall recall = state_.recall(uuid, hello.seen(), hello.seen_chain());
            if (recall == RunState::Recall::unknown && hello.seen() <= state_.last_index) PROBE(loss_hidden_by_number);
            if (recall == RunState::Recall::unknown) return end_run_of_older_journal(id, uuid);
            if (recall == RunState::Recall::older) return close_link(id, "an older dial of a member");
        }
        if (hello.seen() > state_.last_index) PROBE(claims_unknown_decisions);
    }
    const Endpoint endpoint = endpoint_from(hello, link.remote);
    if (const char* why = why_not_a_target(endpoint)) {
        refuse(id, proto::REFUSED_OTHER,
               "the other peers cannot reach this one at " + to_text(endpoint) + ": " + why +
                   "; connect to the master by another address, or set PCCL_ADVERTISE_ADDRESS to one of this host");
        return;
    }
    if (member != state_.members.end()) {
        resume(id, hello, uuid);
        return;
    }
    const auto removed = state_.removed.find(uuid);
    if (removed != state_.removed.end()) {
        PROBE(refused_removed);
        refuse(id, proto::REFUSED_REMOVED, "removed from the run: " + removed->second);
        return;
    }
    if (!hello.run_id().empty() && hello.seen() > 0) {
        refuse(id, proto::REFUSED_REMOVED, "no longer a member of the run");
        return;
    }
    // One that dials again takes the place that it has.
    if (!joiners_.contains(uuid) && state_.members.size() + joiners_.size() >= config_.limits.peers_max) {
        refuse(id, proto::REFUSED_FULL,
               "the run has reached its limit of " + std::to_string(config_.limits.peers_max) + " peers");
        return;
    }
    if (!may_dial(link.remote, endpoint)) {
        PROBE(confined_address_refused);
        refuse(id, proto::REFUSED_OTHER,
               "this peer advertises " + to_text(endpoint) +
                   ", an address that each host dials as its own; the master sees this peer at " +
                   to_text(link.remote) + ": set PCCL_ADVERTISE_ADDRESS to an address of this host, or not at all");
        return;
    }
    const auto other_side = std::find_if(state_.members.begin(), state_.members.end(), [&](const auto& entry) {
        return is_loopback(entry.second.endpoint) != is_loopback(endpoint);
    });
    if ((is_loopback(endpoint) || hello.advertised().address().empty()) && other_side != state_.members.end()) {
        const std::string member =
            "peer " + short_name(other_side->first) + " at " + to_text(other_side->second.endpoint);
        refuse(
            id, proto::REFUSED_OTHER,
            is_loopback(endpoint)
                ? "the master sees this peer at the loopback address " + to_text(endpoint) +
                      ", which other hosts cannot reach (" + member +
                      "); connect to the master by an address of its network, or set PCCL_ADVERTISE_ADDRESS to the "
                      "address at which the others reach this peer"
                : member + " is reached at a loopback address, this one at " + to_text(endpoint) +
                      "; let the peers on the master's host set PCCL_ADVERTISE_ADDRESS to an address of it, or connect "
                      "to the master by one");
        return;
    }
    link.uuid = uuid;
    register_joiner(id, hello, uuid);
}

// Promises were made that this journal does not contain: the run cannot be continued from it.
void MasterCore::end_run_of_older_journal(LinkId id, const Uuid& uuid) {
    PROBE(journal_too_old);
    log(LogLevel::error, "the journal is older than what peer " + short_name(uuid) +
                             " was told; the run ends and every member has to connect again");
    std::vector<LinkId> open, joining;
    for (const auto& [other, other_link] : links_) {
        if (other_link.stage == Link::Stage::member) open.push_back(other);
        if (other_link.stage == Link::Stage::registered) joining.push_back(other);
    }
    // Joiners were welcomed to the run that ends: they dial again and learn the name of the next one.
    for (const LinkId other : joining) close_link(other, "the run it was going to join has ended");
    for (const LinkId other : open) refuse(other, proto::REFUSED_OTHER_RUN, "the master lost its journal");
    refuse(id, proto::REFUSED_OTHER_RUN, "the master lost its journal");
    ballots_ = BallotBox{};
    sessions_.clear();
    key_comparisons_.clear();
    waiting_starts_.clear();
    edges_ = EdgeTable{};
    bandwidths_ = BandwidthTable{};
    survey_.reset();
    searches_.clear();
    grace_until_ = never;
    begin_new_run();
}

void MasterCore::register_joiner(LinkId id, const proto::Hello& hello, const Uuid& uuid) {
    const auto existing = joiners_.find(uuid);
    if (existing != joiners_.end()) {
        // The identity of a waiting newcomer is known to the peers that dial it, its token is not.
        if (!same_secret(hello.token(), existing->second.token)) {
            PROBE(joiner_impersonated);
            close_link(id, "claimed to be a registered peer without its token");
            return;
        }
        if (hello.generation() <= existing->second.generation) {
            close_link(id, "an older dial of a registered peer");
            return;
        }
        PROBE(joiner_dialled_again);
        const LinkId old = existing->second.link;
        ASSERT(old != id);
        joiners_.erase(existing);
        links_.erase(old);
        out_->push_back(CloseLink{old, false});
    }
    Link& link = links_.at(id);
    link.stage = Link::Stage::registered;
    link.uuid = uuid;
    Joiner& joiner = joiners_[uuid];
    joiner.link = id;
    joiner.generation = hello.generation();
    joiner.order = ++registration_order_;
    joiner.since = now_;
    joiner.link_key = secrets_.next();
    joiner.newcomer_links = hello.newcomer_links();
    joiner.group = hello.group();
    joiner.endpoint = endpoint_from(hello, link.remote);
    joiner.token = hello.token();
    joiner.concurrent_ops = std::clamp<std::uint32_t>(hello.concurrent_ops(), 1, config_.limits.tags_max);
    proto::MasterMessage message;
    auto* welcome = message.mutable_welcome();
    welcome->set_protocol_version(wire::protocol_version);
    welcome->set_run_id(to_bytes(state_.run_id));
    welcome->set_incarnation(state_.incarnation);
    welcome->set_token(hello.token());
    welcome->set_link_key(to_bytes(joiner.link_key));
    welcome->set_peer_timeout_ms(static_cast<std::uint32_t>(config_.timeouts.peer / millisecond));
    tell_limits(*welcome);
    say(id, message);
    log(LogLevel::info, "peer " + short_name(uuid) + " registered from " + to_text(joiner.endpoint));
    topology_dirty_ = true;
}

// Others are where this member was: at loopback addresses, or not. They could not dial it, or it them, at the new one.
bool MasterCore::leaves_side(const Uuid& uuid, const Endpoint& endpoint) const {
    const bool before = is_loopback(state_.members.at(uuid).endpoint);
    if (is_loopback(endpoint) == before) return false;
    return std::any_of(state_.members.begin(), state_.members.end(), [&](const auto& entry) {
        return entry.first != uuid && is_loopback(entry.second.endpoint) == before;
    });
}

void MasterCore::resume(LinkId id, const proto::Hello& hello, const Uuid& uuid) {
    MemberState& member = state_.members.at(uuid);
    Session& session = sessions_[uuid];
    if (!proves_seat(member, hello, config_.limits.former_tokens_max)) {
        PROBE(token_superseded);
        refuse(id, proto::REFUSED_SUPERSEDED, "another process resumed this peer's seat");
        return;
    }
    if (hello.generation() <= session.generation) {
        PROBE(older_dial_refused);
        close_link(id, "an older dial of a member");
        return;
    }
    PROBE(resumed);
    if (session.link == 0 && session.closed_seen) PROBE(resumed_after_absence);
    if (member.token_next != 0 && hello.token() == member.token) PROBE(token_not_confirmed);
    if (session.link != 0) {
        PROBE(link_superseded);
        const LinkId old = session.link;
        ASSERT(old != id);
        begin_absence(session);
        links_.erase(old);
        out_->push_back(CloseLink{old, false});
        abandon_tests(uuid, true);
    }
    session.link = id;
    session.generation = hello.generation();
    session.newcomer_links = hello.newcomer_links();
    session.resumed = session.settled = false;
    session.plan.reset();
    session.answer_said = session.checked_said = 0;
    session.came_back = now_;
    edges_.heard_again(uuid, now_);  // nor was it there to be connected with
    for (auto& [group, comparison] : key_comparisons_) {
        for (KeyComparison::List& list : comparison.lists) {
            if (list.uuid == uuid) list.asked = false;  // the page is asked for again
        }
    }
    Link& link = links_.at(id);
    link.stage = Link::Stage::member;
    link.uuid = uuid;
    proto::Record record;
    record.mutable_token()->set_uuid(to_bytes(uuid));
    record.mutable_token()->set_current(hello.token());
    record.mutable_token()->set_next(secrets_.next_token());
    // A peer may come back from another address: the network it is in has changed, or an impostor had given one.
    if (const Endpoint endpoint = endpoint_from(hello, link.remote);
        endpoint != member.endpoint && may_dial(member.endpoint, endpoint) && !leaves_side(uuid, endpoint)) {
        write(endpoint, *record.mutable_token()->mutable_address());
        topology_dirty_ = true;
    }
    persist(record);
    proto::MasterMessage message;
    auto* welcome = message.mutable_welcome();
    welcome->set_protocol_version(wire::protocol_version);
    welcome->set_run_id(to_bytes(state_.run_id));
    welcome->set_incarnation(state_.incarnation);
    welcome->set_token(record.token().next());
    welcome->set_peer_timeout_ms(static_cast<std::uint32_t>(config_.timeouts.peer / millisecond));
    tell_limits(*welcome);
    welcome->set_member(true);
    welcome->set_link_key(to_bytes(session.link_key));
    say(id, message);
    // What it has not been told, in order; what it declares again follows from its side.
    std::uint32_t told = 0;
    for (const auto& [index, kept] : state_.kept()) {
        if (index <= hello.seen() || !kept.waiting.contains(uuid)) continue;
        const auto answer = RunState::answer_for(kept.decision, uuid, member.group, config_.limits.holders_told_max);
        if (!answer) continue;
        tell(id, uuid, *answer);
        PROBE(told_again_at_resume);
        if (++told == 2) PROBE(several_told_again);
    }
    state_.acknowledge(uuid, hello.seen());
    log(LogLevel::info, "peer " + short_name(uuid) + " resumed its seat");
    topology_dirty_ = true;
}

void MasterCore::on_member_message(LinkId id, const proto::PeerMessage& message) {
    const Link link = links_.at(id);
    const bool member = link.stage == Link::Stage::member;
    if (member) {
        const MemberState& state = state_.members.at(link.uuid);
        if (state.token_next != 0) {
            // The holder of the newer token has spoken: the older one is worth nothing from here on.
            PROBE(token_confirmed);
            // Recorded, or it would be good again after a restart.
            proto::Record record;
            record.mutable_token()->set_uuid(to_bytes(link.uuid));
            record.mutable_token()->set_current(state.token_next);
            persist(record);
        }
    }
    switch (message.kind_case()) {
    case proto::PeerMessage::kVote:
        if (member) {
            acknowledge(links_.at(id), message.vote().seen());
            on_vote(link.uuid, message.vote());
        } else {
            close_link(id, "voted without being a member");
        }
        break;
    case proto::PeerMessage::kEdge: on_edge(link.uuid, message.edge()); break;
    case proto::PeerMessage::kPage:
        if (member) on_page(link.uuid, message.page());
        break;
    case proto::PeerMessage::kMeasured:
        if (member) on_measured(link.uuid, message.measured());
        break;
    case proto::PeerMessage::kHeartbeat:
        hears(links_.at(id), message.heard());
        if (member) acknowledge(links_.at(id), message.heartbeat());
        // It hashes what it will vote for, or copies what was decided: its application cannot make another call yet.
        if (member && message.works()) {
            sessions_.at(link.uuid).free_since = now_;
        }
        break;
    case proto::PeerMessage::kHoldersRequest:
        if (member) on_holders_request(link.uuid, message.holders_request());
        break;
    case proto::PeerMessage::kLeave:
        if (member) {
            PROBE(member_left);
            remove(link.uuid, "left the run");
        } else {
            out_->push_back(CloseLink{id, false});
            on_closed(id);
        }
        break;
    case proto::PeerMessage::kResumed:
        if (member) {
            const Uuid uuid = link.uuid;
            Session& session = sessions_.at(uuid);
            const bool came_back = !std::exchange(session.resumed, true);
            if (came_back) {
                session.resumed_after = last_id();
                examine_all_ = true;
            }
            session.settled = session.settled || state_.untold(uuid) == 0;
            end_grace_if_due();
            // What it called while its link was away is declared by now: that time counts for the limit on votes.
            if (came_back) expire_votes(uuid);
        }
        break;
    default: close_link(id, "sent a message that does not fit here"); break;
    }
}

// A look at the topology costs as much as there are peers, and a crowd of them reports several edges each.
bool MasterCore::looked_just_now() const {
    const auto peers = static_cast<Duration>(state_.members.size() + joiners_.size());
    return peers > peers_looked_at_once && now_ - looked_at_ < peers * look_again_per_peer;
}

void MasterCore::on_edge(const Uuid& from, const proto::EdgeReport& report) {
    Uuid other;
    if (!read(report.peer(), other) || other == from) return;
    if (!state_.members.contains(other) && !joiners_.contains(other)) return;
    const Uuid& source = report.outgoing() ? from : other;
    const Uuid& target = report.outgoing() ? other : from;
    const auto wanted = wanted_.find(source);
    const bool is_wanted = wanted != wanted_.end() && wanted->second.contains(target);
    // What many reports of one joiner change waits for the next tick: each look at the topology costs as much as there are
    // peers.
    const auto joiner = joiners_.find(from);
    const bool few = joiner == joiners_.end() || ++joiner->second.reports <= config_.limits.joiner_reports_at_once;
    if (!few) PROBE(joiner_report_waits);
    const bool at_once = few && !looked_just_now();
    if (!is_wanted || (!report.up() && report.unwanted())) {
        // About a connection that the plan does not name (or did not, then): no word about either end. Once it is named
        // again it is reported again.
        PROBE(unwanted_report);
        if (report.outgoing() && !report.up()) edges_.report_closed(source, target);
        topology_dirty_ = topology_dirty_ || at_once;
        return;
    }
    if (!report.outgoing()) {
        edges_.report_incoming(other, from, report.up(), now_);
    } else if (report.up()) {
        edges_.report_up(from, other, now_);
    } else {
        edges_.report_down(from, other, report.answered(), now_, config_.timeouts.edge_grace());
    }
    topology_dirty_ = topology_dirty_ || at_once;
    const auto session = sessions_.find(other);
    if (!report.up() && !in_grace() && now_ >= sees_again_at_ && session != sessions_.end() &&
        session->second.link == 0 && session->second.closed_seen && session->second.closed_at >= now_ - witness_fresh &&
        neighbour_lost(other)) {
        PROBE(removed_by_late_word);
        remove(other, "its control link and a neighbour's data links to it closed");
    }
}

// Connections of a process that died close at the same time. Two that closed one after the other say nothing: the first may
// have been closed for another reason, and its witness may be the one that died.
bool MasterCore::neighbour_lost(const Uuid& uuid) const {
    const auto member = state_.members.find(uuid);
    return member != state_.members.end() &&
           edges_.ring_neighbour_lost(uuid, state_.groups.at(member->second.group).ring, now_ - witness_fresh);
}

void MasterCore::remove(const Uuid& uuid, const std::string& reason) {
    const auto member = state_.members.find(uuid);
    if (member == state_.members.end()) return;
    const GroupId group = member->second.group;
    proto::Decision decision;
    auto* removal = decision.mutable_removal();
    removal->set_uuid(to_bytes(uuid));
    removal->set_reason(reason);
    removal->mutable_ring()->set_group(group);
    std::vector<Uuid> rest = state_.groups.at(group).ring;
    std::erase(rest, uuid);
    const auto ring = choose_ring(rest, [&](const Uuid& a, const Uuid& b) { return edges_.marked(a, b, now_); });
    for (const Uuid& other : ring.value_or(rest)) removal->mutable_ring()->add_order(to_bytes(other));
    LinkId link = 0;
    const auto session = sessions_.find(uuid);
    if (session != sessions_.end()) {
        link = session->second.link;
        sessions_.erase(session);
    }
    append(decision);
    ballots_.withdraw(uuid);
    edges_.forget(uuid);
    bandwidths_.forget(uuid);
    abandon_tests(uuid, false);
    searches_.erase(group);
    if (!state_.groups.contains(group)) key_comparisons_.erase(group);
    if (survey_) survey_->searching.erase(group);
    const bool left = reason == "left the run";
    log(left ? LogLevel::info : LogLevel::warn, "peer " + short_name(uuid) + " removed: " + reason);
    if (!left) notice_all("peer " + short_name(uuid) + " was removed: " + reason);
    if (link != 0) {
        if (left) {
            links_.erase(link);
            out_->push_back(CloseLink{link, true});
        } else {
            refuse(link, proto::REFUSED_REMOVED, "removed from the run: " + reason);
        }
    }
    topology_dirty_ = true;
    examine_all_ = true;
}

void MasterCore::end_grace_if_due() {
    if (!in_grace()) return;
    const bool all =
        std::all_of(sessions_.begin(), sessions_.end(), [](const auto& entry) { return entry.second.resumed; });
    if (!all && now_ < grace_until_) return;
    if (all)
        PROBE(grace_over_all_resumed);
    else
        PROBE(grace_ran_out);
    grace_until_ = never;
    std::vector<Uuid> gone;
    for (auto& [uuid, session] : sessions_) {
        // A member whose link is open is still declaring; its silence clock runs.
        if (session.link == 0 && !session.closed_seen) gone.push_back(uuid);
        // For what it declares it has its time from here on.
        if (session.link != 0 && !session.resumed) session.absent_since = now_;
    }
    if (!gone.empty()) PROBE(not_resumed_after_restart);
    for (const Uuid& uuid : gone) remove(uuid, "did not resume after the master's restart");
    edges_.restart_clocks(now_);
    restart_vote_clocks();
    topology_dirty_ = true;
    examine_all_ = true;
}

}  // namespace pccl::core
