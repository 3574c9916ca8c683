#include "core/topology/edge_table.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"

#include <algorithm>
#include <set>

namespace pccl::core {

namespace {
constexpr std::uint32_t restarts_max = 3;
constexpr std::uint32_t stuck_doubles_max = 6;
constexpr std::uint32_t flaps_max = 3;

bool within(const std::vector<Uuid>& ring, const std::pair<Uuid, Uuid>& ends) {
    const auto has = [&](const Uuid& peer) { return std::find(ring.begin(), ring.end(), peer) != ring.end(); };
    return has(ends.first) && has(ends.second);
}
}  // namespace

const EdgeTable::Edge* EdgeTable::find(const Uuid& from, const Uuid& to) const {
    const auto it = edges_.find({from, to});
    return it == edges_.end() ? nullptr : &it->second;
}

bool EdgeTable::up(const Uuid& from, const Uuid& to) const {
    const Edge* edge = find(from, to);
    return edge != nullptr && edge->up;
}

bool EdgeTable::ring_up(const std::vector<Uuid>& ring) const {
    for (std::size_t i = 0; i < ring.size(); ++i) {
        if (!up(ring[i], ring[(i + 1) % ring.size()])) return false;
    }
    return true;
}

bool EdgeTable::marked(const Uuid& from, const Uuid& to, Instant now) const {
    const Edge* edge = find(from, to);
    return edge != nullptr && (edge->stuck_until > now || (!edge->up && edge->quarantined_until > now));
}

bool EdgeTable::stuck(const Uuid& from, const Uuid& to, Instant now) const {
    const Edge* edge = find(from, to);
    return edge != nullptr && edge->stuck_until > now;
}

void EdgeTable::mark_stuck(const Uuid& from, const Uuid& to, Instant now, Duration patience) {
    Edge& edge = edges_[{from, to}];
    const auto lasts = [&] { return patience << std::min(edge.stuck_times, stuck_doubles_max); };
    if (now - edge.stuck_until > lasts()) edge.stuck_times = 0;  // the last mark ended long ago
    edge.stuck_until = now + lasts();
    edge.stuck_before = false;
    ++edge.stuck_times;
}

bool EdgeTable::try_stuck_again(const std::vector<Uuid>& ring, Instant now) {
    bool any = false;
    for (auto& [ends, edge] : edges_) {
        // Only once. If it still carries nothing it stays marked: otherwise the master would try rings that cannot work
        // in turn, for ever.
        if (!within(ring, ends) || !edge.stuck_before || edge.stuck_times > 1 || edge.stuck_until <= now) continue;
        PROBE(stuck_edge_tried_again);
        edge.stuck_until = now;
        if (edge.down_since != never) edge.down_since = now;
        any = true;
    }
    return any;
}

void EdgeTable::dial_again(const std::vector<Uuid>& ring, Instant now, Duration lasts, Duration rarely) {
    for (auto& [ends, edge] : edges_) {
        // An edge with a clock is wanted, so it is dialled already. One that opens and breaks at once would only change
        // the ring to and fro.
        const bool was_down = !edge.up && !edge.brief && edge.down_since == never && edge.quarantined_until > now;
        if (!was_down || !within(ring, ends) || edge.not_again_before > now) continue;
        PROBE(marked_edge_dialled_again);
        edge.again_until = now + lasts;
        edge.quarantined_until += lasts;  // a mark that ends now would make a ring that needs this edge
        edge.not_again_before = now + rarely;
    }
}

std::vector<std::pair<Uuid, Uuid>> EdgeTable::dialled_again(const std::vector<Uuid>& ring, Instant now) const {
    std::vector<std::pair<Uuid, Uuid>> edges;
    for (const auto& [ends, edge] : edges_) {
        if (edge.again_until > now && within(ring, ends)) edges.push_back(ends);
    }
    return edges;
}

EdgeTable::Edge& EdgeTable::want(const Uuid& from, const Uuid& to, Instant now) {
    Edge& edge = edges_[{from, to}];
    if (!edge.up && edge.down_since == never) edge.down_since = now;
    return edge;
}

void EdgeTable::begin_anew(const Uuid& from, const Uuid& to) {
    Edge& edge = edges_[{from, to}];
    edge.down_since = edge.down_before = never;
    edge.reported_down = false;
    edge.source_lost_at = edge.target_lost_at = never;
    edge.flaps = edge.restarts = 0;
}

void EdgeTable::report_up(const Uuid& from, const Uuid& to, Instant now) {
    Edge& edge = edges_[{from, to}];
    if (!edge.up) {
        edge.up_since = now;
        edge.down_before = edge.down_since;
    }
    edge.up = true;
    edge.down_since = never;
    edge.quarantined_until = 0;
    edge.reported_down = false;
    edge.source_lost_at = edge.target_lost_at = never;
    if (edge.flaps == 0) edge.restarts = 0;
}

void EdgeTable::report_down(const Uuid& from, const Uuid& to, bool answered, Instant now, Duration steady) {
    Edge& edge = edges_[{from, to}];
    if (edge.up) {
        edge.flaps = now - edge.up_since < steady ? edge.flaps + 1 : 0;
        edge.brief = edge.flaps != 0;
        if (edge.brief) edge.again_until = 0;
        if (edge.flaps == 0) edge.restarts = 0;
        if (edge.flaps > flaps_max) {
            PROBE(edge_flaps);
            edge.down_since = edge.down_before;
        }
    }
    // A report that is repeated after a resume does not change this time: the edge is down already.
    if (answered)
        edge.source_lost_at = never;
    else if (edge.up && edge.incoming_up)
        edge.source_lost_at = now;
    if (!edge.offered() && !edge.up && !answered) edge.offered_since = now;
    edge.up = false;
    edge.reported_down = !answered;
    if (edge.down_since == never) edge.down_since = now;
}

void EdgeTable::report_closed(const Uuid& from, const Uuid& to) {
    Edge& edge = edges_[{from, to}];
    edge.up = false;
    edge.source_lost_at = never;
}

void EdgeTable::admitted(const Uuid& peer) {
    for (auto& [ends, edge] : edges_) {
        if (ends.first != peer && ends.second != peer) continue;
        edge.source_lost_at = edge.target_lost_at = never;
        edge.down_since = edge.down_before = never;
        edge.flaps = edge.restarts = 0;
    }
}

void EdgeTable::report_incoming(const Uuid& from, const Uuid& to, bool up, Instant now) {
    Edge& edge = edges_[{from, to}];
    if (up)
        edge.target_lost_at = never;
    else if (edge.up && edge.incoming_up)
        edge.target_lost_at = now;
    edge.incoming_up = up;
}

void EdgeTable::mark(const Uuid& from, const Uuid& to, Instant until) {
    Edge& edge = edges_[{from, to}];
    edge.quarantined_until = until;
    ++edge.failures;
    edge.up = false;
}

bool EdgeTable::up_at_both_ends(const Uuid& from, const Uuid& to) const {
    const Edge* edge = find(from, to);
    return edge != nullptr && edge->up && edge->incoming_up;
}

bool EdgeTable::ring_neighbour_lost(const Uuid& peer, const std::vector<Uuid>& ring, Instant since) const {
    const auto at = std::find(ring.begin(), ring.end(), peer);
    if (at == ring.end() || ring.size() < 2) return false;
    const Edge* into = find(at == ring.begin() ? ring.back() : *(at - 1), peer);
    const Edge* out = find(peer, at + 1 == ring.end() ? ring.front() : *(at + 1));
    const auto said = [&](Instant at) { return at != never && at >= since; };
    return (into != nullptr && said(into->source_lost_at)) || (out != nullptr && said(out->target_lost_at));
}

std::uint32_t EdgeTable::distinct_marks(const Uuid& peer, const std::vector<Uuid>& ring, Instant now) const {
    return static_cast<std::uint32_t>(std::count_if(ring.begin(), ring.end(), [&](const Uuid& other) {
        return marked(peer, other, now) || marked(other, peer, now);
    }));
}

std::set<Uuid> EdgeTable::tried_with(const Uuid& peer) const {
    std::set<Uuid> others;
    for (const auto& [ends, edge] : edges_) {
        if (edge.failures == 0 && !edge.reported_down) continue;
        if (ends.first == peer) others.insert(ends.second);
        if (ends.second == peer) others.insert(ends.first);
    }
    return others;
}

void EdgeTable::forget(const Uuid& peer) {
    for (auto it = edges_.begin(); it != edges_.end();) {
        it = it->first.first == peer || it->first.second == peer ? edges_.erase(it) : std::next(it);
    }
}

void EdgeTable::restart_clock(Edge& edge, Instant now) {
    if (edge.down_since == never || edge.restarts >= restarts_max) return;
    edge.down_since = now;
    ++edge.restarts;
}

void EdgeTable::heard_again(const Uuid& peer, Instant now) {
    for (auto& [ends, edge] : edges_) {
        if (ends.first == peer || ends.second == peer) restart_clock(edge, now);
    }
}

void EdgeTable::shift_clocks(Duration hung, Instant now) {
    for (auto& [ends, edge] : edges_) {
        for (Instant* clock : {&edge.down_since, &edge.down_before, &edge.offered_since}) {
            if (*clock != never) *clock = std::min(*clock + hung, now);
        }
        edge.again_until += hung;
    }
}

void EdgeTable::restart_clocks(Instant now) {
    for (auto& [ends, edge] : edges_) {
        for (Instant* clock : {&edge.down_since, &edge.down_before, &edge.offered_since}) {
            if (*clock != never) *clock = now;
        }
        edge.not_again_before = 0;
    }
}

void EdgeTable::release_unwanted(const std::map<Uuid, std::set<Uuid>>& wanted, Instant now, Duration steady) {
    for (auto& [ends, edge] : edges_) {
        const auto from = wanted.find(ends.first);
        if (from != wanted.end() && from->second.contains(ends.second)) continue;
        if (edge.up && now - edge.up_since >= steady) edge.brief = false;
        edge.up = false;
        edge.stuck_before = true;
        edge.down_since = never;
        edge.reported_down = false;
        edge.offered_since = never;
        edge.source_lost_at = edge.target_lost_at = never;
        edge.incoming_up = false;
        edge.down_before = never;
        edge.flaps = edge.restarts = 0;
    }
}

void EdgeTable::check() const {
    for (const auto& [ends, edge] : edges_) {
        ASSERT(ends.first != ends.second);
        ASSERT(!edge.up || edge.down_since == never);
    }
}

}  // namespace pccl::core
