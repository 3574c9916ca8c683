#include "core/membership/registry.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/link_pass.hpp"
#include "core/base/probe.hpp"
#include "core/membership/welcome.hpp"
#include "core/links/waiting_room.hpp"
#include "core/topology/address_rules.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace pccl::core {

namespace {

// On the path of a healthy member, three breaks in a row can be bad luck.
constexpr std::uint32_t resumes_in_vain_max = 3;
// Votes that give a member more time to declare the rest: a quarter of an hour in all with usual time-outs. The most that
// it may have open pass a path of 10 kB/s within it.
constexpr std::uint32_t declared_max = 4'096;
// Connections that closed within this time of each other look like a death.
constexpr Duration witness_fresh = 1 * second;

}  // namespace

// ---- the run -------------------------------------------------------------------------------------------------------

void Registry::begin_new_run() {
    Uuid id;
    for (std::size_t i = 0; i < 16; i += 8) {
        const std::uint64_t word = turn_.random.next() | 1;
        for (std::size_t k = 0; k < 8; ++k) id.bytes[i + k] = static_cast<std::uint8_t>(word >> (8 * k));
    }
    proto::Record record;
    record.set_run(to_bytes(id));
    record.set_run_key(to_bytes(secrets_.next()));
    decisions_.record(record);
}

void Registry::take_up() {
    if (state_.members.empty()) return;
    PROBE(master_restarted);
    if (!state_.ops.empty()) PROBE(master_restarted_with_operation);
    if (!state_.kept().empty()) PROBE(master_restarted_with_untold);
    for (const auto& [uuid, member] : state_.members) {
        Session& session = sessions_[uuid];
        session.absent_since = session.since = turn_.now;
        session.link_key = secrets_.next();
        owner_.member_taken_up(uuid);
    }
    for (const auto& [id, group] : state_.groups) {
        if (group.sync) PROBE(master_restarted_with_sync);
    }
    grace_until_ = turn_.now + turn_.timeouts.grace();
    turn_.log(LogLevel::info, formatted("took up the run with {} members", state_.members.size()));
}

void Registry::end_grace_if_due() {
    if (!in_grace()) return;
    const bool all =
        std::all_of(sessions_.begin(), sessions_.end(), [](const auto& entry) { return entry.second.resumed; });
    if (!all && turn_.now < grace_until_) return;
    if (all)
        PROBE(grace_over_all_resumed);
    else
        PROBE(grace_ran_out);
    grace_until_ = never;
    std::vector<Uuid> gone;
    for (auto& [uuid, session] : sessions_) {
        // A member whose link is open is still declaring; its silence clock runs.
        if (session.link == 0 && !session.closed_seen) gone.push_back(uuid);
        // Its time to declare everything begins now.
        if (session.link != 0 && !session.resumed) session.absent_since = turn_.now;
    }
    if (!gone.empty()) PROBE(not_resumed_after_restart);
    for (const Uuid& uuid : gone) remove(uuid, make_cause<CauseKind::not_resumed_after_restart>());
    rings_.restart_clocks();
    owner_.grace_over();
    agenda_.topology = true;
    agenda_.everything = true;
}

void Registry::end_run_of_older_journal(LinkId id, const Uuid& witness) {
    PROBE(journal_too_old);
    turn_.log(
        LogLevel::error,
        formatted("the journal is older than what peer {} was told; the run ends and every member has to connect again",
                  short_name(witness)));
    const std::vector<LinkId> open = links_.of_stage(ControlLinks::Link::Stage::member);
    // Joiners were welcomed to the run that ends. They dial again and get the name of the next one.
    for (const LinkId other : links_.of_stage(ControlLinks::Link::Stage::registered))
        links_.close(other, "the run it was going to join has ended");
    for (const LinkId other : open)
        links_.refuse(other, proto::REFUSED_OTHER_RUN, make_cause<CauseKind::journal_lost>());
    links_.refuse(id, proto::REFUSED_OTHER_RUN, make_cause<CauseKind::journal_lost>());
    sessions_.clear();
    rings_.forget_run();
    owner_.run_over();
    grace_until_ = never;
    begin_new_run();
}

// ---- members -------------------------------------------------------------------------------------------------------

