#include "core/master_core.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/overload.hpp"
#include "core/base/probe.hpp"
#include "core/links/waiting_room.hpp"
#include "core/voting/electors.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace pccl::core {

MasterCore::MasterCore(const MasterConfig& config)
    : config_(config), turn_(config_.limits, config_.timeouts, config.seed),
      reports_({turn_, agenda_, ballots_, decisions_, tallies_, rings_, holder_edges_, direct_, hosts_, registry_,
                patience_, optimizer_, rounds_, operations_, unfinished_}),
      secrets_(config.key, config.seed), decisions_(turn_, reports_), state_(decisions_.state()),
      tallies_(turn_, state_), links_(turn_, decisions_, reports_),
      rings_(turn_, decisions_, registry_, agenda_, reports_), holder_edges_(state_, rings_),
      joiners_(turn_, state_, rings_, registry_), direct_(turn_, state_, rings_, agenda_),
      hosts_(turn_, decisions_, rings_, agenda_), plans_(state_, rings_, joiners_, registry_),
      registry_(turn_, decisions_, links_, rings_, joiners_, secrets_, agenda_, reports_),
      reception_(turn_, state_, links_, registry_, joiners_, secrets_, agenda_), examinations_(turn_, links_),
      check_(turn_, state_, ballots_, registry_, rings_, agenda_),
      patience_(turn_, state_, ballots_, registry_, links_, reports_),
      admissions_(turn_, decisions_, ballots_, registry_, joiners_, agenda_),
      optimizer_(turn_, decisions_, ballots_, rings_.edges(), registry_, agenda_),
      rounds_(turn_, decisions_, ballots_, registry_, agenda_),
      operations_(turn_, decisions_, ballots_, rings_.edges(), optimizer_, direct_, hosts_, tallies_),
      unfinished_(turn_, state_, ballots_, registry_) {
    ASSERT(impossible(turn_.limits) == nullptr);
    ASSERT(turn_.limits.control_bytes_max >= control_bytes_least);
    ASSERT(turn_.limits.control_bytes_max - key_overhead >= turn_.limits.key_bytes_max);
}

// ---- events --------------------------------------------------------------------------------------------------------

bool MasterCore::start(Instant now, std::span<const std::string> journal, Effects& out) {
    turn_.begin(now, out);
    last_event_ = began_ = now;
    if (!decisions_.read(journal)) {
        stop(make_cause<CauseKind::journal_unreadable>());
        turn_.end();
        return false;
    }
    if (state_.run_id.is_nil()) registry_.begin_new_run();
    proto::Record record;
    record.set_incarnation(state_.incarnation + 1);
    decisions_.record(record);
    registry_.take_up();
    hosts_.take_up();
    next_tick_ = now + turn_.timeouts.tick();
    turn_.end();
    return true;
}

Status MasterCore::handle(Instant now, const Event& event, Effects& out) {
    if (now < turn_.now) return Status::misuse;
    if (stopped_) return Status::ok;
    turn_.begin(now, out);
    // If nothing is in flight no timer runs, and a gap between events proves nothing. Otherwise a gap of one tick is
    // normal, so it is subtracted: with a short peer time-out, a tick alone can be as long as hiccup().
    const Duration gap = timer_runs() ? now - last_event_ - turn_.timeouts.tick() : 0;
    if (gap > turn_.timeouts.hiccup())
        slept(now - last_event_);
    else if (gap > turn_.timeouts.tick()) {
        missed_a_moment(gap);  // the time limit of votes may be far shorter than the peer time-out
        registry_.forget_order_of_events();
    }
    decisions_.slept(gap);
    last_event_ = now;
    const bool ours = dispatch(event);
    if (ours && !stopped_ && turn_.now >= next_tick_) tick();
    if (ours && !stopped_) {
        optimizer_.begin_event();
        settle();
        if (!registry_.in_grace()) decisions_.compact_if_due();
    }
    turn_.end();
    return ours ? Status::ok : Status::misuse;
}

