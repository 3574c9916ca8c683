// The master's rings: which edges are wanted, whether they work, and what happens to a ring when one edge does not.
//
// The master routes a ring around an edge that stays down. If no ring without that edge exists, it removes one end of
// the edge. Operations that began on an earlier ring keep its edges, and fail if one of them stays down. The rings
// themselves are promised, so RunState owns them. This part owns what peers report about edges, and the set of edges
// that peers must dial.
//
// Invariants: an edge is judged only while both ends are present and have the plans that name it: the source, and the
// target if it dials too. A mark is a quarantine and ends by itself; an edge with a mark is not wanted beside rings. The
// edges of newcomers are judged like others, but an edge that a newcomer cannot connect affects nobody else.
#pragma once

#include "core/base/sleep.hpp"
#include "core/journal/decision_log.hpp"
#include "core/links/roster.hpp"
#include "core/topology/edge_table.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pccl::core {

class Rings {
public:
    // The peers that each peer must dial.
    using Wanted = std::map<Uuid, std::set<Uuid>>;
    class Owner {
    public:
        // A running operation needs an edge that failed. Either no ring contains the edge any more and it stays down,
        // or the operation's ring was just routed around it.
        virtual void edge_of_operation_failed(OpId id, const Cause& cause) = 0;

    protected:
        ~Owner() = default;
    };

    Rings(Turn& turn, DecisionLog& decisions, Roster& roster, Agenda& agenda, Owner& owner)
        : turn_(turn), decisions_(decisions), state_(decisions.state()), roster_(roster), agenda_(agenda),
          owner_(owner) {}

    // ---- a look at the topology
    // In this order: maintain() wants the edges of rings, other parts want edges, maintain_edges_of_operations() wants
    // those of operations, want_direct() those that nobody else wants, and release_unwanted() resets all others.
    void maintain();
    // Wants the edge. True if both of its ends are present, and it is stuck or has been down for too long: for `grace`,
    // or for longer if it is still being dialled or has failed before. Marks the edge each time its quarantine has
    // ended.
    bool edge_failed_long(const Uuid& from, const Uuid& to, Duration grace);
    // Wants the edge without judging its ends, unless it is marked.
    void want(const Uuid& from, const Uuid& to);
    void maintain_edges_of_operations();
    // Wants these edges, too, unless they are marked. They are not judged: their reports change no ring.
    void want_direct(const std::set<std::pair<Uuid, Uuid>>& edges);
    void release_unwanted();
    // True if many peers exist and the last look is so recent that the next report must wait. A look costs O(peers),
    // and each peer reports several edges.
    bool looked_just_now(std::size_t peers) const;
    const Wanted& wanted() const { return wanted_; }
    bool wants(const Uuid& from, const Uuid& to) const {
        const auto edges = wanted_.find(from);
        return edges != wanted_.end() && edges->second.contains(to);
    }
    // Wanted for direct collectives only.
    bool is_direct(const Uuid& from, const Uuid& to) const { return direct_.contains({from, to}); }

    // ---- what peers say
    // False: nobody wants the connection, so the report says nothing about its ends.
    bool reported(const Uuid& from, const Uuid& other, const proto::EdgeReport& report, bool at_once);
    void stuck(OpId id, const RunningOp& op, const Uuid& from, const Uuid& to);
    // The peer was silent or away; see EdgeTable.
    void heard_again(const Uuid& peer) { edges_.heard_again(peer, turn_.now); }
    void told_again(const Uuid& peer);
    void admitted(const Uuid& peer) { edges_.admitted(peer); }
    void forget(const Uuid& peer) { edges_.forget(peer); }
    void forget_run() { edges_ = EdgeTable{}; }

    // ---- time in which nobody is blamed
    void restart_clocks() { edges_.restart_clocks(turn_.now); }
    void disk_hung(Duration time) { edges_.shift_clocks(time, turn_.now); }
    void slept(const Sleep& sleep);

    // ---- knowledge
    const EdgeTable& edges() const { return edges_; }
    // The target opens connections of this edge too.
    bool offered(const Uuid& from, const Uuid& to) const;
    // Each end may have to dial before what the other one dials gets through, so both use ports that the other knows.
    bool meets(const Uuid& from, const Uuid& to) const;
    bool marked(const Uuid& from, const Uuid& to) const { return edges_.marked(from, to, turn_.now); }
    std::vector<Uuid> ring_without(GroupId group, const std::vector<Uuid>& gone) const;

private:
    // For how long an edge must be open so that it does not flap when it breaks.
    Duration steady(const Uuid& from, const Uuid& to) const;
    void maintain_ring(GroupId id);
    // Wants the edges that are dialled again because no ring is left. True: one of them may still open.
    bool want_again(const std::vector<Uuid>& ring);
    Cause failed_edge(const RunningOp& op);  // a failed edge of it that is not in the ring any more; empty: none
    bool direct_edge_failed(const Uuid& from, const Uuid& to);
    // An end that dials the edge may not know it yet.
    bool dial_waits(const Uuid& from, const Uuid& to) const;
    // The target has not had the time to open it yet.
    bool offered_just_now(const Uuid& from, const EdgeTable::Edge& edge) const;
    bool on_the_ring(GroupId group, const Uuid& from, const Uuid& to) const;
    Cause edge_failure(const std::pair<Uuid, Uuid>& edge) const;

    Turn& turn_;
    DecisionLog& decisions_;
    const RunState& state_;
    Roster& roster_;
    Agenda& agenda_;
    Owner& owner_;
    EdgeTable edges_;
    Wanted wanted_;
    std::map<std::pair<Uuid, Uuid>, bool> direct_;     // of wanted_: only beside rings; whether an operation runs on it
    std::set<std::pair<Uuid, Uuid>> needed_directly_;  // of these, those of operations that run; during a look
    Instant looked_at_ = 0;
};

}  // namespace pccl::core
