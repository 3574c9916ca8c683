#include "core/membership/master_core.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/links/waiting_room.hpp"
#include "core/membership/journal.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <limits>

namespace pccl::core {

namespace {
// Three breaks in a row can be bad luck on a healthy member's path.
constexpr std::uint32_t resumes_in_vain_max = 3;

// The host alone: the port of a stranger differs each time and would make each log line a new one.
std::string host_of(const Endpoint& remote) {
    const std::string text = to_text(remote);
    return text.substr(0, text.rfind(':'));
}
}  // namespace

MasterCore::MasterCore(const MasterConfig& config)
    : config_(config), random_(config.seed), secrets_(config.key, config.seed), state_(config.limits.removed_kept) {
    ASSERT(impossible(config_.limits) == nullptr);
    ASSERT(config_.limits.control_bytes_max >= control_bytes_least);
    ASSERT(config_.limits.control_bytes_max - key_overhead >= config_.limits.key_bytes_max);
}

bool MasterCore::start(Instant now, std::span<const std::string> journal, Effects& out) {
    out_ = &out;
    now_ = last_event_ = tallies_.began = now;
    proto::Record record;
    JournalReader reader(journal);
    for (auto step = reader.next(record); step != JournalReader::Step::end; step = reader.next(record)) {
        if (step == JournalReader::Step::damaged || !state_.apply(record)) {
            out.push_back(Halt{"the journal is damaged or not one of this program"});
            stopped_ = true;
            out_ = nullptr;
            return false;
        }
        if (record.has_snapshot()) {
            PROBE(snapshot_read);
            journal_records_ = journal_bytes_ = 0;
            snapshot_bytes_ = record.ByteSizeLong();
        } else {
            ++journal_records_;
            journal_bytes_ += record.ByteSizeLong();
        }
    }
    if (reader.torn() != 0) PROBE(journal_torn);
    if (reader.torn() != 0) log(LogLevel::warn, "the journal ends with a record that was not written in full; skipped");
    if (state_.run_id.is_nil()) begin_new_run();
    record.Clear();
    record.set_incarnation(state_.incarnation + 1);
    persist(record);
    if (!state_.members.empty()) {
        PROBE(master_restarted);
        if (!state_.ops.empty()) PROBE(master_restarted_with_operation);
        if (!state_.kept().empty()) PROBE(master_restarted_with_untold);
        for (const auto& [uuid, member] : state_.members) {
            Session& session = sessions_[uuid];
            session.absent_since = session.since = now;
            session.link_key = secrets_.next();
        }
        for (const auto& [id, group] : state_.groups) {
            if (group.sync) PROBE(master_restarted_with_sync);
        }
        grace_until_ = now + config_.timeouts.grace();
        log(LogLevel::info, "took up the run with " + std::to_string(state_.members.size()) + " members");
    }
    next_tick_ = now + config_.timeouts.tick();
    out_ = nullptr;
    return true;
}

void MasterCore::begin_new_run() {
    Uuid id;
    for (std::size_t i = 0; i < 16; i += 8) {
        const std::uint64_t word = random_.next() | 1;
        for (std::size_t k = 0; k < 8; ++k) id.bytes[i + k] = static_cast<std::uint8_t>(word >> (8 * k));
    }
    proto::Record record;
    record.set_run(to_bytes(id));
    persist(record);
}

Status MasterCore::handle(Instant now, const Event& event, Effects& out) {
    if (now < now_) return Status::misuse;
    if (stopped_) return Status::ok;
    out_ = &out;
    now_ = now;
    // Where nothing is waited for no timer runs, so a gap says nothing. A tick is due in between; with a short time-out it
    // alone takes a quarter of it.
    const Duration gap = timer_runs() ? now - last_event_ - config_.timeouts.tick() : 0;
    if (gap > config_.timeouts.peer / 4)
        slept(now - last_event_);
    else if (gap > config_.timeouts.tick()) {
        shift_vote_clocks(gap);  // their limit may be far shorter than the peer time-out
        forget_order_of_events();
    }
    if (gap > disk_patience() / 4 && unwritten_since_ != never) unwritten_since_ = now_;  // nor is the disk blamed
    last_event_ = now;
    if (const auto* e = std::get_if<LinkAccepted>(&event))
        on_accepted(*e);
    else if (const auto* e = std::get_if<LinkClosed>(&event))
        on_closed(e->link);
    else if (const auto* e = std::get_if<ControlArrived>(&event))
        on_control(*e);
    else if (const auto* e = std::get_if<FrameRefused>(&event))
        on_refused(*e);
    else if (const auto* e = std::get_if<FlowArrived>(&event))
        close_link(e->link, "sent a data frame to the master");
    else if (const auto* e = std::get_if<BulkArrived>(&event))
        close_link(e->link, "sent a data frame to the master");
    else if (const auto* e = std::get_if<LinkActivity>(&event)) {
        const auto it = links_.find(e->link);
        if (it != links_.end()) heard(it->second);
    } else if (const auto* e = std::get_if<RecordPersisted>(&event)) {
        ASSERT(e->sequence <= last_sequence_);
        if (unwritten_since_ != never && now_ - unwritten_since_ > config_.timeouts.peer / 4) {
            PROBE(disk_hung);
            edges_.shift_clocks(now_ - unwritten_since_, now_);
            for (auto& [uuid, joiner] : joiners_) {
                if (joiner.placed != never) joiner.placed = std::min(joiner.placed + now_ - unwritten_since_, now_);
            }
        }
        durable_sequence_ = std::max(durable_sequence_, e->sequence);
        unwritten_since_ = durable_sequence_ < last_sequence_ ? now_ : never;
        if (unwritten_told_) log(LogLevel::warn, "the journal is written again");
        unwritten_told_ = false;
        release_held();
    } else if (const auto* e = std::get_if<RecordFailed>(&event)) {
        PROBE(journal_not_written);
        // Nothing unrecorded may be promised: the held messages are dropped with the machine.
        stopped_ = true;
        held_.clear();
        out.push_back(Halt{"the journal cannot be written: " + e->reason});
        out_ = nullptr;
        return Status::ok;
    } else if (std::holds_alternative<Timer>(event)) {
        // handled below
    } else {
        out_ = nullptr;
        return Status::misuse;
    }
    if (now_ >= next_tick_) tick();
    if (stopped_) {
        out_ = nullptr;
        return Status::ok;
    }
    piece_left_ = config_.limits.search_steps;
    // Its time has come; if the search goes on, it sets the next one.
    if (survey_ && survey_->next_piece <= now_) survey_->next_piece = never;
    if (survey_) dirty_.push_back(BallotKey{proto::VOTE_OPTIMIZE_TOPOLOGY, 0, 0});
    settle();
    compact_if_due();
    out_ = nullptr;
    return Status::ok;
}

// This machine did not run. Nobody is blamed for that time: it is left out of every clock that can remove a member, close a
// link or give up a vote. The tick waits, too: what arrived meanwhile is read before anybody is judged.
// After a sleep the peers may have to dial again, so clocks of links and members even start anew; but not before this machine
// ran for `awake_least` since it last did so: a machine that stops again and again would never notice a death.
void MasterCore::slept(Duration time) {
    PROBE(master_slept);
    const Duration awake_least = 4 * config_.timeouts.peer + config_.timeouts.handshake;
    const bool anew = clocks_anew_at_ == -never || now_ - clocks_anew_at_ - time > awake_least;
    if (!anew) PROBE(master_slept_again);
    clocks_anew_at_ = anew ? now_ : std::min(now_, clocks_anew_at_ + time);
    const auto leave_out = [&](Instant& clock) { clock = anew ? now_ : std::min(now_, clock + time); };
    for (auto& [id, link] : links_) {
        leave_out(link.last_received);
        leave_out(link.opened);
        if (link.unheard_since != never) leave_out(link.unheard_since);
    }
    for (auto& [uuid, session] : sessions_) leave_out(session.absent_since);
    for (auto& [uuid, joiner] : joiners_) {
        if (joiner.placed != never) leave_out(joiner.placed);
    }
    for (auto& [group, comparison] : key_comparisons_) {
        leave_out(comparison.progress);
        leave_out(comparison.began);
    }
    if (anew)
        edges_.restart_clocks(now_);
    else
        edges_.shift_clocks(time, now_);
    shift_vote_clocks(time);
    forget_order_of_events();
    if (survey_) {
        survey_->ends += time;
        for (auto& [id, test] : survey_->tests) test.began += time;
    }
    if (in_grace()) {
        PROBE(slept_in_grace);
        grace_until_ = anew ? now_ + config_.timeouts.grace() : grace_until_ + time;
    }
    log(LogLevel::warn,
        "the master did not run for " + std::to_string(time / millisecond) + " ms; silence clocks start anew");
}

// Sessions alone are enough: members that may still resume are waited for without any link. So is a record: the disk of a
// master that nobody has reached yet may hang.
bool MasterCore::timer_runs() const { return !links_.empty() || !sessions_.empty() || unwritten_since_ != never; }

Instant MasterCore::next_deadline() const {
    if (stopped_ || !timer_runs()) return never;
    return survey_ ? std::min(next_tick_, survey_->next_piece) : next_tick_;
}

void MasterCore::on_accepted(const LinkAccepted& event) {
    const bool known =
        std::any_of(state_.members.begin(), state_.members.end(),
                    [&](const auto& entry) { return same_host(entry.second.endpoint, event.remote); }) ||
        std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
            return entry.second.stage == Link::Stage::member && same_host(entry.second.remote, event.remote);
        });
    std::vector<WaitingLink> waiting;
    for (const auto& [id, link] : links_) {
        if (link.stage == Link::Stage::fresh || link.stage == Link::Stage::closing)
            waiting.push_back({id, link.remote, link.opened, link.known});
    }
    if (const LinkId old = who_gives_way(waiting, known, config_.limits.unregistered_links_max); old != 0) {
        PROBE(stranger_gave_way);
        ++refused_frames_;
        out_->push_back(CloseLink{old, false});
        on_closed(old);
    }
    Link& link = links_[event.link];
    link.known = known;
    link.remote = event.remote;
    link.opened = link.last_received = link.last_sent = now_;
    if (next_tick_ == never || next_tick_ < now_) next_tick_ = now_ + config_.timeouts.tick();
}

