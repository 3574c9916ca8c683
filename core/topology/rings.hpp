// The master's rings: which edges are wanted and whether they work, and what happens to a ring of which one does not.
//
// A ring is led around an edge that stays down; where no ring without it exists, one of its ends is removed. Operations that
// were begun on an earlier ring keep its edges, and end when one of them stays down. The rings themselves are promised, so they
// are RunState's; this part owns what members report of edges, and which edges somebody is asked to dial.
//
// Invariants: an edge is judged only while both of its ends are present and told of it. A mark is a quarantine and ends by itself.
// Newcomers' edges are judged like others', but what newcomers cannot reach concerns nobody else.
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
    // Whom each peer is to dial.
    using Wanted = std::map<Uuid, std::set<Uuid>>;
    class Owner {
    public:
        // An edge that a running operation needs, and that is in no ring any more, stays down; or its ring was led around it.
        virtual void edge_of_operation_failed(OpId id, const std::string& why) = 0;

    protected:
        ~Owner() = default;
    };

    Rings(Turn& turn, DecisionLog& decisions, Roster& roster, Agenda& agenda, Owner& owner)
        : turn_(turn), decisions_(decisions), state_(decisions.state()), roster_(roster), agenda_(agenda),
          owner_(owner) {}

    // ---- a look at the topology: first the rings, then others want edges, then those of operations; the rest is released
    void maintain();
    // Wants the edge. True once it has been down for longer than `grace` although both of its ends are here; marks it each time
    // its quarantine has run out.
    bool edge_failed_long(const Uuid& from, const Uuid& to, Duration grace);
    void maintain_edges_of_operations();
    void release_unwanted();
    // A look costs as much as there are peers, and a crowd of them reports several edges each.
    bool looked_just_now(std::size_t peers) const;
    const Wanted& wanted() const { return wanted_; }

    // ---- what peers say
    // False: about a connection that nobody wants, which is no word about its ends.
    bool reported(const Uuid& from, const Uuid& other, const proto::EdgeReport& report, bool at_once);
    void stuck(OpId id, const RunningOp& op, const Uuid& from, const Uuid& to);
    // It was silent, or away: see EdgeTable.
    void heard_again(const Uuid& peer) { edges_.heard_again(peer, turn_.now); }
    void told_again(const Uuid& peer) { edges_.told_again(peer, turn_.now); }
    void admitted(const Uuid& peer) { edges_.admitted(peer); }
    void forget(const Uuid& peer) { edges_.forget(peer); }
    void forget_run() { edges_ = EdgeTable{}; }

    // ---- time in which nobody is blamed
    void restart_clocks() { edges_.restart_clocks(turn_.now); }
    void disk_hung(Duration time) { edges_.shift_clocks(time, turn_.now); }
    void slept(const Sleep& sleep);

    // ---- knowledge
    const EdgeTable& edges() const { return edges_; }
    bool marked(const Uuid& from, const Uuid& to) const { return edges_.marked(from, to, turn_.now); }
    std::vector<Uuid> ring_without(GroupId group, const Uuid& member) const;

private:
    void maintain_ring(GroupId id);
    std::string failed_edge(const RunningOp& op);  // one that is in no ring any more; empty: none
    std::string edge_text(const std::pair<Uuid, Uuid>& edge) const;

    Turn& turn_;
    DecisionLog& decisions_;
    const RunState& state_;
    Roster& roster_;
    Agenda& agenda_;
    Owner& owner_;
    EdgeTable edges_;
    Wanted wanted_;
    Instant looked_at_ = 0;
};

}  // namespace pccl::core