void Registry::admit(const Uuid& uuid, const Joiners::Joiner& joiner) {
    Session& session = sessions_[uuid];
    session.link = joiner.link;
    session.generation = joiner.generation;
    session.resumed = session.has_come = true;
    session.link_key = joiner.link_key;
    session.newcomer_links = joiner.newcomer_links;
    session.location = joiner.location;
    session.since = turn_.now;
    session.resumed_after = decisions_.last_id();
    links_.at(joiner.link).stage = ControlLinks::Link::Stage::member;
    rings_.admitted(uuid);
    owner_.member_admitted(uuid);
}

// True if the member moves between loopback and other addresses, and another member stays where it was. One of them
// could not dial the other then.
bool Registry::leaves_side(const Uuid& uuid, const Endpoint& endpoint) const {
    const bool before = is_loopback(state_.members.at(uuid).endpoint);
    if (is_loopback(endpoint) == before) return false;
    return std::any_of(state_.members.begin(), state_.members.end(), [&](const auto& entry) {
        return entry.first != uuid && is_loopback(entry.second.endpoint) == before;
    });
}

void Registry::resume(LinkId id, const proto::Hello& hello, const Uuid& uuid, const Endpoint& address,
                      const Location& location) {
    const MemberState& member = state_.members.at(uuid);
    Session& session = sessions_.at(uuid);
    if (hello.generation() <= session.generation) {
        PROBE(older_dial_refused);
        links_.close(id, "an older dial of a member");
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
        links_.drop(old, false);
        owner_.member_away(uuid);
    }
    session.link = id;
    session.generation = hello.generation();
    session.newcomer_links = hello.newcomer_links();
    const Location before = std::exchange(session.location, location);
    if (!hello.from_listener() && before.is_translated())
        session.location.keeps_ports = before.keeps_ports;  // as seen then
    session.resumed = session.settled = false;
    session.declared = 0;
    session.declared_last = 0;
    session.has_come = true;
    rings_.heard_again(uuid);  // nobody could connect with it while it was away
    owner_.member_resumes(uuid);
    ControlLinks::Link& link = links_.at(id);
    link.stage = ControlLinks::Link::Stage::member;
    link.uuid = uuid;
    proto::Record record;
    record.mutable_token()->set_uuid(to_bytes(uuid));
    record.mutable_token()->set_current(hello.token());
    record.mutable_token()->set_next(secrets_.next_token());
    // A peer may come back from another address: its network has changed, or an impostor had given a wrong address.
    if (address != member.endpoint && may_dial(member.endpoint, address) && !leaves_side(uuid, address)) {
        write(address, *record.mutable_token()->mutable_address());
        agenda_.topology = true;
    }
    decisions_.record(record);
    proto::MasterMessage message;
    auto* welcome = message.mutable_welcome();
    *welcome = welcome_to(state_, turn_);
    welcome->set_token(record.token().next());
    if (location.is_translated()) write(link.remote, *welcome->mutable_seen());
    welcome->set_member(true);
    welcome->set_link_key(to_bytes(session.link_key));
    links_.say(id, message);
    for (const auto& [peer, cause] : state_.removed) {
        if (!cause.has(CauseKind::revoked)) continue;
        PROBE(revocation_told_at_resume);
        proto::MasterMessage revocation;
        revocation.set_revoked(to_bytes(peer));
        links_.say(id, revocation);
    }
    // Sends the decisions that the member has not seen, in order. The member itself declares its open votes again. An
    // answer may be too long for it. Then its link is closed, and it may be removed, with what is kept for it.
    std::vector<proto::Answer> unseen;
    for (const auto& [index, kept] : state_.kept()) {
        if (index <= hello.seen() || !kept.waiting.contains(uuid)) continue;
        if (auto answer = RunState::answer_for(kept.decision, uuid, member.group, turn_.limits.holders_told_max))
            unseen.push_back(std::move(*answer));
    }
    std::uint32_t told = 0;
    for (proto::Answer& answer : unseen) {
        tell(uuid, std::move(answer));
        if (link_of(uuid) != id) return;
        PROBE(told_again_at_resume);
        if (++told == 2) PROBE(several_told_again);
    }
    decisions_.acknowledge(uuid, hello.seen());
    turn_.log(LogLevel::info, formatted("peer {} resumed its seat", short_name(uuid)));
    agenda_.topology = true;
}

void Registry::declares(const Uuid& member, Serial serial) {
    Session& session = sessions_.at(member);
    if (session.resumed || serial <= session.declared_last || session.declared == declared_max) return;
    session.declared_last = serial;
    ++session.declared;
}