void MasterCore::on_closed(LinkId id) {
    const auto it = links_.find(id);
    if (it == links_.end()) return;
    const Link link = it->second;
    links_.erase(it);
    detach(id, link);
}

// The joiner or the session that used this link loses it.
void MasterCore::detach(LinkId id, const Link& link) {
    if (link.stage == Link::Stage::registered) {
        const auto joiner = joiners_.find(link.uuid);
        if (joiner != joiners_.end() && joiner->second.link == id) {
            PROBE(joiner_lost);
            joiners_.erase(joiner);
            edges_.forget(link.uuid);
            topology_dirty_ = true;
        }
    } else if (link.stage == Link::Stage::member) {
        const auto session = sessions_.find(link.uuid);
        if (session == sessions_.end() || session->second.link != id) return;
        begin_absence(session->second);
        session->second.closed_seen = true;
        session->second.closed_at = now_;
        abandon_tests(link.uuid, true);
        log(LogLevel::info, "control link of " + short_name(link.uuid) + " closed; its seat is kept");
        if (!in_grace() && now_ >= sees_again_at_ && neighbour_lost(link.uuid)) {
            PROBE(removed_by_both_links);
            remove(link.uuid, "its control link and a neighbour's data links to it closed");
        }
    }
}

// The welcome of a resuming member waits for a record, and has done so for a tick.
bool MasterCore::waits_for_disk(const Session& session) const {
    return std::any_of(held_.begin(), held_.end(), [&](const Held& held) {
        return held.welcome && held.link == session.link && now_ - held.since >= config_.timeouts.tick();
    });
}