// False: a master never gets such an event.
bool MasterCore::dispatch(const Event& event) {
    return std::visit(
        Overload{
            [&](const LinkAccepted& e) { return accepted(e), true; },
            [&](const LinkClosed& e) { return links_.closed(e.link), true; },
            [&](const LinkOpened& e) { return examinations_.answered(e.link, true), true; },
            [&](const LinkRefused& e) { return examinations_.answered(e.link, false), true; },
            [&](const ControlArrived& e) { return control_arrived(e), true; },
            [&](const FrameRefused& e) { return frame_refused(e), true; },
            [&](const FlowArrived& e) { return links_.close(e.link, "sent a data frame to the master"), true; },
            [&](const BulkArrived& e) { return links_.close(e.link, "sent a data frame to the master"), true; },
            [&](const LinkActivity& e) {
                if (Link* link = links_.find(e.link)) links_.heard(*link);
                return true;
            },
            [&](const RecordPersisted& e) { return written(e.sequence), true; },
            [&](const RecordFailed& e) {
                PROBE(journal_not_written);
                stop(make_cause<CauseKind::journal_unwritable>(e.reason));
                return true;
            },
            [&](const PeerRevoked& e) { return revoked(e.peer), true; },
            [&](const Timer&) { return true; },
            [&](const PayloadLanded&) { return false; },
            [&](const PayloadSent&) { return false; },
            [&](const BufferAllocated&) { return false; },
            [&](const ComputeDone&) { return false; },
            [&](const Command&) { return false; },
        },
        event);
}

void MasterCore::accepted(const LinkAccepted& event) {
    const bool member_host = std::any_of(state_.members.begin(), state_.members.end(), [&](const auto& entry) {
        return same_host(entry.second.endpoint, event.remote);
    });
    const bool ran = timer_runs();
    links_.accept(event, member_host, state_.members.size());
    // A tick that is due stays due, however many connections come.
    if (!ran) next_tick_ = turn_.now + turn_.timeouts.tick();
}

void MasterCore::revoked(const Uuid& peer) {
    const Cause cause = make_cause<CauseKind::revoked>();
    if (const Joiners::Joiner* joiner = joiners_.find(peer)) {
        PROBE(newcomer_revoked);
        links_.refuse(joiner->link, proto::REFUSED_REMOVED, make_cause<CauseKind::removed>(cause));
    }
    links_.close_unnamed(peer, "its certificate was revoked");
    if (state_.members.contains(peer)) PROBE(member_revoked);
    registry_.remove(peer, cause);
    proto::MasterMessage message;
    message.set_revoked(to_bytes(peer));
    links_.tell_all(message);  // newcomers have connections with it too
}

void MasterCore::frame_refused(const FrameRefused& event) {
    const Link* link = links_.find(event.link);
    if (link == nullptr) return;
    links_.count_refused();
    if (event.error == wire::WireError::bad_version && link->stage != Link::Stage::closing) {
        links_.refuse(event.link, proto::REFUSED_VERSION,
                      make_cause<CauseKind::versions_differ>(+wire::protocol_version, event.version));
        return;
    }
    links_.close(event.link, wire::to_text(event.error));
}

void MasterCore::control_arrived(const ControlArrived& event) {
    Link* link = links_.find(event.link);
    if (link == nullptr || link->stage == Link::Stage::closing) return;
    proto::PeerMessage message;
    if (!decode(event.body, message) || message.kind_case() == proto::PeerMessage::KIND_NOT_SET) {
        links_.close(event.link, "sent a control message that cannot be read");
        return;
    }
    wire::bound_texts(message, text_bytes_max);
    links_.heard(*link);
    if (link->stage != Link::Stage::fresh)
        from_peer(event.link, message);
    else if (message.has_hello())
        reception_.hello(event.link, message.hello());
    else if (message.has_examine())
        examinations_.asked(event.link, message.examine());
    else
        links_.close(event.link, "did not begin with a hello");
}

