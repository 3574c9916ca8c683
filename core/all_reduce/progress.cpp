#include "core/all_reduce/progress.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

// Each other operation of the neighbour may get so many slices while one operation gets none.
constexpr std::uint64_t rounds_passed_over = 8;
constexpr std::uint32_t lost_at_least = 2;
// Losses count at most once in an eighth of a peer time-out (Timeouts::together). So a path that breaks each copy at
// once is detected as soon as one that lets none through.
constexpr std::uint32_t fruitless_max = 12;
// Frames that nobody wants, on each connection, whose parts are waited for. On a slow path few are on their way.
constexpr std::uint32_t rests_max = 8;

}  // namespace

Instant Progress::prolonged(Instant since, const Activity& activity, std::size_t connections) const {
    if (activity.rests <= rests_max * connections) since = std::max(since, activity.rest_at);
    return std::max(since, std::min(activity.at, since + turn_.timeouts.starved_for_good()));
}

Instant Progress::prolonged_by(const Uuid& successor, Instant since) const {
    const auto found = flows_.find(successor);
    const Stripes::Edge* edge = stripes_.find(successor);
    if (found == flows_.end() || edge == nullptr) return since;
    const Flow& flow = found->second;
    return prolonged(since, {flow.answered_at, flow.rest_at, flow.rests}, edge->stripes.size());
}

bool Progress::successor_stuck(const Operation& op) const {
    const Timeouts& t = turn_.timeouts;
    const Stripes::Edge* edge = stripes_.find(op.id.successor);
    if (edge == nullptr) return false;
    const bool open = !stripes_.open_links_to(op.id.successor).empty();
    const auto flow = flows_.find(op.id.successor);
    const Instant through = flow == flows_.end() ? 0 : flow->second.through_at;
    const auto connects_in_vain = [&](Instant since) {
        if (edge->opened_before <= since) return false;
        PROBE(edge_connects_in_vain);
        return true;
    };
    // The successor's `ready` words and its credit take the same connections, in the other direction. A lack of credit
    // alone may have good reasons. It is a fault if each connection breaks, perhaps because of these words.
    // A successor that reports for ever that it has not received the start is judged after starved_for_good().
    const Instant aware_since =
        std::clamp(op.successor_unaware_at, op.prepared_at, op.prepared_at + t.starved_for_good());
    // A further copy of a lost slice gets twice the time in which the best copy came as far as it did.
    Duration again = 0;
    for (const auto& [slice, lost] : op.lost) again = std::max(again, 2 * lost.took);
    const auto unready = [&](Instant since) { return !op.neighbour_ready && turn_.now - since > t.unready(); };
    const bool not_ready = (open && unready(std::max(aware_since, edge->opened))) ||
                           (unready(aware_since) && connects_in_vain(aware_since));
    const Instant idle_since =
        prolonged_by(op.id.successor, std::max({aware_since, through, op.sated_at, op.credit_at}));
    const bool no_credit = turn_.now - idle_since > std::max(t.unready(), again) && connects_in_vain(idle_since);
    if (op.wants_to_send() && (not_ready || no_credit)) return true;
    if (!op.unanswered()) return false;
    // A lost slice that is queued waits for others, or for a connection, and is not judged. One that was sent may wait
    // on its connection behind another slice that moves, or behind a copy that comes as far as before.
    const bool in_vain = std::any_of(op.lost.begin(), op.lost.end(), [&](const auto& entry) {
        const auto& [key, lost] = entry;
        if (lost.fruitless >= fruitless_max && turn_.now - aware_since > t.copies()) return true;
        const Half& half = op.half(key.first, key.second);
        const auto link = links_.find(half.out_link);
        if (lost.times < lost_at_least || half.out == OutState::queued || link == links_.end()) return false;
        const Instant moved = std::max({lost.since, aware_since, link->second.answered_at});
        return turn_.now - moved > std::max(t.copies(), again);
    });
    if (in_vain) return true;
    // The master judges the time without a connection, so the time before the edge opened does not count here.
    const Instant moved = std::max({op.waits_since, through, aware_since});
    const Duration patience = std::max(t.unanswered(), again);
    if (open && turn_.now - prolonged_by(op.id.successor, std::max(moved, edge->opened)) > patience) return true;
    const Instant since = prolonged_by(op.id.successor, moved);
    return turn_.now - since > patience && connects_in_vain(since);
}