// A resume is complete when the member has declared everything unanswered and something that it was told has arrived. A link
// that breaks before that made no progress, unless this master's disk kept the member waiting.
void MasterCore::begin_absence(Session& session) {
    if (session.resumed && session.settled) {
        session.resumes_in_vain = 0;
        session.absent_since = now_;
    } else if (waits_for_disk(session)) {
        PROBE(resume_waited_for_disk);
        session.absent_since = now_;
    } else if (++session.resumes_in_vain <= resumes_in_vain_max) {
        session.absent_since = now_;
    } else {
        PROBE(resumed_in_vain);
    }
    session.link = 0;
    session.resumed = session.settled = false;
}

bool MasterCore::absent_too_long(const Session& session) const {
    const bool in_vain = session.link != 0 && !(session.resumed && session.settled) &&
                         session.resumes_in_vain > resumes_in_vain_max && !waits_for_disk(session);
    // One that is connected, lives and never comes to the end of what it declares takes part in no vote.
    const Duration away = now_ - session.absent_since;
    const bool undeclared = session.link != 0 && !session.resumed && away > 4 * config_.timeouts.peer;
    return ((session.link == 0 || in_vain) && away > config_.timeouts.peer) || (undeclared && !waits_for_disk(session));
}

void MasterCore::on_refused(const FrameRefused& event) {
    const auto it = links_.find(event.link);
    if (it == links_.end()) return;
    ++refused_frames_;
    if (event.error == wire::WireError::bad_version && it->second.stage != Link::Stage::closing) {
        refuse(event.link, proto::REFUSED_VERSION,
               "the master at this address speaks protocol version " + std::to_string(wire::protocol_version) +
                   ", this peer speaks version " + std::to_string(event.version));
        return;
    }
    close_link(event.link, wire::to_text(event.error));
}

