// The newcomers: peers that the master has registered and that no update of the topology has admitted yet. This part
// decides in which order they come, with which members they connect, and which of them can be admitted.
//
// A newcomer is admitted when a ring exists that contains it, in which all its edges are up and no edge is marked.
// Until then it is tried in a chain behind its group's ring, and alone between two members that can connect with it. A
// newcomer that cannot be reached gets a notice and comes last. Such newcomers take turns, so that they keep nobody
// else waiting.
//
// Invariants: a newcomer has a place among those that members connect with for some turns only, unless it is connected.
// The number of places is limited by the connections that the members at both ends of the ring can hold.
#pragma once

#include "core/base/secret.hpp"
#include "core/base/sleep.hpp"
#include "core/links/roster.hpp"
#include "core/topology/address_rules.hpp"
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
        Location location;
        std::uint64_t token = 0;
        std::uint32_t concurrent_ops = 1;
        std::uint32_t newcomer_links = 0;  // how many connections with newcomers it can hold
        Secret link_key{};
        std::uint64_t order = 0;  // of registration
        Instant since = 0;        // time of registration; for spectators
        // ---- its place
        bool told_unreachable = false;  // it got the notice; false again when it is reached
        bool behind = false;            // comes after those that can be reached; implies told_unreachable
        Instant moved = 0;              // when `behind` last changed, or its turn began
        Instant placed = never;         // since when members connect with it; never: it has no place
        Uuid reached_from, reaches;     // the members between which it waits; zero: none yet
        Instant anchored = 0;           // since when
        std::uint32_t reports = 0;      // reports of edges since the last tick
        std::uint32_t in_vain = 0;      // turns that it had after the notice, and was not reached in
    };

    Joiners(Turn& turn, const RunState& state, Rings& rings, Roster& roster)
        : turn_(turn), state_(state), rings_(rings), edges_(rings.edges()), roster_(roster) {}

    // ---- who they are
    // The caller fills in the new one.
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

    // ---- at a look at the topology
    // Wants the edges of the newcomers.
    void plan();
    // The newcomers of a group that can be admitted now. `ring` becomes the ring with them, in which all their edges
    // are up.
    std::vector<Uuid> admissible(GroupId group, std::vector<Uuid>& ring) const;
    bool any_admissible() const;
    // True if the joiner has sent too many reports since the last tick. The master then looks at the topology only at
    // the next tick, because each look costs O(peers).
    bool reports_too_much(const Uuid& uuid);

    // Asserts that no newcomer is a member, and that those that come last have got their notice.
    void check() const;

    // ---- time
    void tick();
    void disk_hung(Duration time);
    void slept(const Sleep& sleep);

private:
    std::string tried(const Uuid& newcomer) const;
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
    std::size_t admission_turn_ = 0;  // with which newcomer the searches for a ring begin
    Instant planned_at_ = 0;
};

}  // namespace pccl::core
