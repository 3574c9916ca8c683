// Votes that wait long. Applications may compute for minutes, so waiting has no limit of its own: it is reported after
// Timeouts::vote_warn and ends only where the operator set Timeouts::vote.
#include "core/base/probe.hpp"
#include "core/membership/master_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace pccl::core {

namespace {

constexpr Duration unwritten_warn = 5 * second;
constexpr std::size_t warnings_at_once = 16;  // about votes, in a tick; a program may launch 65,536 tags

// Cast by calls of the application; the ends of operations are voted by the machines themselves.
bool is_call(proto::VoteKind kind) { return kind != proto::VOTE_END && kind != proto::VOTE_SYNC_END; }

bool can_be_given_up(proto::VoteKind kind) {
    return kind == proto::VOTE_UPDATE_TOPOLOGY || kind == proto::VOTE_PEERS_PENDING ||
           kind == proto::VOTE_OPTIMIZE_TOPOLOGY || kind == proto::VOTE_START || kind == proto::VOTE_SYNC;
}

std::string seconds(Duration duration) { return std::to_string(duration / second) + " s"; }

}  // namespace

// Looked up once for each member: it costs a look at all ballots.
const std::string& MasterCore::whereabouts(const Uuid& uuid, Places& places) const {
    const auto [place, fresh] = places.try_emplace(uuid);
    if (fresh) place->second = whereabouts(uuid);
    return place->second;
}

// What a member that is waited for does instead, as far as the master can tell.
std::string MasterCore::whereabouts(const Uuid& uuid) const {
    const auto session = sessions_.find(uuid);
    if (session == sessions_.end() || session->second.link == 0) return "out of reach";
    std::string text;
    std::size_t calls = 0;
    for (const auto& [key, ballot] : ballots_.all()) {
        const auto cast = ballot.votes().find(uuid);
        if (!is_call(key.kind) || cast == ballot.votes().end()) continue;
        if (++calls > 1) continue;
        text = std::string("in '") + to_text(key.kind) + "'";
        if (key.kind == proto::VOTE_START) text += " with tag " + std::to_string(key.id);
        text += " for " + seconds(now_ - cast->second.at);
    }
    if (calls > 1) text += " and " + std::to_string(calls - 1) + " more";
    return calls == 0 ? "in no call" : text;
}

void MasterCore::warn_waiting() {
    Places places;
    std::size_t said = 0;
    for (auto& [key, ballot] : ballots_.all()) {
        // A complete one waits for the master, not for a member.
        if (ballot.warned || ballot.completed_order != 0 || now_ - ballot.opened < config_.timeouts.vote_warn) continue;
        const auto missing = ballot.missing(electors_of(key));
        if (missing.empty()) continue;
        const std::size_t named_max = config_.limits.members_named;
        PROBE(waiting_warned);
        ballot.warned = true;
        if (++said > warnings_at_once) continue;
        std::string text =
            std::string("vote '") + to_text(key.kind) + "' has waited " + seconds(now_ - ballot.opened) + " for";
        for (std::size_t i = 0; i < missing.size() && i < named_max; ++i) {
            text += (i == 0 ? " " : ", ") + short_name(missing[i]) + " (" + whereabouts(missing[i], places) + ")";
        }
        if (missing.size() > named_max) text += " and " + std::to_string(missing.size() - named_max) + " more";
        log(LogLevel::warn, text);
        proto::MasterMessage message;
        message.mutable_notice()->set_text(text);
        message.mutable_notice()->set_warn(true);
        for (const auto& [uuid, cast] : ballot.votes()) {
            const auto session = sessions_.find(uuid);
            if (session != sessions_.end() && session->second.link != 0) say(session->second.link, message);
        }
    }
    if (said > warnings_at_once)
        log(LogLevel::warn, std::to_string(said - warnings_at_once) + " more votes have waited as long");
}

// A disk that neither takes a record nor fails holds every answer, while heartbeats go on. Says so once, also to the members:
// a notice promises nothing, so it is not held behind the record.
void MasterCore::warn_unwritten() {
    if (unwritten_told_ || unwritten_since_ == never || now_ - unwritten_since_ < unwritten_warn) return;
    PROBE(journal_hangs);
    unwritten_told_ = true;
    const std::string text = "the disk of the master's journal has not answered for " +
                             seconds(now_ - unwritten_since_) +
                             "; every call waits for it. Check the disk of the master's state directory";
    log(LogLevel::error, text);
    proto::MasterMessage message;
    message.mutable_notice()->set_text(text);
    message.mutable_notice()->set_warn(true);
    for (auto& [id, link] : links_) {
        if (link.stage == Link::Stage::member) say_at_once(id, link, message);
    }
}