bool Registry::resumed(const Uuid& member) {
    Session& session = sessions_.at(member);
    const bool came_back = !std::exchange(session.resumed, true);
    if (came_back) {
        session.resumed_after = decisions_.last_id();
        agenda_.everything = true;
    }
    session.settled = session.settled || state_.untold(member) == 0;
    end_grace_if_due();
    return came_back;
}

void Registry::confirm_token(const Uuid& member) {
    const MemberState& state = state_.members.at(member);
    if (state.token_next == 0) return;
    PROBE(token_confirmed);
    // This is recorded: otherwise the older token would be valid again after a restart.
    proto::Record record;
    record.mutable_token()->set_uuid(to_bytes(member));
    record.mutable_token()->set_current(state.token_next);
    decisions_.record(record);
}

void Registry::acknowledge(const Uuid& member, std::uint64_t seen) {
    const std::size_t before = state_.untold(member);
    decisions_.acknowledge(member, seen);
    const std::size_t left = state_.untold(member);
    if (const auto session = sessions_.find(member); session != sessions_.end() && (left == 0 || left != before))
        session->second.settled = true;
}

void Registry::edge_reported(const Uuid& from, const proto::EdgeReport& report) {
    Uuid other;
    if (!read(report.peer(), other) || other == from) return;
    if (!state_.members.contains(other) && !joiners_.contains(other)) return;
    const bool few = !joiners_.reports_too_much(from);
    if (!few) PROBE(joiner_report_waits);
    const bool at_once = few && !rings_.looked_just_now(state_.members.size() + joiners_.size());
    if (!rings_.reported(from, other, report, at_once)) return;
    const auto session = sessions_.find(other);
    if (!report.up() && knows_order() && session != sessions_.end() && session->second.link == 0 &&
        session->second.closed_seen && session->second.closed_at >= turn_.now - witness_fresh &&
        neighbour_lost(other)) {
        PROBE(removed_by_late_word);
        remove(other, make_cause<CauseKind::links_closed>());
    }
}

// True if a ring neighbour reported, at most `witness_fresh` ago, that its data links with this member broke. The
// connections of a process that died close at the same time. Two that close one after the other prove nothing: the
// first may have closed for another reason, and the process that died may be the witness.
bool Registry::neighbour_lost(const Uuid& uuid) const {
    const auto member = state_.members.find(uuid);
    return member != state_.members.end() &&
           rings_.edges().ring_neighbour_lost(uuid, state_.groups.at(member->second.group).ring,
                                              turn_.now - witness_fresh);
}

// Takes the link from the joiner or session that used it.
void Registry::link_lost(LinkId id, const ControlLinks::Link& link) {
    if (link.stage == ControlLinks::Link::Stage::registered) {
        const Joiners::Joiner* joiner = joiners_.find(link.uuid);
        if (joiner != nullptr && joiner->link == id) {
            PROBE(joiner_lost);
            joiners_.erase(link.uuid);
            rings_.forget(link.uuid);
            agenda_.topology = true;
        }
    } else if (link.stage == ControlLinks::Link::Stage::member) {
        const auto session = sessions_.find(link.uuid);
        if (session == sessions_.end() || session->second.link != id) return;
        begin_absence(session->second);
        session->second.closed_seen = true;
        session->second.closed_at = turn_.now;
        owner_.member_away(link.uuid);
        turn_.log(LogLevel::info, formatted("control link of {} closed; its seat is kept", short_name(link.uuid)));
        if (knows_order() && neighbour_lost(link.uuid)) {
            PROBE(removed_by_both_links);
            remove(link.uuid, make_cause<CauseKind::links_closed>());
        }
    }
}

// A resume is complete when the member has declared everything unanswered, and has acknowledged something since (or
// nothing was left to send). A link that breaks before that made no progress, unless this master's disk delayed the
// welcome.
void Registry::begin_absence(Session& session) {
    if (session.resumed && session.settled) {
        session.resumes_in_vain = 0;
        session.absent_since = turn_.now;
    } else if (links_.welcome_waits(session.link)) {
        PROBE(resume_waited_for_disk);
        session.absent_since = turn_.now;
    } else if (++session.resumes_in_vain <= resumes_in_vain_max) {
        session.absent_since = turn_.now;
    } else {
        PROBE(resumed_in_vain);
    }
    session.link = 0;
    session.resumed = session.settled = false;
}

