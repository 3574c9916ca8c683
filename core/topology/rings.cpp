#include "core/topology/rings.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/topology/ring_search.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace pccl::core {

namespace {

constexpr std::size_t marks_counted = 64;
constexpr Duration peers_looked_at_once = 64;  // up to this many peers, each report is examined when it comes
constexpr Duration look_again_per_peer = 200 * microsecond;

using Edges = std::set<std::pair<Uuid, Uuid>>;

Edges edges_beside_the_ring(const RunningOp& op) {
    if (op.way == RunningOp::Way::ring) return {};
    const auto edges = op.edges_beside_the_ring();
    return {edges.begin(), edges.end()};
}

}  // namespace

bool Rings::looked_just_now(std::size_t peers) const {
    const auto many = static_cast<Duration>(peers);
    return many > peers_looked_at_once && turn_.now - looked_at_ < many * look_again_per_peer;
}

bool Rings::reported(const Uuid& from, const Uuid& other, const proto::EdgeReport& report, bool at_once) {
    const Uuid& source = report.outgoing() ? from : other;
    const Uuid& target = report.outgoing() ? other : from;
    const bool is_wanted = wants(source, target);
    agenda_.topology = agenda_.topology || at_once;
    if (!is_wanted || (!report.up() && report.unwanted())) {
        // The plan does not name this connection, or did not when the peer reported it. So the report says nothing
        // about either end. When a plan names the connection again, the peer reports it again.
        PROBE(unwanted_report);
        if (report.outgoing() && !report.up()) edges_.report_closed(source, target);
        return false;
    }
    if (!report.outgoing()) {
        edges_.report_incoming(other, from, report.up(), turn_.now);
    } else if (report.up()) {
        // An edge that is only wanted beside rings would end its mark.
        const auto beside = direct_.find({from, other});
        ASSERT(beside == direct_.end() || beside->second || edges_.stuck(from, other, turn_.now) ||
               !marked(from, other));
        edges_.report_up(from, other, turn_.now);
    } else {
        edges_.report_down(from, other, report.answered(), turn_.now, steady(from, other));
    }
    return true;
}

// An edge may break whenever it carries something. A receiver that cannot fetch shared state over it rests for a hiccup,
// and an edge that stays open only for so long flaps on.
Duration Rings::steady(const Uuid& from, const Uuid& to) const {
    const EdgeTable::Edge* edge = edges_.find(from, to);
    return edge != nullptr && edge->flaps != 0 ? turn_.timeouts.quiet() : turn_.timeouts.edge_grace();
}

// An edge that failed in a ring would end its quarantine by opening again.
void Rings::want(const Uuid& from, const Uuid& to) {
    if (marked(from, to)) return;
    wanted_[from].insert(to);
    edges_.want(from, to, turn_.now);
}

bool Rings::edge_failed_long(const Uuid& from, const Uuid& to, Duration grace) {
    wanted_[from].insert(to);
    needed_directly_.erase({from, to});
    if (direct_.erase({from, to}) != 0) {
        // It was not judged until now, so the time before does not count.
        PROBE(direct_edge_becomes_another);
        edges_.begin_anew(from, to);
    }
    const EdgeTable::Edge edge = edges_.want(from, to, turn_.now);
    if (edges_.stuck(from, to, turn_.now)) return roster_.present(from) && roster_.present(to);
    if (edge.up || !roster_.present(from) || !roster_.present(to)) return false;
    if (dial_waits(from, to)) return false;
    // An edge that is still being dialled gets the full peer time-out. An edge that failed before gets more time after
    // each failure, so that a network slower than the grace cannot make the ring change for ever.
    // If translators are in the way, the first dials open it for the next ones.
    const bool patient = !edge.reported_down || roster_.is_translated(to);
    const Duration patience = (patient ? turn_.timeouts.peer : grace) << std::min(edge.failures, 3u);
    if (turn_.now - edge.down_since <= patience || offered_just_now(from, edge)) return false;
    if (!edges_.marked(from, to, turn_.now)) {
        PROBE(edge_marked);
        // The quarantine must outlast the detection of further bad edges, so it grows with the number of marked edges.
        // With a shorter one, bad edges would take turns and the ring would flap for ever. The marked edges of a
        // newcomer lengthen the quarantine of its own edges only.
        const auto member = [&](const Uuid& uuid) { return state_.members.contains(uuid); };
        const auto counts = [&](const Uuid& a, const Uuid& b) {
            const bool own = (!member(from) && (a == from || b == from)) || (!member(to) && (a == to || b == to));
            return own || (member(a) && member(b));
        };
        const auto more = static_cast<Duration>(std::min(edges_.marks(turn_.now, counts), marks_counted));
        // Each of them may take the peer time-out, however soon this one was found.
        const Duration each = std::max(patience, turn_.timeouts.peer);
        edges_.mark(from, to, turn_.now + 8 * patience + 2 * more * each);
        turn_.log(LogLevel::warn, formatted("peer {} cannot reach peer {}", short_name(from), short_name(to)));
    }
    return true;
}

