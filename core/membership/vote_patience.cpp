#include "core/membership/vote_patience.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/voting/electors.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace pccl::core {

namespace {

constexpr std::size_t warnings_at_once = 16;  // warnings about votes in one tick; a program may launch 65,536 tags

// Calls of the application cast these votes. The machines themselves vote for the ends of operations and
// synchronizations.
bool is_call(proto::VoteKind kind) { return kind != proto::VOTE_END && kind != proto::VOTE_SYNC_END; }

bool can_be_given_up(proto::VoteKind kind) {
    return kind == proto::VOTE_UPDATE_TOPOLOGY || kind == proto::VOTE_PEERS_PENDING ||
           kind == proto::VOTE_OPTIMIZE_TOPOLOGY || kind == proto::VOTE_START || kind == proto::VOTE_SYNC;
}

}  // namespace

// Computed once for each member, because it looks at all ballots.
const std::string& VotePatience::whereabouts(const Uuid& uuid, Places& places) const {
    const auto [place, fresh] = places.try_emplace(uuid);
    if (fresh) place->second = whereabouts(uuid);
    return place->second;
}

// Describes where a missing member is instead, as far as the master can tell.
std::string VotePatience::whereabouts(const Uuid& uuid) const {
    if (roster_.link_of(uuid) == 0) return "out of reach";
    std::string text;
    std::size_t calls = 0;
    for (const auto& [key, ballot] : ballots_.all()) {
        const auto cast = ballot.votes().find(uuid);
        if (!is_call(key.kind) || cast == ballot.votes().end()) continue;
        if (++calls > 1) continue;
        text = formatted("in '{}'", to_text(key.kind));
        if (key.kind == proto::VOTE_START) text += formatted(" with tag {}", key.id);
        text += formatted(" for {} s", (turn_.now - cast->second.at) / second);
    }
    if (calls > 1) text += formatted(" and {} more", calls - 1);
    return calls == 0 ? "in no call" : text;
}

void VotePatience::warn() {
    Places places;
    std::size_t said = 0;
    for (auto& [key, ballot] : ballots_.all()) {
        // A complete ballot waits for the master, not for a member.
        if (ballot.warned || ballot.completed_order != 0 || turn_.now - ballot.opened < turn_.timeouts.vote_warn)
            continue;
        const auto missing = ballot.missing(electors_of(state_, key));
        if (missing.empty()) continue;
        const std::size_t named_max = turn_.limits.members_named;
        PROBE(waiting_warned);
        ballot.warned = true;
        if (++said > warnings_at_once) continue;
        std::string text =
            formatted("vote '{}' has waited {} s for", to_text(key.kind), (turn_.now - ballot.opened) / second);
        for (std::size_t i = 0; i < missing.size() && i < named_max; ++i) {
            text +=
                formatted("{}{} ({})", i == 0 ? " " : ", ", short_name(missing[i]), whereabouts(missing[i], places));
        }
        if (missing.size() > named_max) text += formatted(" and {} more", missing.size() - named_max);
        turn_.log(LogLevel::warn, text);
        proto::MasterMessage message;
        message.mutable_notice()->set_text(text);
        message.mutable_notice()->set_warn(true);
        for (const auto& [uuid, cast] : ballot.votes()) roster_.say(uuid, message);
    }
    if (said > warnings_at_once)
        turn_.log(LogLevel::warn, formatted("{} more votes have waited as long", said - warnings_at_once));
}

// The master made no decisions for a while. That time counts against nobody.
void VotePatience::restart_clocks() {
    for (auto& [key, ballot] : ballots_.all()) ballot.restart_clocks(turn_.now);
    for (auto& [uuid, idle] : idle_) {
        idle.free_since = turn_.now;
        idle.checked_said = 0;
    }
}

// The master did not run for a time that may be too short for any other clock. Messages that arrived meanwhile are read
// before the next tick.
void VotePatience::shift_clocks(Duration time) {
    PROBE(vote_clocks_shifted);
    for (auto& [key, ballot] : ballots_.all()) ballot.shift_clocks(time, turn_.now);
    for (auto& [uuid, idle] : idle_) idle.leave_out(time, turn_.now);
}