// Operations take turns on the path from the predecessor. One that waits for its turn behind others is not starved. The
// slices of the others are counted, so that a neighbour that skips one operation is detected after a few rounds.
bool Progress::waits_for_turn(const Operation& op, const Predecessors::Arrivals& arrivals) const {
    if (turn_.now - arrivals.at > turn_.timeouts.starved()) return false;
    ASSERT(arrivals.slices >= op.landed_before);
    return arrivals.slices - op.landed_before <= rounds();
}

// How many slices of other operations may come before one of an operation that is not skipped.
std::uint64_t Progress::rounds() const {
    return rounds_passed_over * std::max<std::uint64_t>(turn_.limits.concurrent_ops, reductions_.size());
}

// The same for the path to the successor. No new bytes can come for an operation whose own slices wait behind those of
// others.
bool Progress::waits_to_leave(const Operation& op) const {
    const auto found = flows_.find(op.id.successor);
    if (stripes_.find(op.id.successor) == nullptr || (!op.wants_to_send() && !op.unanswered())) return false;
    const Instant through = found == flows_.end() ? 0 : found->second.through_at;
    const std::uint64_t answers = found == flows_.end() ? 0 : found->second.answers;
    const Instant moved = std::max({op.landed_at, op.answered_at, through});
    if (turn_.now - prolonged_by(op.id.successor, moved) > turn_.timeouts.starved()) return false;
    return answers - std::min(answers, op.answered_before) <= rounds();
}

// What comes over the edge within a host was reduced by all members of the host before. So it is awaited only after
// everything that comes along the ring, and not while slices of this operation, or of others, are still on their way there.
bool Progress::waits_for_host(const Operation& whole) const {
    return whole.waits_for_branch() && !waits_for_turn(whole, predecessors_.arrivals(whole.id.predecessor)) &&
           !waits_to_leave(whole);
}

bool Progress::sends_in_vain(const Operation& op) const {
    if (!op.prepared || (!op.wants_to_send() && !op.unanswered())) return false;
    const auto flow = flows_.find(op.id.successor);
    const Duration longest = flow == flows_.end() ? 0 : flow->second.longest_wait;
    const Instant moved = std::max(op.landed_at, op.answered_at);
    const Timeouts& t = turn_.timeouts;
    const Duration patience = t.starved_for_good() + t.unanswered() + std::max(moved - op.prepared_at, 2 * longest);
    return turn_.now - moved > patience && !waits_to_leave(op);
}

Cause Progress::starved(const Operation& op) const {
    if (op.end_serial != 0 || op.complete() || op.id.predecessor.is_nil() || op.waits_for_branch()) return {};
    if (op.whole != nullptr && !waits_for_host(*op.whole)) return {};
    const Timeouts& t = turn_.timeouts;
    const Predecessors::Arrivals arrivals = predecessors_.arrivals(op.id.predecessor);
    // A member that sends over a narrow path gets nothing new meanwhile. Half of all slices may still have to pass the
    // narrowest edge of the ring when the members behind it have all but the last ones. So the patience includes the
    // time for which the operation has moved. With many operations, a round of the others may take even longer. If an
    // operation got new bytes after a long wait, it may happen again: twice the longest such wait is allowed if that is
    // more.
    // Nothing comes over the edge within a host before the operation along the ring has moved.
    const Instant along_the_ring = op.whole == nullptr ? 0 : std::max(op.whole->landed_at, op.whole->answered_at);
    const Instant moved = std::max({op.landed_at, op.answered_at, along_the_ring});
    const Duration patience = t.starved_for_good() + std::max(moved - op.prepared_at, 2 * arrivals.longest_wait);
    const Activity filler{arrivals.filler_at, arrivals.filler_at, arrivals.fillers};
    const std::size_t connections = predecessors_.connections(op.id.predecessor);
    if (turn_.now - prolonged(moved, filler, connections) > patience && !waits_for_turn(op, arrivals) &&
        !waits_to_leave(op))
        return make_cause<CauseKind::nothing_new_from>(op.id.predecessor);
    // The last member of a host may be busy with the edge to the next one, and has nothing for the first one meanwhile.
    if (op.whole != nullptr) return {};
    // If the neighbour has no link to this peer, the edge is judged and not the neighbour's silence.
    if (arrivals.starved || !predecessors_.connected(op.id.predecessor)) return {};
    const Instant since = prolonged(
        std::max({op.landed_at, arrivals.at, arrivals.starved_at, op.predecessor_unaware_at}), filler, connections);
    if (turn_.now - since <= t.starved() || !op.waits_for_input() || waits_to_leave(op)) return {};
    return make_cause<CauseKind::nothing_sent_by>(op.id.predecessor);
}

}  // namespace pccl::core