void MasterCore::on_control(const ControlArrived& event) {
    const auto it = links_.find(event.link);
    if (it == links_.end()) return;
    if (it->second.stage == Link::Stage::closing) return;
    proto::PeerMessage message;
    if (!decode(event.body, message) || message.kind_case() == proto::PeerMessage::KIND_NOT_SET) {
        close_link(event.link, "sent a control message that cannot be read");
        return;
    }
    wire::bound_texts(message, text_bytes_max);
    heard(it->second);
    if (it->second.stage == Link::Stage::fresh) {
        if (message.has_hello())
            on_hello(event.link, message.hello());
        else
            close_link(event.link, "did not begin with a hello");
        return;
    }
    on_member_message(event.link, message);
}

void MasterCore::forget_order_of_events() { sees_again_at_ = now_ + config_.timeouts.tick() + witness_fresh; }

// Members send heartbeats more often than twice in a peer time-out: one that was silent for longer did not run, or was cut
// off, and could not be connected by its neighbours.
void MasterCore::heard(Link& link) {
    const Duration silence = now_ - link.last_received;
    link.last_received = now_;
    if (link.stage != Link::Stage::member || silence <= config_.timeouts.peer / 2) return;
    PROBE(heard_after_silence);
    edges_.heard_again(link.uuid, now_);
}

// Heartbeats acknowledge messages as often. A member that acknowledges none for so long speaks, but what is sent to it does
// not arrive: neither does whom to dial.
bool MasterCore::deaf(const Link& link) const {
    return link.unheard_since != never && now_ - link.unheard_since > config_.timeouts.peer / 2;
}

void MasterCore::hears(Link& link, std::uint64_t heard) {
    heard = std::min(heard, link.said);
    if (heard <= link.heard) return;
    const bool was_deaf = deaf(link);
    link.heard = heard;
    link.unheard_since = heard == link.said ? never : now_;
    if (was_deaf) edges_.heard_again(link.uuid, now_);
    // Its application has the answer by now; since when is not known.
    const auto session = sessions_.find(link.uuid);
    if (session == sessions_.end() || session->second.answer_said == 0 || heard < session->second.answer_said) return;
    session->second.answer_said = 0;
    session->second.free_since = now_;
}

void MasterCore::acknowledge(Link& link, std::uint64_t seen) {
    const std::size_t before = state_.untold(link.uuid);
    state_.acknowledge(link.uuid, seen);
    const std::size_t left = state_.untold(link.uuid);
    if (const auto session = sessions_.find(link.uuid); session != sessions_.end() && (left == 0 || left != before))
        session->second.settled = true;
}