// Handles votes that no further member has joined for Timeouts::vote. Missing members that are in no call at all are
// removed. If all missing members wait in other calls for just as long, the calls cross and fail.
// A member is judged by the time in which its application could have made the call. It is not judged while an operation
// keeps it busy, while its last answer waits for the disk, or while its link is away (the clocks of absence and silence
// decide then). When it has resumed, it has declared the calls that it made meanwhile, so the time away counts too.
// `only`: judges only this member, which has just resumed. Its link may break again before the next tick.
void VotePatience::expire(const std::optional<Uuid>& only) {
    const Duration limit = turn_.timeouts.vote;
    if (limit == 0) return;
    std::set<Uuid> busy = links_.owed_answers();
    for (const auto& [id, op] : state_.ops) {
        for (const SeatState& seat : op.members) {
            if (seat.serial != 0) busy.insert(seat.uuid);  // else its machine works, and its application may do nothing
        }
    }
    for (const auto& [id, group] : state_.groups) {
        if (!group.sync) continue;
        for (const SeatState& seat : group.sync->members) busy.insert(seat.uuid);
    }
    // A complete vote waits for the master, so its voters are busy.
    for (const auto& [key, ballot] : ballots_.all()) {
        if (!is_call(key.kind) || !ballot.missing(electors_of(state_, key)).empty()) continue;
        for (const auto& [uuid, cast] : ballot.votes()) busy.insert(uuid);
    }
    const Duration believed = turn_.timeouts.works_for_good();
    const auto free_for = [&](const Uuid& uuid, Instant changed) -> Duration {
        if (!roster_.present(uuid) || busy.contains(uuid)) return 0;
        const Idle& idle = idle_.at(uuid);
        const Duration waits = turn_.now - idle.free_for(changed, believed);
        const bool arrived = idle.answer_said == 0 || waits > turn_.timeouts.unanswered();
        return arrived ? waits : 0;
    };
    // True if the member made no call in time for the vote whose last vote came at `changed`. Its call may still be on
    // its way: the master sends a heartbeat, and waits until the member acknowledges it. If nothing is acknowledged for
    // long, the link counts as dead.
    const auto in_no_call = [&](const Uuid& uuid, Instant changed) {
        Idle& idle = idle_.at(uuid);
        const LinkId id = roster_.link_of(uuid);
        ControlLinks::Link& link = links_.at(id);
        const Instant over = std::max(idle.free_for(changed, believed), changed) + limit;
        // The member has resumed since its time was over, so it has declared any call that it made in time. Without
        // this check, a link that breaks more often than heartbeats come would keep the seat for ever.
        if (idle.came_back >= over) {
            PROBE(idle_by_its_resume);
            return true;
        }
        if (idle.checked_said == 0 || idle.checked_at < over) {
            links_.say_heartbeat(id, link);
            idle.checked_said = link.said;
            idle.checked_at = turn_.now;
            return false;
        }
        return link.heard >= idle.checked_said || turn_.now - idle.checked_at > turn_.timeouts.unanswered();
    };
    // A member that is away may be dead, so it does not count as waiting. But a member that has resumed since its wait
    // was over is alive, even if its link is away at each tick.
    const auto waits_still = [&](const Uuid& uuid, Instant over) {
        const auto idle = idle_.find(uuid);
        return roster_.present(uuid) || (idle != idle_.end() && idle->second.came_back >= over);
    };
    std::map<Uuid, Instant> called;  // when a member cast the latest of its open votes
    for (const auto& [key, ballot] : ballots_.all()) {
        if (!is_call(key.kind)) continue;
        for (const auto& [uuid, cast] : ballot.votes()) called[uuid] = std::max(called[uuid], cast.at);
    }
    std::map<Uuid, std::pair<Instant, BallotKey>> late;  // late members; each with its missing vote that waits longest
    std::vector<std::pair<BallotKey, Cause>> crossing;
    Places places;
    for (const auto& [key, ballot] : ballots_.all()) {
        if (!is_call(key.kind) || turn_.now - ballot.changed < limit) continue;
        const auto missing = ballot.missing(electors_of(state_, key));
        if (missing.empty()) continue;
        bool all_wait = true;
        for (const Uuid& uuid : missing) {
            if (only && uuid != *only) continue;
            const auto call = called.find(uuid);
            if (call == called.end() && free_for(uuid, ballot.changed) >= limit) {
                if (turn_.now - idle_.at(uuid).worked_at < limit) PROBE(works_for_ever);
                const auto vote = late.try_emplace(uuid, ballot.changed, key).first;
                if (ballot.changed < vote->second.first) vote->second = {ballot.changed, key};
            }
            all_wait = all_wait && call != called.end() && turn_.now - call->second >= limit && !busy.contains(uuid) &&
                       waits_still(uuid, call->second + limit);
        }
        if (only || !all_wait || !can_be_given_up(key.kind)) continue;
        crossing.emplace_back(
            key, make_cause<CauseKind::calls_crossed>(to_text(key.kind), missing[0], whereabouts(missing[0], places)));
    }
    std::erase_if(late, [&](const auto& entry) { return !in_no_call(entry.first, entry.second.first); });
    for (const auto& [uuid, vote] : late) {
        PROBE(vote_timed_out);
        roster_.remove(
            uuid, make_cause<CauseKind::vote_awaited>((turn_.now - vote.first) / second, to_text(vote.second.kind)));
    }
    // A removed member may have been what the others waited for. Crossing calls are examined again at the next tick.
    if (!late.empty()) return;
    for (const auto& [key, cause] : crossing) {
        PROBE(vote_given_up);
        turn_.log(LogLevel::warn, "given up: " + to_text(cause));
        owner_.give_up(key, cause);
    }
}

// The member declares the calls that it made meanwhile on its new link. Acknowledgements on that link count from 0.
void VotePatience::resumes(const Uuid& member) {
    Idle& idle = idle_.at(member);
    // Nothing had shown that the last answer arrived on the old link. The member may have it only now.
    if (idle.answer_said != 0) idle.free_since = turn_.now;
    idle.answer_said = idle.checked_said = 0;
    idle.came_back = turn_.now;
}

void VotePatience::works(const Uuid& member) { idle_.at(member).worked_at = turn_.now; }

void VotePatience::answer_leaves(const Uuid& member, std::uint64_t message) {
    const auto idle = idle_.find(member);
    if (idle == idle_.end()) return;
    idle->second.free_since = turn_.now;
    idle->second.answer_said = message;
}

void VotePatience::acknowledged(const Uuid& member, std::uint64_t messages) {
    // The answer has arrived at some time before now, so the clock starts now.
    const auto idle = idle_.find(member);
    if (idle == idle_.end() || idle->second.answer_said == 0 || messages < idle->second.answer_said) return;
    idle->second.answer_said = 0;
    idle->second.free_since = turn_.now;
}

void VotePatience::welcome_waited(const Uuid& member, Duration waited) {
    const auto idle = idle_.find(member);
    if (idle != idle_.end()) idle->second.free_since = std::min(turn_.now, idle->second.free_since + waited);
}

void VotePatience::check() const {
    for (const auto& [uuid, idle] : idle_) ASSERT(state_.members.contains(uuid));
}

}  // namespace pccl::core