// From a member, or from a newcomer that has registered.
void MasterCore::from_peer(LinkId id, const proto::PeerMessage& message) {
    Link& link = links_.at(id);
    const Uuid peer = link.uuid;
    if (link.stage == Link::Stage::member) return from_member(id, peer, message);
    switch (message.kind_case()) {
    case proto::PeerMessage::kVote: links_.close(id, "voted without being a member"); break;
    case proto::PeerMessage::kEdge: registry_.edge_reported(peer, message.edge()); break;
    case proto::PeerMessage::kHeartbeat: links_.acknowledges(link, message.heard()); break;
    case proto::PeerMessage::kLeave:
        turn_.add(CloseLink{id, false});
        links_.closed(id);
        break;
    case proto::PeerMessage::kPage:
    case proto::PeerMessage::kMeasured:
    case proto::PeerMessage::kHoldersRequest:
    case proto::PeerMessage::kResumed: break;
    default: links_.close(id, "sent a message that does not fit here"); break;
    }
}

void MasterCore::asked_for_holders(const Uuid& member, OpId sync) {
    if (holder_edges_.told(member, sync, rounds_.asked_for_holders(member, sync))) agenda_.topology = true;
}

void MasterCore::from_member(LinkId id, const Uuid& member, const proto::PeerMessage& message) {
    registry_.confirm_token(member);
    switch (message.kind_case()) {
    case proto::PeerMessage::kVote:
        registry_.declares(member, message.vote().serial());
        registry_.acknowledge(member, message.vote().seen());
        if (message.vote().kind() == proto::VOTE_SYNC_END) rounds_.end_vote_comes(member, message.vote());
        check_.cast(member, message.vote());
        break;
    case proto::PeerMessage::kEdge: registry_.edge_reported(member, message.edge()); break;
    case proto::PeerMessage::kPage: rounds_.keys().page_came(member, message.page()); break;
    case proto::PeerMessage::kMeasured: optimizer_.measured(member, message.measured()); break;
    case proto::PeerMessage::kHeartbeat:
        links_.acknowledges(links_.at(id), message.heard());
        registry_.acknowledge(member, message.heartbeat());
        if (message.works()) patience_.works(member);
        if (message.works()) unfinished_.works(member);
        break;
    case proto::PeerMessage::kHoldersRequest:
        if (message.recalled() != 0)
            rounds_.lacks(member, message.holders_request(), message.recalled());
        else
            asked_for_holders(member, message.holders_request());
        break;
    case proto::PeerMessage::kLeave:
        PROBE(member_left);
        registry_.leave(member);
        break;
    case proto::PeerMessage::kResumed:
        // The member has now declared the calls that it made while its link was away, so that time counts towards the
        // time limit of votes.
        if (registry_.resumed(member) && !registry_.in_grace()) patience_.expire(member);
        break;
    default: links_.close(id, "sent a message that does not fit here"); break;
    }
}

void MasterCore::written(std::uint64_t sequence) {
    const Duration hung = decisions_.written(sequence);
    if (hung > turn_.timeouts.hiccup()) {
        PROBE(disk_hung);
        rings_.disk_hung(hung);
        joiners_.disk_hung(hung);
    }
    links_.release_held();
}

// Drops the held messages: they rest on records that are not durable, so they must never leave.
void MasterCore::stop(const Cause& cause) {
    stopped_ = true;
    links_.clear_held();
    turn_.add(Halt{cause});
}

void MasterCore::shut_down(Instant now, Effects& out) {
    turn_.begin(std::max(now, turn_.now), out);
    proto::MasterMessage message;
    message.mutable_refusal()->set_code(proto::REFUSED_STOPPING);
    write(make_cause<CauseKind::master_stopped>(), *message.mutable_refusal()->mutable_cause());
    links_.shut_down(message);
    stopped_ = true;
    turn_.end();
}

// ---- clocks --------------------------------------------------------------------------------------------------------

// Sessions alone keep the timer running: the master waits for members that may still resume without any link. So does
// an unwritten record: the disk may hang before any peer has connected.
bool MasterCore::timer_runs() const {
    return !links_.empty() || !registry_.sessions().empty() || !examinations_.empty() ||
           decisions_.unwritten_since() != never;
}