void MasterCore::tick() {
    tick_put_off_ = false;
    next_tick_ = now_ + config_.timeouts.tick();
    std::vector<LinkId> late, silent;
    for (auto& [id, link] : links_) {
        if (link.stage == Link::Stage::fresh) {
            if (now_ - link.opened > config_.timeouts.handshake) late.push_back(id);
        } else if (link.stage == Link::Stage::closing) {
            // Its refusal waits for the disk, however long. on_accepted() bounds how many such links there are.
        } else if (!link.welcomed) {
            // Its welcome waits for the disk, and it says nothing before that.
            PROBE(welcome_waits_for_the_disk);
        } else if (now_ - link.last_received > config_.timeouts.peer) {
            silent.push_back(id);
        } else if (now_ - link.last_sent >= config_.timeouts.peer / 5) {
            say_heartbeat(id, link);
        }
    }
    for (const LinkId id : late) close_link(id, "said nothing within the handshake time");
    for (const LinkId id : silent) {
        const auto it = links_.find(id);
        if (it == links_.end()) continue;
        const Link link = it->second;
        if (link.stage == Link::Stage::member && !in_grace()) {
            PROBE(member_silent);
            remove(link.uuid, "silent towards the master for " +
                                  std::to_string((now_ - link.last_received) / millisecond) + " ms");
        } else {
            if (in_grace()) PROBE(silent_in_grace);
            close_link(id, "silent");
        }
    }
    end_grace_if_due();
    if (!in_grace()) {
        std::vector<Uuid> gone;
        for (const auto& [uuid, session] : sessions_) {
            if (absent_too_long(session)) gone.push_back(uuid);
        }
        if (!gone.empty()) PROBE(absent_too_long);
        for (const Uuid& uuid : gone) remove(uuid, "its control link closed and it did not resume in time");
    }
    remove_unheeding();
    for (auto& [uuid, joiner] : joiners_) joiner.reports = 0;
    topology_dirty_ = true;
    search_in_background();
    warn_waiting();
    warn_unwritten();
    expire_votes();
    end_late_comparisons();
    stop_unwritten();
}

// ---- sending and journal -----------------------------------------------------------------------------------------

void MasterCore::log(LogLevel level, std::string text) { out_->push_back(Log{level, std::move(text)}); }

// What goes to `link`: its texts are cut to what the other end takes; what can grow otherwise was paged before.
std::string MasterCore::encode_for(const Link& link, proto::MasterMessage& message) {
    wire::bound_texts(message, wire::text_limit(link.control_bytes));
    std::string body = encode(message);
    ASSERT(body.size() <= link.control_bytes);
    return body;
}

void MasterCore::say(LinkId id, proto::MasterMessage message) {
    const auto it = links_.find(id);
    if (it == links_.end()) return;
    if (durable_sequence_ < last_sequence_ || !held_.empty()) {
        PROBE(held_for_a_record);
        if (message.has_plan() && it->second.plans_held++ == 0) it->second.plan_held_since = now_;
        keep_held({last_sequence_, id, encode_for(it->second, message), false, message.has_answer(), message.has_plan(),
                   message.has_welcome(), now_});
        return;
    }
    if (message.has_answer()) answer_left(it->second);
    say_at_once(id, it->second, std::move(message));
}

// What is for nobody any more goes now and then: the disk may hang for long, and links come and go.
void MasterCore::keep_held(Held held) {
    held_.push_back(std::move(held));
    if (held_.size() < 2 * held_kept_ + 64) return;
    std::erase_if(held_, [&](const Held& one) { return !links_.contains(one.link); });
    held_kept_ = held_.size();
}

void MasterCore::say_at_once(LinkId id, Link& link, proto::MasterMessage message) {
    if (message.has_welcome()) welcome_leaves(link);
    leaves(id, link, encode_for(link, message));
}

void MasterCore::say_heartbeat(LinkId id, Link& link) {
    proto::MasterMessage message;
    message.set_heartbeat(true);
    say_at_once(id, link, std::move(message));
}

// The other end speaks from here on.
void MasterCore::welcome_leaves(Link& link) {
    link.welcomed = true;
    link.last_received = now_;
}

void MasterCore::leaves(LinkId id, Link& link, std::string body) {
    link.last_sent = now_;
    ++link.said;
    link.unheard_since = std::min(link.unheard_since, now_);
    out_->push_back(SendControl{id, std::move(body)});
}

void MasterCore::answer_left(Link& link) {
    const auto session = sessions_.find(link.uuid);
    if (session == sessions_.end()) return;
    session->second.free_since = now_;
    session->second.answer_said = link.said + 1;
}