bool Registry::absent_too_long(const Session& session) const {
    const bool in_vain = session.link != 0 && !(session.resumed && session.settled) &&
                         session.resumes_in_vain > resumes_in_vain_max && !links_.welcome_waits(session.link);
    // A member that is connected and alive, but never declares everything, takes part in no vote. Many open votes take
    // long over a slow path.
    const Duration away = turn_.now - session.absent_since;
    const bool undeclared = session.link != 0 && !session.resumed && away > turn_.timeouts.undeclared(session.declared);
    return ((session.link == 0 || in_vain) && away > turn_.timeouts.peer) ||
           (undeclared && !links_.welcome_waits(session.link));
}

void Registry::remove(const Uuid& uuid, const Cause& cause) {
    const bool left = cause.kind == CauseKind::left;
    const auto member = state_.members.find(uuid);
    if (member == state_.members.end()) return;
    const Gang gang = member->second.gang;
    std::vector<Uuid> gone = state_.mates_of(uuid);
    gone.insert(gone.begin(), uuid);
    std::vector<std::pair<Uuid, GroupId>> groups;
    for (const Uuid& each : gone) groups.emplace_back(each, state_.members.at(each).group);
    const Cause mates_cause =
        gone.size() == 1 ? Cause{} : make_cause<CauseKind::gang_lost>(gang.name, gang.place, cause);
    proto::Decision decision;
    write_removal(gone, *decision.mutable_removal());
    write(cause, *decision.mutable_cause());
    if (gone.size() > 1) write(mates_cause, *decision.mutable_removal()->mutable_mates_cause());
    std::vector<LinkId> links;
    for (const Uuid& each : gone) {
        const auto session = sessions_.find(each);
        links.push_back(session == sessions_.end() ? 0 : session->second.link);
        if (session != sessions_.end()) sessions_.erase(session);
    }
    if (gone.size() > 1) PROBE(gang_removed);
    decisions_.append(decision);
    for (const auto& [each, group] : groups) {
        rings_.forget(each);
        owner_.member_removed(each, group);
    }
    const std::string why = to_text(cause);
    turn_.log(left ? LogLevel::info : LogLevel::warn, formatted("peer {} removed: {}", short_name(uuid), why));
    if (gone.size() > 1)
        turn_.log(LogLevel::warn, formatted("gang '{}' is removed with it: {} members", gang.name, gone.size()));
    if (!left) notice_all(formatted("peer {} was removed: {}", short_name(uuid), why));
    for (std::size_t i = 0; i < gone.size(); ++i) {
        if (links[i] == 0) continue;
        if (i == 0 && left) {
            links_.drop(links[i], true);
        } else {
            links_.refuse(links[i], proto::REFUSED_REMOVED,
                          make_cause<CauseKind::removed>(i == 0 ? cause : mates_cause));
        }
    }
    agenda_.topology = true;
    agenda_.everything = true;
}

// `gone`: the member and the others of its gang. One decision removes them all, so the others never see a part of a
// gang.
void Registry::write_removal(const std::vector<Uuid>& gone, proto::RemovalDecision& removal) const {
    const auto write_ring = [&](GroupId group, proto::RingRecord& ring) {
        ring.set_group(group);
        for (const Uuid& other : rings_.ring_without(group, gone)) ring.add_order(to_bytes(other));
    };
    removal.set_uuid(to_bytes(gone.front()));
    const GroupId first = state_.members.at(gone.front()).group;
    write_ring(first, *removal.mutable_ring());
    std::set<GroupId> others;
    for (const Uuid& mate : std::span(gone).subspan(1)) {
        removal.add_mates(to_bytes(mate));
        others.insert(state_.members.at(mate).group);
    }
    others.erase(first);
    for (const GroupId group : others) write_ring(group, *removal.add_mates_rings());
}

void Registry::turn_away(const Uuid& newcomer, const Cause& cause) {
    const Joiners::Joiner* joiner = joiners_.find(newcomer);
    if (joiner != nullptr) links_.refuse(joiner->link, proto::REFUSED_OTHER, cause);
}

// The master keeps decisions until a member has acknowledged them. A living member that never acknowledges would fill
// the memory. Acknowledgements are not recorded, so after a restart this check waits until the member has resumed: its
// hello carries them. The sum waits for all members, which is until the end of the grace.
void Registry::remove_unheeding() {
    std::vector<Uuid> over;
    for (const auto& [uuid, session] : sessions_) {
        if (session.resumed && state_.untold(uuid) > turn_.limits.untold_max) over.push_back(uuid);
    }
    // All of them together must fit into a snapshot, too. The one for which most are kept makes room.
    if (over.empty() && !in_grace() && state_.kept_bytes() > turn_.limits.kept_bytes_max) {
        const auto most = std::max_element(sessions_.begin(), sessions_.end(), [&](const auto& a, const auto& b) {
            const auto untold = [&](const auto& one) { return one.second.resumed ? state_.untold(one.first) : 0; };
            return untold(a) < untold(b);
        });
        if (most != sessions_.end() && most->second.resumed) over.push_back(most->first);
    }
    for (const Uuid& uuid : over) {
        remove(uuid, make_cause<CauseKind::unacknowledged>(state_.untold(uuid)));
    }
}