// The target's plan counts too: where the source cannot dial the target, only the target can open the edge.
bool Rings::dial_waits(const Uuid& from, const Uuid& to) const {
    if (!roster_.plan_waits(from) && !(offered(from, to) && roster_.plan_waits(to))) return false;
    PROBE(plan_waits_for_the_disk);
    return true;
}

// A firewall that drops what it does not let in makes the first dial last longer than the grace. Then the master learns
// only with its failure that the target must dial. The target dials at once, unless an earlier dial of it just failed.
// If another peer could not dial the source either, the target hardly can: then the edge gets no more time.
bool Rings::offered_just_now(const Uuid& from, const EdgeTable::Edge& edge) const {
    if (!edge.offered() || turn_.now - edge.offered_since > turn_.timeouts.redial_longest()) return false;
    return !edges_.offered_to(from);
}

void Rings::told_again(const Uuid& peer) {
    edges_.told_again(peer, turn_.now, [&](const Uuid& from, const Uuid& to) { return offered(from, to); });
}

bool Rings::offered(const Uuid& from, const Uuid& to) const {
    const EdgeTable::Edge* edge = edges_.find(from, to);
    return roster_.is_translated(to) || (edge != nullptr && edge->offered());
}

bool Rings::meets(const Uuid& from, const Uuid& to) const {
    const EdgeTable::Edge* edge = edges_.find(from, to);
    return (edge != nullptr && edge->offered()) || (roster_.is_translated(from) && roster_.is_translated(to));
}

Cause Rings::edge_failure(const std::pair<Uuid, Uuid>& edge) const {
    const auto& [from, to] = edge;
    return edges_.stuck(from, to, turn_.now) ? make_cause<CauseKind::edge_stuck>(from, to)
                                             : make_cause<CauseKind::edge_down>(from, to);
}

// The source reports the edge as stuck in an operation that both ends take part in. A peer can accuse only the
// neighbour that it sends to. The report is proof only if the target's link to the master has been open since before
// the operation: otherwise the target may have got the start late, or not at all. Without proof the operation fails
// too, and the next operation over this edge decides.
void Rings::stuck(OpId id, const RunningOp& op, const Uuid& from, const Uuid& to) {
    for (const auto& edge : op.edges()) {
        if (edge != std::pair(from, to)) continue;
        // Rings do not need it. The operation fails, and the next one goes around the ring (DirectEdges).
        if (edges_beside_the_ring(op).contains(edge) && !on_the_ring(op.group, from, to)) return;
        if (from == to || !state_.members.contains(to) || edges_.stuck(from, to, turn_.now)) return;
        if (!roster_.present(to) || id <= roster_.resumed_after(to)) {
            PROBE(stuck_without_proof);
            return;
        }
        PROBE(edge_marked_stuck);
        edges_.mark_stuck(from, to, turn_.now, turn_.timeouts.stuck_mark());
        turn_.log(LogLevel::warn, to_text(edge_failure({from, to})) + ", although it can be connected");
        agenda_.topology = true;
        return;
    }
}

void Rings::maintain() {
    looked_at_ = turn_.now;
    wanted_.clear();
    std::vector<GroupId> groups;
    for (const auto& [id, group] : state_.groups) groups.push_back(id);
    for (const GroupId id : groups) {
        if (state_.groups.contains(id)) maintain_ring(id);  // it may have ended with a gang that another ring lost
    }
}