// `hold`: the message rests on a record, so it leaves (and the link closes) when that is durable.
void MasterCore::say_and_close(LinkId id, proto::MasterMessage message, bool hold) {
    const auto it = links_.find(id);
    if (it == links_.end() || it->second.stage == Link::Stage::closing) return;
    const Link link = it->second;
    if (hold && (durable_sequence_ < last_sequence_ || !held_.empty())) {
        it->second.stage = Link::Stage::closing;
        it->second.uuid = Uuid{};
        it->second.opened = now_;
        PROBE(refusal_held);
        keep_held({last_sequence_, id, encode_for(link, message), true, false, false, false, now_});
    } else {
        links_.erase(it);
        out_->push_back(SendControl{id, encode_for(link, message)});
        out_->push_back(CloseLink{id, true});
    }
    detach(id, link);
}

void MasterCore::release_held() {
    while (!held_.empty() && held_.front().sequence <= durable_sequence_) {
        Held held = std::move(held_.front());
        held_.pop_front();
        const auto it = links_.find(held.link);
        if (it == links_.end()) PROBE(held_for_a_lost_link);
        if (it == links_.end()) continue;
        if (held.answer) answer_left(it->second);
        if (held.welcome) welcome_leaves(it->second);
        if (const auto session = sessions_.find(it->second.uuid); held.welcome && session != sessions_.end()) {
            // No time of a resuming member passes while its welcome waits, nor does that of its application.
            for (Instant* clock : {&session->second.absent_since, &session->second.free_since})
                *clock = std::min(now_, *clock + (now_ - held.since));
        }
        if (held.plan && --it->second.plans_held == 0) {
            if (now_ - it->second.plan_held_since > config_.timeouts.tick()) edges_.told_again(it->second.uuid, now_);
            topology_dirty_ = true;  // another one may wait for it
        }
        leaves(held.link, it->second, std::move(held.body));
        if (held.close) {
            links_.erase(it);
            out_->push_back(CloseLink{held.link, true});
        }
    }
}

void MasterCore::refuse(LinkId link, proto::RefusalCode code, const std::string& text) {
    proto::MasterMessage message;
    message.mutable_refusal()->set_code(code);
    message.mutable_refusal()->set_text(text);
    message.mutable_refusal()->set_protocol_version(wire::protocol_version);
    const auto it = links_.find(link);
    log(LogLevel::warn,
        "refused " + (it == links_.end() ? std::string("a peer") : host_of(it->second.remote)) + ": " + text);
    say_and_close(link, message, code == proto::REFUSED_REMOVED || code == proto::REFUSED_OTHER_RUN);
}

void MasterCore::close_link(LinkId id, const std::string& why) {
    const auto it = links_.find(id);
    if (it == links_.end()) return;
    log(it->second.stage == Link::Stage::fresh ? LogLevel::warn : LogLevel::info,
        "closed a connection from " + host_of(it->second.remote) + ": " + why);
    out_->push_back(CloseLink{id, false});
    on_closed(id);
}

void MasterCore::persist(const proto::Record& record) {
    tally(record);
    const bool ours = state_.apply(record);
    ASSERT(ours);
    std::string bytes = seal_record(record);
    ++journal_records_;
    journal_bytes_ += bytes.size();
    if (unwritten_since_ == never) unwritten_since_ = now_;
    out_->push_back(Persist{++last_sequence_, std::move(bytes)});
}

// Names of operations, synchronizations and tests never repeat in a run: the upper half is the incarnation, and one whose
// lower half is used up is followed by the next, as after a restart.
OpId MasterCore::next_id() {
    if (op_counter_ >= config_.limits.ids_per_incarnation) {
        PROBE(ids_of_incarnation_used_up);
        proto::Record record;
        record.set_incarnation(state_.incarnation + 1);
        persist(record);
        op_counter_ = 0;
    }
    return (static_cast<OpId>(state_.incarnation) << 32) | ++op_counter_;
}

// What a member has not acknowledged is kept for it. One that lives and never acknowledges would fill the memory. The journal
// does not hold acknowledgements, so after a restart a member is judged only when it has resumed: its hello carries them.
void MasterCore::remove_unheeding() {
    std::vector<Uuid> over;
    for (const auto& [uuid, session] : sessions_) {
        if (session.resumed && state_.untold(uuid) > config_.limits.untold_max) over.push_back(uuid);
    }
    for (const Uuid& uuid : over) {
        remove(uuid, "did not acknowledge " + std::to_string(state_.untold(uuid)) + " decisions that it was told");
    }
}

