// The table of directed edges between peers: which of them work.
//
// The table contains what peers report. It is not journalled, because they report again after a restart. A mark is a
// quarantine: it grows with each failure of the edge and ends by itself, so that no pair stays "unreachable for ever".
// The table judges nobody: Rings (rings.hpp) decides what follows from an edge that stays down.
//
// Invariants: no edge leads from a peer to itself. An edge that is up has no running clock (`down_since`).
#pragma once

#include "core/base/ids.hpp"
#include "core/base/leftovers.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace pccl::core {

class EdgeTable {
public:
    struct Edge {
        bool up = false;
        Instant down_since = never;  // since when it is down although wanted; never: up, or not wanted yet
        // A flapping edge does not get a new clock. After more than flaps_max short connections in a row, its clock
        // continues from `down_before`, its value when the edge opened.
        Instant up_since = 0;
        Instant down_before = never;
        std::uint32_t flaps = 0;  // times in a row that it broke less than `steady` after it opened
        std::uint32_t failures = 0;
        std::uint32_t restarts = 0;  // restarts of its clock since it was wanted, or was up without flapping
        bool brief = false;          // it was up, and broke less than `steady` after it last opened
        Instant quarantined_until = 0;
        Instant again_until = 0;       // dialled until then although it has a mark
        Instant not_again_before = 0;  // when dial_again() may choose it again
        Instant stuck_until = 0;       // it opens but carries nothing: marked until then, connected or not
        std::uint32_t stuck_times = 0;
        bool stuck_before = false;   // it was not wanted for some time since it was marked: it may carry again
        bool reported_down = false;  // the source reported that no link is open, and the target did not answer itself
        bool incoming_up = false;    // the target reported that a link from the source is open
        // When the first dial of the source failed since the edge was wanted: since then the target dials too. It stays
        // so, because what kept the source out (a firewall) is still there when the connection is lost. never: no dial
        // failed.
        Instant offered_since = never;
        // When the source (or the target) last reported that all its links broke, after both ends had reported the edge
        // up; never: no such report.
        Instant source_lost_at = never;
        Instant target_lost_at = never;
        bool offered() const { return offered_since != never; }
    };