// An edge with a mark is in no ring that is chosen, so its ends would not learn that it works again.
bool Rings::want_again(const std::vector<Uuid>& ring) {
    bool awaited = false;
    for (const auto& [from, to] : edges_.dialled_again(ring, turn_.now)) {
        wanted_[from].insert(to);
        awaited = !edges_.want(from, to, turn_.now).up || awaited;
    }
    return awaited;
}

void Rings::maintain_ring(GroupId id) {
    const Duration grace = turn_.timeouts.edge_grace();
    const std::vector<Uuid> ring = state_.groups.at(id).ring;
    if (ring.size() < 2) return;
    want_again(ring);
    std::vector<std::pair<Uuid, Uuid>> failed;
    for (std::size_t i = 0; i < ring.size(); ++i) {
        const Uuid& from = ring[i];
        const Uuid& to = ring[(i + 1) % ring.size()];
        if (edge_failed_long(from, to, grace)) failed.emplace_back(from, to);
    }
    if (failed.empty()) return;
    const auto forbidden = [&](const Uuid& a, const Uuid& b) { return edges_.marked(a, b, turn_.now); };
    const auto other = choose_ring(ring, forbidden);
    if (other && *other != ring) {
        PROBE(ring_led_around);
        proto::Decision decision;
        decision.mutable_ring()->set_group(id);
        for (const Uuid& uuid : *other) decision.mutable_ring()->add_order(to_bytes(uuid));
        decisions_.append(decision);
        turn_.log(LogLevel::warn,
                  formatted("the ring of group {} was led around: {}", id, to_text(edge_failure(failed.front()))));
        std::vector<std::pair<OpId, Cause>> over;
        for (const auto& [op_id, op] : state_.ops) {
            if (op.group != id) continue;
            for (const auto& edge : op.edges()) {
                if (forbidden(edge.first, edge.second)) {
                    over.emplace_back(op_id, edge_failure(edge));
                    break;
                }
            }
        }
        if (!over.empty()) PROBE(aborted_over_edge);
        for (const auto& [op_id, why] : over) owner_.edge_of_operation_failed(op_id, why);
        agenda_.topology = agenda_.everything = true;
        return;
    }
    if (other) return;
    if (edges_.try_stuck_again(ring, turn_.now)) {
        agenda_.topology = true;
        return;
    }
    edges_.dial_again(ring, turn_.now, turn_.timeouts.peer, turn_.timeouts.rarely());
    if (want_again(ring)) return;
    // No ring without a marked edge exists. After the full time-out, one end of such an edge is removed.
    for (const auto& [from, to] : failed) {
        const EdgeTable::Edge* edge = edges_.find(from, to);
        const bool long_enough = edges_.stuck(from, to, turn_.now) ||
                                 (edge != nullptr && turn_.now - edge->down_since > turn_.timeouts.peer);
        if (!long_enough) continue;
        const bool may_wait =
            !edges_.stuck(from, to, turn_.now) && turn_.now - edge->down_since <= turn_.timeouts.unanswered();
        // The target reports the link open, so the report of the source may be in flight. `may_wait` limits the wait.
        if (edge->incoming_up && may_wait) {
            PROBE(no_ring_but_open);
            continue;
        }
        // An end from which the master has received nothing for a while may be the cause; its silence soon decides. A
        // deaf end soon closes its link, and gets its plan again after it has reconnected.
        const auto quiet = [&](const Uuid& uuid) {
            return roster_.silence_of(uuid) > turn_.timeouts.quiet() || (roster_.deaf(uuid) && may_wait);
        };
        if (quiet(from) || quiet(to)) PROBE(no_ring_quiet_end);
        if (quiet(from) || quiet(to)) continue;
        PROBE(no_ring_victim);
        const std::uint32_t marks_from = edges_.distinct_marks(from, ring, turn_.now);
        const std::uint32_t marks_to = edges_.distinct_marks(to, ring, turn_.now);
        const bool from_younger = state_.members.at(from).seniority > state_.members.at(to).seniority;
        const Uuid victim = marks_from != marks_to ? (marks_from > marks_to ? from : to) : (from_younger ? from : to);
        roster_.remove(victim, make_cause<CauseKind::no_ring>(edge_failure({from, to})));
        return;
    }
}

