// Which directed edges between peers work.
//
// The table is what members report; it is not journalled (they report again after a restart). A mark is a quarantine: it
// grows with each failure of the edge and ends by itself, so that no pair is "unreachable for ever".
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
        Instant down_since = never;  // since when it is wanted or known to be down; never: not wanted yet
        // An edge that opens and breaks again and again is not up: from the flaps_max-th time in a row on, its clock goes on
        // from where it was when the edge opened.
        Instant up_since = 0;
        Instant down_before = never;
        std::uint32_t flaps = 0;  // times in a row that it broke less than `steady` after it had opened
        std::uint32_t failures = 0;
        std::uint32_t restarts = 0;  // of its clock, since it is wanted or was up
        bool good = false;           // it was up for long before it broke, or was wanted no more
        Instant quarantined_until = 0;
        Instant not_again_before = 0;  // its quarantine was ended early, for a ring
        Instant stuck_until = 0;       // it opens and carries nothing: marked for this long, connected or not
        std::uint32_t stuck_times = 0;
        bool stuck_before = false;   // nobody has been asked to dial it since it was marked: it may carry again
        bool reported_down = false;  // the source says that its links closed or were refused
        bool incoming_up = false;    // the target says that a link from the source is open
        // Both ends said that it is up, and then an end says that all its links broke. When it said so last; never: no word.
        Instant source_lost_at = never;
        Instant target_lost_at = never;
    };

    bool up(const Uuid& from, const Uuid& to) const;
    bool ring_up(const std::vector<Uuid>& ring) const;  // each edge of it
    bool marked(const Uuid& from, const Uuid& to, Instant now) const;
    // The edge is wanted from now on; starts its clock unless it is up.
    Edge& want(const Uuid& from, const Uuid& to, Instant now);
    void report_up(const Uuid& from, const Uuid& to, Instant now);
    // `answered`: the other end refused the connection itself, so the report is no word of its death.
    // `steady`: an edge that was up for so long is a good one.
    void report_down(const Uuid& from, const Uuid& to, bool answered, Instant now, Duration steady);
    void report_closed(const Uuid& from, const Uuid& to);  // on purpose
    // The peer was admitted: what it said before of connections that broke is no testimony of a member, and those that it
    // lacks have their full time from now on, as newcomers that are left alone are admitted before they have any.
    void admitted(const Uuid& peer);
    // Links that their source closes on purpose are not reported so: it says goodbye on them.
    void report_incoming(const Uuid& from, const Uuid& to, bool up, Instant now);
    void mark(const Uuid& from, const Uuid& to, Instant until);
    // How many edges are marked, of those that count.
    template <class Counts>
    std::size_t marks(Instant now, const Counts& counts) const {
        return static_cast<std::size_t>(std::count_if(edges_.begin(), edges_.end(), [&](const auto& entry) {
            const auto& [from, to] = entry.first;
            return marked(from, to, now) && counts(from, to);
        }));
    }
    // Its source could send nothing through it in an operation that both ends took part in. Each time for longer.
    void mark_stuck(const Uuid& from, const Uuid& to, Instant now, Duration patience);
    bool stuck(const Uuid& from, const Uuid& to, Instant now) const;
    // Where no ring of these is left, edges that were marked for an earlier ring are tried again: what was stuck once, and
    // what is down not more than once in `rarely`. False: there is none.
    bool try_again(const std::vector<Uuid>& ring, Instant now, Duration rarely);
    // The source and the target say so. What a peer that nobody admitted says alone is no proof.
    bool up_at_both_ends(const Uuid& from, const Uuid& to) const;
    // A neighbour of `peer` in the ring had connections with it, in one direction or the other, and said since then that they
    // broke. Nobody else is a witness: who never was connected, as far as `peer` says, may be wrong, or lie.
    bool ring_neighbour_lost(const Uuid& peer, const std::vector<Uuid>& ring, Instant since) const;
    // How many members of the ring `peer` has a marked edge with.
    std::uint32_t distinct_marks(const Uuid& peer, const std::vector<Uuid>& ring, Instant now) const;
    void forget(const Uuid& peer);
    // The source lost its link to the master and is told only now whom to dial: the time before does not count. A few
    // times, or a link that breaks for ever would keep the ring from being led around it.
    void told_again(const Uuid& from, Instant now);
    // The peer was silent for long: nobody could connect with it in that time, which says nothing about the other ends of
    // its edges. Limited like told_again.
    void heard_again(const Uuid& peer, Instant now);
    // The disk of the master hung for that time, until now: who was not welcomed, or not told whom to dial, dialled nobody.
    void shift_clocks(Duration hung, Instant now);
    // After a restart or a sleep of the master: nobody is blamed for the time before.
    void restart_clocks(Instant now);
    // Edges that nobody is asked to dial are not up, have no clock and no complaints: wanted again, they are reported again
    // and get their full time, and a connection that was closed because nobody wants it says nothing about its ends.
    void release_unwanted(const std::map<Uuid, std::set<Uuid>>& wanted, Instant now, Duration steady);
    const Edge* find(const Uuid& from, const Uuid& to) const;
    // Edges of which an end is nobody that `known` knows.
    template <class Known>
    std::size_t strange(const Known& known) const {
        return count_strange(edges_, known);
    }

private:
    static void restart_clock(Edge& edge, Instant now);

    std::map<std::pair<Uuid, Uuid>, Edge> edges_;
};

}  // namespace pccl::core
