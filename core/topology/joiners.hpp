// Newcomers that the master has registered and no update of the topology has let in yet: in which order they come, with which
// members they connect, and which of them can be admitted.
//
// A newcomer is admitted when a ring with it has only edges that are up. Until then it is tried as the last of its group's ring,
// and alone between two members that can connect with it. Who cannot be reached is told so and comes last; those take turns, so
// that they keep nobody else waiting.
//
// Invariants: a newcomer has a place among those that members connect with for some turns only, unless it is connected. At most
// so many have a place as the members at the ends of the ring can hold connections.
#pragma once

#include "core/base/secret.hpp"
#include "core/base/sleep.hpp"
#include "core/links/roster.hpp"
#include "core/topology/rings.hpp"
#include "core/turn.hpp"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace pccl::core {

class Joiners {
public:
    struct Joiner {
        // ---- what it said of itself
        LinkId link = 0;
        std::uint64_t generation = 0;
        GroupId group = 0;
        Endpoint endpoint;
        std::uint64_t token = 0;
        std::uint32_t concurrent_ops = 1;
        std::uint32_t newcomer_links = 0;  // connections with peers that wait which it can hold
        Secret link_key{};
        std::uint64_t order = 0;  // of registration
        Instant since = 0;        // registered; for spectators
        // ---- its place
        bool told_unreachable = false;  // until it is reached
        bool behind = false;            // comes after those that can be reached; only if told so
        Instant moved = 0;              // behind, or back to its place
        Instant placed = never;         // among those that members connect with; never: it is not
        Uuid reached_from, reaches;     // members between which it waited; zero: none yet
        Instant anchored = 0;           // since when
        std::uint32_t reports = 0;      // of edges, since the last tick
    };

    Joiners(Turn& turn, const RunState& state, Rings& rings, Roster& roster)
        : turn_(turn), state_(state), rings_(rings), edges_(rings.edges()), roster_(roster) {}

    // ---- who they are. The one that is added is to be filled in.
    Joiner& add(const Uuid& uuid);
    void erase(const Uuid& uuid) { joiners_.erase(uuid); }
    const Joiner* find(const Uuid& uuid) const {
        const auto joiner = joiners_.find(uuid);
        return joiner == joiners_.end() ? nullptr : &joiner->second;
    }
    bool contains(const Uuid& uuid) const { return joiners_.contains(uuid); }
    bool empty() const { return joiners_.empty(); }
    std::size_t size() const { return joiners_.size(); }
    const std::map<Uuid, Joiner>& all() const { return joiners_; }
    std::vector<GroupId> groups() const;
    std::vector<Uuid> in_order(GroupId group) const;  // of registration

    // ---- at a look at the topology: wants their edges
    void plan();
    // Those of a group that can be admitted now, and the ring with them: each edge of a joiner is up.
    std::vector<Uuid> admissible(GroupId group, std::vector<Uuid>& ring) const;
    bool any_admissible() const;
    // What many reports of one joiner change waits for the next tick: each look at the topology costs as much as there are peers.
    bool reports_too_much(const Uuid& uuid);

    // ---- time
    void tick();
    void disk_hung(Duration time);
    void slept(const Sleep& sleep);

private:
    std::size_t newcomers_at_a_time(const std::vector<Uuid>& ring) const;
    void comes_last(const Uuid& uuid, Joiner& joiner);
    void take_turns(GroupId group, const std::vector<std::pair<std::uint64_t, Uuid>>& list);

    Turn& turn_;
    const RunState& state_;
    Rings& rings_;
    const EdgeTable& edges_;
    Roster& roster_;
    std::map<Uuid, Joiner> joiners_;
    std::uint64_t registration_order_ = 0;
    std::size_t admission_turn_ = 0;  // which newcomers a ring is searched for first
    Instant planned_at_ = 0;
};

}  // namespace pccl::core