// An operation that began on an earlier ring continues over that ring's edges. They stay in the plans, because a target
// may have another address by now. No ring can be routed around an edge that is in no ring any more. So if such an edge
// stays down, the operations that need it fail here.
void Rings::maintain_edges_of_operations() {
    const RunningOp* done = nullptr;
    Cause failed;  // the failed edge of an operation with these members; empty: none
    std::vector<std::pair<OpId, Cause>> over;
    for (const auto& [id, op] : state_.ops) {
        const auto same = [](const SeatState& a, const SeatState& b) { return a.uuid == b.uuid; };
        if (done == nullptr || !std::ranges::equal(done->members, op.members, same) || done->path != op.path ||
            done->way != op.way || done->root != op.root || done->host_ends != op.host_ends) {
            done = &op;
            failed = failed_edge(op);
        }
        if (!failed.empty()) over.emplace_back(id, failed);
    }
    if (!over.empty()) PROBE(aborted_over_edge);
    for (const auto& [id, why] : over) owner_.edge_of_operation_failed(id, why);
}

bool Rings::on_the_ring(GroupId id, const Uuid& from, const Uuid& to) const {
    const auto group = state_.groups.find(id);
    if (group == state_.groups.end()) return false;
    const std::vector<Uuid>& ring = group->second.ring;
    const auto at = std::find(ring.begin(), ring.end(), from);
    return at != ring.end() && (at + 1 == ring.end() ? ring.front() : at[1]) == to;
}

Cause Rings::failed_edge(const RunningOp& op) {
    Cause failed;
    const Edges beside = edges_beside_the_ring(op);
    for (const auto& [from, to] : op.edges()) {
        if (!state_.members.contains(from) || !state_.members.contains(to)) continue;
        if (on_the_ring(op.group, from, to)) {
            wanted_[from].insert(to);
            continue;
        }
        const bool is_down = beside.contains({from, to}) ? direct_edge_failed(from, to)
                                                         : edge_failed_long(from, to, turn_.timeouts.edge_grace());
        if (is_down) failed = edge_failure({from, to});
    }
    return failed;
}

// As edge_failed_long(), without a mark: nothing is concluded for rings.
bool Rings::direct_edge_failed(const Uuid& from, const Uuid& to) {
    const bool judged = wanted_[from].contains(to);  // an edge of another ring, or of an operation that is not direct
    wanted_[from].insert(to);
    if (!judged) needed_directly_.insert({from, to});
    const EdgeTable::Edge edge = edges_.want(from, to, turn_.now);
    if (edge.up || !roster_.present(from) || !roster_.present(to) || dial_waits(from, to)) return false;
    const Duration patience = edge.reported_down ? turn_.timeouts.edge_grace() : turn_.timeouts.peer;
    if (turn_.now - edge.down_since <= patience || offered_just_now(from, edge)) return false;
    PROBE(direct_edge_lost);
    return true;
}

void Rings::want_direct(const std::set<std::pair<Uuid, Uuid>>& edges) {
    direct_.clear();
    for (const auto& edge : std::exchange(needed_directly_, {})) direct_.emplace(edge, true);
    for (const auto& edge : edges) {
        if (marked(edge.first, edge.second)) {
            PROBE(marked_edge_not_wanted);
            continue;  // as in want()
        }
        if (wanted_[edge.first].insert(edge.second).second) direct_.emplace(edge, false);
    }
}

void Rings::release_unwanted() { edges_.release_unwanted(wanted_, turn_.now, turn_.timeouts.edge_grace()); }

std::vector<Uuid> Rings::ring_without(GroupId group, const std::vector<Uuid>& gone) const {
    std::vector<Uuid> rest = state_.groups.at(group).ring;
    std::erase_if(rest, [&](const Uuid& uuid) { return std::find(gone.begin(), gone.end(), uuid) != gone.end(); });
    const auto ring = choose_ring(rest, [&](const Uuid& a, const Uuid& b) { return edges_.marked(a, b, turn_.now); });
    return ring.value_or(rest);
}

void Rings::slept(const Sleep& sleep) {
    if (sleep.anew)
        edges_.restart_clocks(sleep.now);
    else
        edges_.shift_clocks(sleep.time, sleep.now);
}

}  // namespace pccl::core