    bool up(const Uuid& from, const Uuid& to) const;
    bool ring_up(const std::vector<Uuid>& ring) const;  // all edges of it
    bool marked(const Uuid& from, const Uuid& to, Instant now) const;
    // From now on the edge is wanted. Starts its clock unless the edge is up.
    Edge& want(const Uuid& from, const Uuid& to, Instant now);
    // The time and the reports before do not count.
    void begin_anew(const Uuid& from, const Uuid& to);
    void report_up(const Uuid& from, const Uuid& to, Instant now);
    // `answered`: the target itself refused the connection, so the report is no evidence of its death.
    // `steady`: an edge that breaks after a shorter time flaps.
    void report_down(const Uuid& from, const Uuid& to, bool answered, Instant now, Duration steady);
    void report_closed(const Uuid& from, const Uuid& to);  // on purpose
    // The peer was admitted. Earlier reports of broken connections with it are dropped: a newcomer's report does not
    // count as one of a member. The clocks of its edges start again, because orphans are admitted before they have any
    // connection.
    void admitted(const Uuid& peer);
    // Not called for a link that its source closed on purpose: the source sends a goodbye on it.
    void report_incoming(const Uuid& from, const Uuid& to, bool up, Instant now);
    void mark(const Uuid& from, const Uuid& to, Instant until);
    // The number of marked edges for which `counts` is true.
    template <class Counts>
    std::size_t marks(Instant now, const Counts& counts) const {
        return static_cast<std::size_t>(std::count_if(edges_.begin(), edges_.end(), [&](const auto& entry) {
            const auto& [from, to] = entry.first;
            return marked(from, to, now) && counts(from, to);
        }));
    }
    // The source could send nothing through the edge in an operation that both ends took part in. Each further mark
    // lasts longer.
    void mark_stuck(const Uuid& from, const Uuid& to, Instant now, Duration patience);
    bool stuck(const Uuid& from, const Uuid& to, Instant now) const;
    // Called when no ring of these peers is left. Ends the mark of edges that were stuck once, in an earlier ring.
    // False: there is no such edge.
    bool try_stuck_again(const std::vector<Uuid>& ring, Instant now);
    // Called when no ring of these peers is left. Chooses the edges that were down in an earlier ring to be dialled for
    // the time `lasts`, each at most once in `rarely`, and none that last broke soon after it opened. An edge that opens
    // loses its mark.
    void dial_again(const std::vector<Uuid>& ring, Instant now, Duration lasts, Duration rarely);
    // The edges that dial_again() chose, while the time lasts.
    std::vector<std::pair<Uuid, Uuid>> dialled_again(const std::vector<Uuid>& ring, Instant now) const;
    // Both the source and the target reported it up. The report of a newcomer alone is no proof.
    bool up_at_both_ends(const Uuid& from, const Uuid& to) const;
    // Since `since`, a neighbour of `peer` in the ring reported that its connections with `peer` broke, in one
    // direction or the other. Only connections that both ends had reported up count: a neighbour that `peer` did not
    // confirm may be wrong, or lie.
    bool ring_neighbour_lost(const Uuid& peer, const std::vector<Uuid>& ring, Instant since) const;
    // A dial to the peer failed, on an edge that is still wanted.
    bool offered_to(const Uuid& peer) const {
        return std::any_of(edges_.begin(), edges_.end(),
                           [&](const auto& entry) { return entry.first.second == peer && entry.second.offered(); });
    }
    // The number of members of the ring with which `peer` has a marked edge.
    std::uint32_t distinct_marks(const Uuid& peer, const std::vector<Uuid>& ring, Instant now) const;
    // The peers to or from which `peer` has an edge that was dialled in vain.
    std::set<Uuid> tried_with(const Uuid& peer) const;
    void forget(const Uuid& peer);
    // The dial plan of the peer was held, usually after a resume, and has left only now. The time before does not count
    // for edges that it dials: those of which it is the source, and those for which `helps` is true. Limited to
    // `restarts_max`: a link that keeps breaking must eventually be routed around.
    template <class Helps>
    void told_again(const Uuid& peer, Instant now, const Helps& helps) {
        for (auto& [ends, edge] : edges_) {
            const auto& [from, to] = ends;
            if (from == peer || (to == peer && helps(from, to))) restart_clock(edge, now);
        }
    }
    // The peer was silent or away for long. Nobody could connect with it in that time, so this is no evidence about the
    // other ends of its edges. Limited like told_again.
    void heard_again(const Uuid& peer, Instant now);
    // Leaves out the time `hung`, which ends now: the disk of the master hung, or the master did not run. A peer whose
    // welcome or dial plan was held could dial nobody.
    void shift_clocks(Duration hung, Instant now);
    // After a restart or a sleep of the master: the time before counts against nobody.
    void restart_clocks(Instant now);
    // Resets edges that no plan names: not up, no clock, no reports of loss. If such an edge is wanted again, its ends
    // report it again and it gets its full time. A connection that closed because nobody wants it is no evidence about
    // its ends.
    void release_unwanted(const std::map<Uuid, std::set<Uuid>>& wanted, Instant now, Duration steady);
    // No edge leads from a peer to itself, and one that is up has no clock.
    void check() const;
    const Edge* find(const Uuid& from, const Uuid& to) const;
    // The number of edges with an end for which `known` is false.
    template <class Known>
    std::size_t strange(const Known& known) const {
        return count_strange(edges_, known);
    }

private:
    static void restart_clock(Edge& edge, Instant now);

    std::map<std::pair<Uuid, Uuid>, Edge> edges_;
};

}  // namespace pccl::core