// The time in which the welcome of a resuming member waited for the disk does not count as absence.
void Registry::welcome_waited(const Uuid& member, Duration waited) {
    const auto session = sessions_.find(member);
    if (session == sessions_.end()) return;
    session->second.absent_since = std::min(turn_.now, session->second.absent_since + waited);
}

// ---- telling -------------------------------------------------------------------------------------------------------

void Registry::tell(const proto::Decision& decision) {
    for (const Uuid& uuid : RunState::recipients(decision)) {
        const auto session = sessions_.find(uuid);
        if (session != sessions_.end() && session->second.link == 0) PROBE(answer_for_absent_member);
        if (session == sessions_.end() || session->second.link == 0) continue;  // sent when it resumes
        const auto answer =
            RunState::answer_for(decision, uuid, state_.members.at(uuid).group, turn_.limits.holders_told_max);
        if (!answer) continue;
        tell(uuid, *answer);
    }
}

// Answers are derived from decisions. Secrets are added here, when the answer is sent.
void Registry::tell(const Uuid& uuid, proto::Answer answer) {
    if (answer.has_sync()) {
        for (auto& holder : *answer.mutable_sync()->mutable_holders()) add_way(uuid, holder);
    }
    proto::MasterMessage message;
    *message.mutable_answer() = std::move(answer);
    // No honest vote can have led to a longer frame, unless the member took longer ones before.
    if (const ControlLinks::Link* link = links_.find(link_of(uuid)); link != nullptr) {
        wire::bound_texts(message, wire::text_limit(link->control_bytes));
        if (message.ByteSizeLong() > link->control_bytes) {
            links_.close(link_of(uuid), "takes shorter frames than the result that it voted for");
            return;
        }
    }
    say(uuid, std::move(message));
}

void Registry::notice_all(const std::string& text) {
    proto::MasterMessage message;
    message.mutable_notice()->set_text(text);
    message.mutable_notice()->set_warn(true);
    for (const auto& [uuid, session] : sessions_) links_.say(session.link, message);
}

// ---- time ----------------------------------------------------------------------------------------------------------

void Registry::tick() {
    for (const LinkId id : links_.tick()) {
        const ControlLinks::Link* found = links_.find(id);
        if (found == nullptr) continue;
        const ControlLinks::Link link = *found;
        if (link.stage == ControlLinks::Link::Stage::member && !in_grace()) {
            PROBE(member_silent);
            remove(link.uuid, make_cause<CauseKind::silent>((turn_.now - link.last_received) / millisecond));
        } else {
            if (in_grace()) PROBE(silent_in_grace);
            links_.close(id, "silent");
        }
    }
    end_grace_if_due();
    if (!in_grace()) {
        std::vector<Uuid> gone;
        for (const auto& [uuid, session] : sessions_) {
            if (absent_too_long(session)) gone.push_back(uuid);
        }
        if (!gone.empty()) PROBE(absent_too_long);
        for (const Uuid& uuid : gone) remove(uuid, make_cause<CauseKind::not_resumed>());
    }
    remove_unheeding();
}

void Registry::forget_order_of_events() { sees_again_at_ = turn_.now + turn_.timeouts.tick() + witness_fresh; }

void Registry::slept(const Sleep& sleep) {
    for (auto& [uuid, session] : sessions_) sleep.leave_out(session.absent_since);
    forget_order_of_events();
    if (!in_grace()) return;
    PROBE(slept_in_grace);
    grace_until_ = sleep.anew ? turn_.now + turn_.timeouts.grace() : grace_until_ + sleep.time;
}

// ---- Roster --------------------------------------------------------------------------------------------------------

LinkId Registry::link_of(const Uuid& peer) const {
    if (const auto session = sessions_.find(peer); session != sessions_.end()) return session->second.link;
    const Joiners::Joiner* joiner = joiners_.find(peer);
    return joiner == nullptr ? 0 : joiner->link;
}