Instant MasterCore::next_deadline() const {
    if (stopped_ || !timer_runs()) return never;
    return std::min(next_tick_, optimizer_.next_piece());
}

void MasterCore::tick() {
    tick_put_off_ = false;
    next_tick_ = turn_.now + turn_.timeouts.tick();
    registry_.tick();
    joiners_.tick();
    examinations_.tick();
    agenda_.topology = true;
    optimizer_.search_in_background();
    patience_.warn();
    if (const auto text = decisions_.complaint()) warn_of_disk(*text);
    if (!registry_.in_grace()) patience_.expire();
    if (!registry_.in_grace()) {
        unfinished_.tick();
        for (const auto& [op, member] : unfinished_.operations_given_up())
            operations_.decide(op, Result::rank_connection_lost, make_cause<CauseKind::does_not_finish>(member));
        for (const auto& [group, member] : unfinished_.syncs_given_up()) rounds_.give_up_waiting(group, member);
    }
    rounds_.tick();
    if (const auto why = decisions_.gives_up()) stop(*why);
}

// A notice promises nothing, so it is not held behind the record that is not written yet.
void MasterCore::warn_of_disk(const std::string& text) {
    turn_.log(LogLevel::error, text);
    proto::MasterMessage message;
    message.mutable_notice()->set_text(text);
    message.mutable_notice()->set_warn(true);
    links_.say_to_members_at_once(message);
}

// This machine did not run. Every clock that can remove a member, close a link or give up a vote leaves that time out.
// The tick is postponed too, so that messages that arrived meanwhile are read before any peer times out.
// After a sleep the peers may have to reconnect, so the clocks of links and members even restart. They restart only if
// this machine ran for `awake_least` since they last did: a machine that stops again and again would never detect a
// death.
void MasterCore::slept(Duration time) {
    PROBE(master_slept);
    const Duration awake_least = turn_.timeouts.undeclared() + turn_.timeouts.handshake;
    const bool anew = clocks_anew_at_ == -never || turn_.now - clocks_anew_at_ - time > awake_least;
    if (!anew) PROBE(master_slept_again);
    clocks_anew_at_ = anew ? turn_.now : std::min(turn_.now, clocks_anew_at_ + time);
    const Sleep sleep{turn_.now, time, anew};
    links_.slept(sleep);
    joiners_.slept(sleep);
    rounds_.slept(sleep);
    rings_.slept(sleep);
    missed_a_moment(time);
    optimizer_.slept(time);
    registry_.slept(sleep);
    turn_.log(LogLevel::warn,
              formatted("the master did not run for {} ms; silence clocks start anew", time / millisecond));
}

// Postpones the tick, so that waiting messages are read before any peer times out. It does so only once between two
// ticks: a machine that never runs for a whole tick must check its clocks too.
void MasterCore::missed_a_moment(Duration time) {
    patience_.shift_clocks(time);
    if (!std::exchange(tick_put_off_, true)) next_tick_ = turn_.now + turn_.timeouts.tick();
}

// ---- ballots -------------------------------------------------------------------------------------------------------

void MasterCore::settle() {
    if (registry_.in_grace()) {
        abort_refused();
        return;
    }
    // Each round decides a ballot, changes the membership or a ring, or is the last one. The number of rounds is
    // bounded; the next event or tick does the rest.
    for (int round = 0; round < 10'000; ++round) {
        admissions_.admit_orphans();
        if (agenda_.topology) {
            agenda_.topology = false;
            look_at_topology();
        }
        if (agenda_.everything) {
            agenda_.everything = false;
            agenda_.ballots.clear();
            examine_everything();
        } else if (!agenda_.ballots.empty()) {
            const std::vector<BallotKey> dirty = std::exchange(agenda_.ballots, {});
            for (const BallotKey& key : dirty) examine(key);
        } else if (!agenda_.topology) {
            operations_.start_what_waits();
            if (!agenda_.everything && agenda_.ballots.empty() && !agenda_.topology) return;
        }
    }
    turn_.log(LogLevel::error, "more decisions at once than expected; the rest follows at the next tick");
}