// A long run's journal does not grow without bound: now and then one record says what all before it say. Between two
// events, so that nothing is under way; as long as a snapshot is large, so is what has to come before the next one.
void MasterCore::compact_if_due() {
    // In a grace every decision since the last snapshot is still kept for all members: their hellos carry what they know.
    if (in_grace()) return;
    if (journal_records_ < config_.limits.journal_records || journal_bytes_ < snapshot_bytes_) return;
    proto::Record record;
    *record.mutable_snapshot() = state_.snapshot();
    journal_records_ = journal_bytes_ = 0;
    RunState again(config_.limits.removed_kept);
    if (record.ByteSizeLong() > std::numeric_limits<int>::max() || !again.apply(record) || again != state_) {
        // A longer journal is better than a wrong one.
        log(LogLevel::error, "the journal cannot be compacted: its snapshot does not give the same state again");
        return;
    }
    std::string bytes = seal_record(record);
    PROBE(journal_compacted);
    if (!state_.ops.empty()) PROBE(compacted_with_operation);
    if (!state_.kept().empty()) PROBE(compacted_with_untold);
    snapshot_bytes_ = bytes.size();
    if (unwritten_since_ == never) unwritten_since_ = now_;
    out_->push_back(Persist{++last_sequence_, std::move(bytes), true});
}

// The sizes that a decision tells its recipients; null for one that tells none.
static const proto::Sizes* sizes_in(const proto::Decision& decision) {
    switch (decision.kind_case()) {
    case proto::Decision::kTopology: return &decision.topology().sizes();
    case proto::Decision::kPending: return &decision.pending().sizes();
    case proto::Decision::kStart: return &decision.start().sizes();
    case proto::Decision::kOutcome: return &decision.outcome().sizes();
    case proto::Decision::kSync: return &decision.sync().sizes();
    case proto::Decision::kOptimize: return &decision.optimize().sizes();
    default: return nullptr;
    }
}

void MasterCore::append(proto::Decision& decision) {
    wire::bound_texts(decision, text_bytes_max);
    decision.set_index(state_.last_index + 1);
    decision.set_chain(RunState::chain_of(decision, state_.chain));
    proto::Record record;
    *record.mutable_decision() = decision;
    persist(record);
    // Whoever learns this decision learns the world that it leaves.
    if (const proto::Sizes* sizes = sizes_in(decision)) ASSERT(state_.has_sizes(*sizes));
    for (const Uuid& uuid : RunState::recipients(decision)) {
        const auto session = sessions_.find(uuid);
        if (session != sessions_.end() && session->second.link == 0) PROBE(answer_for_absent_member);
        if (session == sessions_.end() || session->second.link == 0) continue;  // told when it resumes
        const auto answer =
            RunState::answer_for(decision, uuid, state_.members.at(uuid).group, config_.limits.holders_told_max);
        if (!answer) continue;
        tell(session->second.link, uuid, *answer);
    }
}

// Answers are derived from decisions; what is secret is added when they are sent.
void MasterCore::tell(LinkId link, const Uuid& uuid, proto::Answer answer) {
    if (answer.has_sync()) {
        for (auto& holder : *answer.mutable_sync()->mutable_holders()) add_pass(uuid, holder);
    }
    proto::MasterMessage message;
    *message.mutable_answer() = std::move(answer);
    say(link, message);
}

void MasterCore::notice_all(const std::string& text) {
    proto::MasterMessage message;
    message.mutable_notice()->set_text(text);
    message.mutable_notice()->set_warn(true);
    for (const auto& [uuid, session] : sessions_) {
        if (session.link != 0) say(session.link, message);
    }
}

void MasterCore::shut_down(Instant now, Effects& out) {
    out_ = &out;
    now_ = std::max(now, now_);
    proto::MasterMessage message;
    message.mutable_refusal()->set_code(proto::REFUSED_STOPPING);
    message.mutable_refusal()->set_text(
        "the master was stopped on purpose and the run has ended; connect again when it runs");
    for (auto& [id, link] : links_) {
        say_at_once(id, link, message);
        out_->push_back(CloseLink{id, true});
    }
    links_.clear();
    held_.clear();
    stopped_ = true;
    out_ = nullptr;
}

}  // namespace pccl::core