// What happens first to a disk that does not answer.
Duration MasterCore::disk_patience() const {
    const Duration limit = config_.timeouts.journal;
    return limit == 0 ? unwritten_warn : std::min(limit, unwritten_warn);
}

// Where the operator set Timeouts::journal the master stops, so that it can be started again on a disk that answers. What was
// held is dropped: nobody was told, and a journal that lacks it or has it is taken up in the same way.
void MasterCore::stop_unwritten() {
    const Duration limit = config_.timeouts.journal;
    if (limit == 0 || unwritten_since_ == never || now_ - unwritten_since_ < limit) return;
    PROBE(journal_given_up);
    stopped_ = true;
    held_.clear();
    out_->push_back(
        Halt{"the disk of the master's journal has not answered for " + seconds(now_ - unwritten_since_) +
             " (PCCL_JOURNAL_TIMEOUT_S); check the disk, then start the master again: it takes up the run"});
}

// The master did not decide for a while: no wait of that time is held against anybody.
void MasterCore::restart_vote_clocks() {
    for (auto& [key, ballot] : ballots_.all()) ballot.restart_clocks(now_);
    for (auto& [uuid, session] : sessions_) {
        session.free_since = now_;
        session.checked_said = 0;
    }
}

// It did not run for a moment that no other clock notices. What arrived meanwhile is read before the next tick.
void MasterCore::shift_vote_clocks(Duration time) {
    PROBE(vote_clocks_shifted);
    for (auto& [key, ballot] : ballots_.all()) ballot.shift_clocks(time, now_);
    for (auto& [uuid, session] : sessions_) {
        for (Instant* clock : {&session.free_since, &session.checked_at}) *clock = std::min(now_, *clock + time);
    }
    // What waits is read first. But one that never runs for a whole tick has to look at its clocks too.
    if (!std::exchange(tick_put_off_, true)) next_tick_ = now_ + config_.timeouts.tick();
}

// A vote that nobody joined for Timeouts::vote: members that are in no call at all are removed; when all that are missing
// wait in other calls for just as long, the calls cross and fail. A member is judged by the time in which its application
// could have made the call: not while an operation keeps it busy, while its last answer waits for the disk, or while its
// link is away (the clocks of absence and silence decide then). When it has resumed, what it called meanwhile is declared, so
// that time counts, too. `only`: the member that has just resumed is judged, and nobody else; its link may break again before
// the next tick.
void MasterCore::expire_votes(const std::optional<Uuid>& only) {
    const Duration limit = config_.timeouts.vote;
    if (limit == 0 || in_grace() || stopped_) return;
    std::set<Uuid> busy;
    for (const auto& [id, op] : state_.ops) {
        for (const SeatState& seat : op.members) busy.insert(seat.uuid);
    }
    for (const auto& [id, group] : state_.groups) {
        if (!group.sync) continue;
        for (const SeatState& seat : group.sync->members) busy.insert(seat.uuid);
    }
    // A vote that all have joined waits for the master.
    for (const auto& [key, ballot] : ballots_.all()) {
        if (!is_call(key.kind) || !ballot.missing(electors_of(key)).empty()) continue;
        for (const auto& [uuid, cast] : ballot.votes()) busy.insert(uuid);
    }
    for (const Held& held : held_) {
        const auto link = links_.find(held.link);
        if (held.answer && link != links_.end()) busy.insert(link->second.uuid);
    }
    const auto free_for = [&](const Uuid& uuid) -> Duration {
        const auto session = sessions_.find(uuid);
        const bool here = session != sessions_.end() && session->second.link != 0 && session->second.resumed;
        if (!here || busy.contains(uuid)) return 0;
        const Duration waits = now_ - session->second.free_since;
        const bool arrived = session->second.answer_said == 0 || waits > 2 * config_.timeouts.peer;
        return arrived ? waits : 0;
    };
    // Its call may still be on its way: in time for the vote that was `changed` then. Where nothing is acknowledged for long,
    // the link is as good as none.
    const auto in_no_call = [&](const Uuid& uuid, Instant changed) {
        Session& session = sessions_.at(uuid);
        Link& link = links_.at(session.link);
        const Instant over = std::max(session.free_since, changed) + limit;
        // It has resumed since then, so a call that it made in time was declared. Without this a link that breaks more often
        // than heartbeats come would keep a member for ever.
        if (session.came_back >= over) {
            PROBE(idle_by_its_resume);
            return true;
        }
        if (session.checked_said == 0 || session.checked_at < over) {
            say_heartbeat(session.link, link);
            session.checked_said = link.said;
            session.checked_at = now_;
            return false;
        }
        return link.heard >= session.checked_said || now_ - session.checked_at > 2 * config_.timeouts.peer;
    };
    // One that is away may be lost, and is not waited for then. But one that came back since its wait was over lives: its link
    // may be away at each tick.
    const auto waits_still = [&](const Uuid& uuid, Instant over) {
        const auto session = sessions_.find(uuid);
        return present(uuid) || (session != sessions_.end() && session->second.came_back >= over);
    };
    std::map<Uuid, Instant> called;  // when a member joined the last of the votes that it waits in
    for (const auto& [key, ballot] : ballots_.all()) {
        if (!is_call(key.kind)) continue;
        for (const auto& [uuid, cast] : ballot.votes()) called[uuid] = std::max(called[uuid], cast.at);
    }
    std::map<Uuid, std::pair<Instant, BallotKey>> late;  // for the one of the votes that waits longest
    std::vector<std::pair<BallotKey, std::string>> crossing;
    Places places;
    for (const auto& [key, ballot] : ballots_.all()) {
        if (!is_call(key.kind) || now_ - ballot.changed < limit) continue;
        const auto missing = ballot.missing(electors_of(key));
        if (missing.empty()) continue;
        bool all_wait = true;
        for (const Uuid& uuid : missing) {
            if (only && uuid != *only) continue;
            const auto call = called.find(uuid);
            if (call == called.end() && free_for(uuid) >= limit) {
                const auto vote = late.try_emplace(uuid, ballot.changed, key).first;
                if (ballot.changed < vote->second.first) vote->second = {ballot.changed, key};
            }
            all_wait = all_wait && call != called.end() && now_ - call->second >= limit && !busy.contains(uuid) &&
                       waits_still(uuid, call->second + limit);
        }
        if (only || !all_wait || !can_be_given_up(key.kind)) continue;
        crossing.emplace_back(key, std::string("'") + to_text(key.kind) + "' waits for " + short_name(missing[0]) +
                                       ", which is " + whereabouts(missing[0], places) +
                                       "; all members have to make the same calls (PCCL_VOTE_TIMEOUT_S has passed)");
    }
    std::erase_if(late, [&](const auto& entry) { return !in_no_call(entry.first, entry.second.first); });
    for (const auto& [uuid, vote] : late) {
        PROBE(vote_timed_out);
        remove(uuid, std::string("the others waited ") + seconds(now_ - vote.first) + " for its vote '" +
                         to_text(vote.second.kind) + "' (PCCL_VOTE_TIMEOUT_S)");
    }
    // Whoever went may have been what the others waited for: they are looked at anew at the next tick.
    if (!late.empty()) return;
    for (const auto& [key, reason] : crossing) {
        PROBE(vote_given_up);
        log(LogLevel::warn, "given up: " + reason);
        give_up(key, reason);
    }
}