// During a grace, decides only what no vote of an absent member can change: it aborts operations that a member voted
// against. Such a vote is never taken back, so no member has received a commit. The members that are present need not
// wait for members that may never resume.
void MasterCore::abort_refused() {
    const std::vector<BallotKey> dirty = std::exchange(agenda_.ballots, {});
    for (const BallotKey& key : dirty) {
        if (key.kind != proto::VOTE_END || !operations_.refused(key)) continue;
        PROBE(aborted_in_grace);
        operations_.examine(key.id);
    }
}

void MasterCore::look_at_topology() {
    rings_.maintain();
    joiners_.plan();
    holder_edges_.maintain();
    rings_.maintain_edges_of_operations();
    direct_.maintain(hosts_.maintain());
    rings_.release_unwanted();
    plans_.send();
}

void MasterCore::examine_everything() {
    operations_.examine_all();
    std::vector<GroupId> groups;
    for (const auto& [id, group] : state_.groups) groups.push_back(id);
    for (const GroupId id : groups) rounds_.examine_end(id);
    std::vector<BallotKey> keys;
    for (const auto& [key, ballot] : ballots_.all()) keys.push_back(key);
    for (const BallotKey& key : keys) examine(key);
    if (optimizer_.outlives_its_ballot()) optimizer_.examine();
}

void MasterCore::examine(const BallotKey& key) {
    if (key.kind == proto::VOTE_OPTIMIZE_TOPOLOGY) {
        optimizer_.examine();
        if (ballots_.find(key) == nullptr) agenda_.ballots.push_back(BallotKey{proto::VOTE_UPDATE_TOPOLOGY, 0, 0});
        return;
    }
    Ballot* ballot = ballots_.find(key);
    if (ballot == nullptr) return;
    const auto complete = [&] { return ballot->complete(electors_of(state_, key)); };
    switch (key.kind) {
    case proto::VOTE_UPDATE_TOPOLOGY:
        if (complete())
            decide_update(*ballot);
        else
            admissions_.answer_early_updates();
        break;
    case proto::VOTE_PEERS_PENDING:
        if (complete()) admissions_.decide_pending(ballots_.take(key));
        break;
    case proto::VOTE_START:
        if (complete()) operations_.wait_for_start(key, *ballot);
        break;
    case proto::VOTE_END: operations_.examine(key.id); break;
    case proto::VOTE_SYNC: rounds_.examine(key); break;
    case proto::VOTE_SYNC_END: rounds_.examine_end(key.group); break;
    default: break;
    }
}

// An update admits newcomers, and from then on the votes for other calls of the whole run need theirs too. If a member
// made such a call before its update, a newcomer stands behind that call and does not make it. If all members have made
// it, it is decided first.
void MasterCore::decide_update(const Ballot& update) {
    const auto comes_first = [&](const BallotKey& key) {
        const Ballot* other = ballots_.find(key);
        if (other == nullptr || !other->complete(electors_of(state_, key))) return false;
        return std::any_of(other->votes().begin(), other->votes().end(), [&](const auto& vote) {
            const auto own = update.votes().find(vote.first);
            return own != update.votes().end() && vote.second.serial < own->second.serial;
        });
    };
    const BallotKey pending{proto::VOTE_PEERS_PENDING, 0, 0}, optimize{proto::VOTE_OPTIMIZE_TOPOLOGY, 0, 0};
    if (comes_first(pending)) {
        PROBE(pending_before_update);
        admissions_.decide_pending(ballots_.take(pending));
        return agenda_.ballots.push_back(BallotKey{proto::VOTE_UPDATE_TOPOLOGY, 0, 0});
    }
    // Its survey takes a while. When it is over, the update is examined again.
    if (comes_first(optimize)) return examine(optimize);
    admissions_.decide_update(ballots_.take(BallotKey{proto::VOTE_UPDATE_TOPOLOGY, 0, 0}));
}

}  // namespace pccl::core
