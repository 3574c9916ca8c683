// The newcomers: peers that the master has registered and that no update of the topology has admitted yet. This part
// decides in which order they come, with which members they connect, and which of them can be admitted.
//
// A newcomer is admitted when a ring exists that contains it, in which all its edges are up and no edge is marked.
// Until then it is tried in a chain behind its group's ring, and alone between two members that can connect with it.
// Newcomers that only a ring with several of them contains are tried in the order of that ring and admitted together. A
// newcomer that cannot be reached gets a notice and comes last. Such newcomers take turns, so that they keep nobody else
// waiting.
//
// A newcomer of a gang takes part only when its gang is complete (waiting_gangs.hpp). A gang is admitted as a whole or
// not at all. If one of its places cannot be reached, the whole gang comes last.
//
// Invariants: a newcomer has a place among those that members connect with for some turns only, unless it is connected.
// The number of places is limited by the connections that the members at both ends of the ring can hold. A newcomer
// whose gang is not complete has no such place, so it keeps nobody waiting.
#pragma once

#include "core/base/gang.hpp"
#include "core/base/secret.hpp"
#include "core/base/sleep.hpp"
#include "core/links/roster.hpp"
#include "core/topology/address_rules.hpp"
#include "core/topology/rings.hpp"
#include "core/topology/waiting_gangs.hpp"
#include "core/turn.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
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
        std::uint64_t host = 0;  // 0: not known
        Gang gang;
        Duration gang_patience = 0;  // how long it waits for missing places of its gang; 0: without limit
        // Of registration. The newcomers of a gang have the same one, given when the gang is complete.
        std::uint64_t order = 0;
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
        // ---- its gang
        bool unreached = false;        // it is the one of its gang that cannot be reached; implies told_unreachable
        Instant asked = 0;             // since when it waits for a place that another one has
        Instant misses_since = never;  // since when a place of its gang is missing
        bool told_missing = false;
    };

    Joiners(Turn& turn, const RunState& state, Rings& rings, Roster& roster)
        : turn_(turn), state_(state), rings_(rings), edges_(rings.edges()), roster_(roster),
          gangs_(turn.limits, state) {}

    // ---- who they are
    // The caller fills in the new one, and then lets it enter its gang, if it has one.
    Joiner& add(const Uuid& uuid);
    void enter_gang(const Uuid& uuid);
    void erase(const Uuid& uuid);
    const WaitingGangs& gangs() const { return gangs_; }
    // Those that may be admitted as soon as they are connected: in no gang, or in a complete one.
    bool takes_part(const Uuid& uuid, const Joiner& joiner) const {
        return joiner.gang.none() || gangs_.complete_with(uuid, joiner.gang);
    }
    std::size_t taking_part() const;
    const Joiner* find(const Uuid& uuid) const {
        const auto joiner = joiners_.find(uuid);
        return joiner == joiners_.end() ? nullptr : &joiner->second;
    }
    bool contains(const Uuid& uuid) const { return joiners_.contains(uuid); }
    bool empty() const { return joiners_.empty(); }
    std::size_t size() const { return joiners_.size(); }
    const std::map<Uuid, Joiner>& all() const { return joiners_; }

    // ---- at a look at the topology
    // Wants the edges of the newcomers.
    void plan();
    // The newcomers of a group that are admitted together, and its ring with them.
    struct Admission {
        std::vector<Uuid> admitted;  // not empty
        std::vector<Uuid> ring;
    };
    using Admissions = std::map<GroupId, Admission>;
    // Those that can be admitted now: all their edges in these rings are up. Gangs are complete in it.
    Admissions admissible() const;
    // All that take part, in the order of registration, whether they are connected or not.
    Admissions everybody() const;
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
    using Names = std::set<std::string>;

    std::vector<GroupId> groups() const;
    // `ring` becomes the ring with the returned newcomers. Gangs in `left_out` do not take part.
    std::vector<Uuid> admissible(GroupId group, std::vector<Uuid>& ring, const Names& left_out) const;
    std::string tried(const Uuid& newcomer) const;
    std::size_t newcomers_at_a_time(const std::vector<Uuid>& ring) const;
    void comes_last(const Uuid& uuid);
    std::vector<Uuid> unit_of(const Uuid& uuid) const;
    Joiner& lead_of(const Uuid& uuid);
    void set_behind(const Uuid& uuid, bool told_unreachable, bool behind);
    void complete_gang(const std::string& name);
    Cause why_turned_away(const Uuid& uuid, Joiner& joiner);
    // `now`: what is admissible in all groups; computed at most once in a look, because it walks over all newcomers.
    void take_turns(GroupId group, const std::vector<std::pair<std::uint64_t, Uuid>>& list,
                    std::optional<Admissions>& now);

    Turn& turn_;
    const RunState& state_;
    Rings& rings_;
    const EdgeTable& edges_;
    Roster& roster_;
    WaitingGangs gangs_;
    std::map<Uuid, Joiner> joiners_;
    std::uint64_t registration_order_ = 0;
    std::size_t admission_turn_ = 0;  // with which newcomer the searches for a ring begin
    Instant planned_at_ = 0;
};

}  // namespace pccl::core