void MasterCore::give_up(const BallotKey& key, const std::string& reason) {
    constexpr auto result = static_cast<std::uint32_t>(Result::invalid_usage);
    if (key.kind == proto::VOTE_START) {
        refuse_start(key, Result::invalid_usage, reason);
        return;
    }
    if (!can_be_given_up(key.kind)) return;
    const Ballot ballot = ballots_.take(key);
    proto::Decision decision;
    const auto add = [&](auto& seats) {
        for (const auto& [uuid, cast] : ballot.votes()) {
            auto* seat = seats.Add();
            seat->set_uuid(to_bytes(uuid));
            seat->set_serial(cast.serial);
        }
    };
    if (key.kind == proto::VOTE_UPDATE_TOPOLOGY) {
        auto* topology = decision.mutable_topology();
        add(*topology->mutable_voters());
        topology->set_result(result);
        topology->set_reason(reason);
        *topology->mutable_sizes() = state_.sizes();
    } else if (key.kind == proto::VOTE_PEERS_PENDING) {
        auto* pending = decision.mutable_pending();
        add(*pending->mutable_voters());
        pending->set_result(result);
        pending->set_reason(reason);
        *pending->mutable_sizes() = state_.sizes();
    } else if (key.kind == proto::VOTE_OPTIMIZE_TOPOLOGY) {
        auto* optimize = decision.mutable_optimize();
        add(*optimize->mutable_voters());
        optimize->set_result(result);
        optimize->set_reason(reason);
        *optimize->mutable_sizes() = state_.sizes();
    } else {
        auto* sync = decision.mutable_sync();
        sync->set_group(key.group);
        sync->set_final(true);
        sync->set_expected(state_.groups.at(key.group).expected);
        for (const auto& [uuid, cast] : ballot.votes()) {
            auto* seat = sync->add_seats();
            seat->set_uuid(to_bytes(uuid));
            seat->set_serial(cast.serial);
            seat->set_result(result);
            seat->set_reason(reason);
        }
        *sync->mutable_sizes() = state_.sizes();
        key_comparisons_.erase(key.group);
    }
    append(decision);
}

}  // namespace pccl::core