bool Registry::present(const Uuid& peer) const {
    if (joiners_.contains(peer)) return true;
    const auto session = sessions_.find(peer);
    return session != sessions_.end() && session->second.link != 0 && session->second.resumed;
}

std::optional<Endpoint> Registry::endpoint_of(const Uuid& uuid) const {
    const auto member = state_.members.find(uuid);
    if (member != state_.members.end()) return member->second.endpoint;
    if (const Joiners::Joiner* joiner = joiners_.find(uuid)) return joiner->endpoint;
    return std::nullopt;
}

const Location* Registry::location_of(const Uuid& uuid) const {
    if (const auto session = sessions_.find(uuid); session != sessions_.end()) return &session->second.location;
    const Joiners::Joiner* joiner = joiners_.find(uuid);
    return joiner == nullptr ? nullptr : &joiner->location;
}

// Behind one translator, two peers reach each other inside: many translators lead no connection back in. But it may be
// the translator of a provider, in front of several networks, and the same private address is then another machine. Two
// peers of the master's network may lack a way to an address that one of them advertises to others.
std::optional<Addresses> Registry::addresses_for(const Uuid& dialler, const Uuid& peer) const {
    const std::optional<Endpoint> usual = endpoint_of(peer);
    if (!usual) return std::nullopt;
    Addresses all{*usual, {}, false};
    const Location* const from = location_of(dialler);
    const Location* const to = location_of(peer);
    if (dialler == peer || from == nullptr || to == nullptr || from->inside.port == 0 || to->inside.port == 0)
        return all;
    const bool behind = !from->is_inside() && !to->is_inside() && same_host(from->outside, to->outside);
    const bool beside_master = from->is_inside() && to->is_inside() && to->advertises;
    if ((!behind && !beside_master) || to->inside == *usual) return all;
    PROBE(two_addresses_told);
    all.other = to->inside;
    all.other_first = behind;
    return all;
}

bool Registry::is_translated(const Uuid& peer) const {
    const Location* const at = location_of(peer);
    return at != nullptr && at->is_translated();
}

std::uint16_t Registry::dial_port_of(const Uuid& source) const {
    const Location* const at = location_of(source);
    if (at == nullptr || at->inside.port == 0 || at->advertises) return 0;
    return at->is_inside() || at->keeps_ports ? dial_port(at->inside.port) : at->inside.port;
}

std::uint16_t Registry::outer_dial_port_of(const Uuid& source) const {
    const std::uint16_t port = dial_port_of(source);
    const Location* const at = location_of(source);
    // It dials from the port of its listener, as it has dialled the master.
    const bool as_seen = port != 0 && at->is_translated() && !at->keeps_ports;
    return as_seen ? endpoint_of(source).value_or(Endpoint{}).port : port;
}

const Secret* Registry::link_key_of(const Uuid& uuid) const {
    if (const auto session = sessions_.find(uuid); session != sessions_.end()) return &session->second.link_key;
    const Joiners::Joiner* joiner = joiners_.find(uuid);
    return joiner == nullptr ? nullptr : &joiner->link_key;
}

template <class Target>
void Registry::add_pass_to(const Uuid& from, Target& target) const {
    const Secret* key = link_key_of(uuid_of(target.peer()));
    if (key == nullptr) return;
    const LinkPass pass = link_pass(*key, from);
    target.set_pass_hello(to_bytes(pass.hello));
    target.set_pass_welcome(to_bytes(pass.welcome));
}

void Registry::add_pass(const Uuid& from, proto::DialTarget& target) const { add_pass_to(from, target); }

void Registry::add_way(const Uuid& from, proto::SyncHolder& holder) const {
    if (const auto addresses = addresses_for(from, uuid_of(holder.peer()))) write(*addresses, holder);
    add_pass_to(from, holder);
}

Duration Registry::silence_of(const Uuid& peer) const { return turn_.now - links_.at(link_of(peer)).last_received; }

bool Registry::plan_waits(const Uuid& peer) const {
    const ControlLinks::Link* link = links_.find(link_of(peer));
    return link != nullptr && link->plans_held != 0;
}

void Registry::check() const {
    ASSERT(sessions_.size() == state_.members.size());
    for (const auto& [uuid, session] : sessions_) {
        ASSERT(state_.members.contains(uuid));
        if (session.link == 0) continue;
        const ControlLinks::Link* link = links_.find(session.link);
        ASSERT(link != nullptr && link->stage == ControlLinks::Link::Stage::member && link->uuid == uuid);
    }
}

}  // namespace pccl::core
