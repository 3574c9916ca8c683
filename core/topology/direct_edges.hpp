// Edges beside those of the rings: those over which the pieces of gathers, scatters and all_to_alls go in one hop, and
// those within hosts (hosts.hpp).
//
// The first such collective of a group goes around the ring, and makes the master want its direct edges. The plans name
// them, peers dial them and report them, and later collectives use them. An edge that none has used for a while is not
// wanted any more.
//
// This state is soft. A start decision records which way was chosen, so a restarted master continues what runs. It wants
// idle edges again when they are used next.
//
// Invariants: a collective never waits for direct edges. A direct edge that is down or stuck changes no ring and removes
// no member. After a failure the group goes around the ring for a while, longer each time. A member has direct edges
// with fewer than Limits::direct_peers_max others.
#pragma once

#include "core/journal/run_state.hpp"
#include "core/topology/rings.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace pccl::core {

class DirectEdges {
public:
    using Edge = std::pair<Uuid, Uuid>;

    DirectEdges(const Turn& turn, const RunState& state, Rings& rings, Agenda& agenda)
        : turn_(turn), state_(state), rings_(rings), agenda_(agenda) {}

    // A collective of the group would use these edges. True: all of them work, and it may. Otherwise they are wanted
    // from now on.
    bool usable(GroupId group, const std::vector<Edge>& edges);
    // The outcome of an operation over direct edges. `failed`: although all its members are there.
    void ended(GroupId group, bool failed);
    // At each look at the topology, after everybody else: forgets edges that were not used for long, or whose ends are
    // not members of the group any more, and has the plans name the others, and `wanted`.
    void maintain(std::set<Edge> wanted);
    void forget_run() { groups_.clear(); }

    template <class Known>
    std::size_t strange(const Known& known) const {
        std::size_t count = 0;
        for (const auto& [id, group] : groups_) count += count_strange(group.used_at, known);
        return count;
    }

private:
    struct Group {
        std::map<Edge, Instant> used_at;
        std::uint32_t failures = 0;  // in a row
        Instant not_before = 0;      // around the ring until then
    };

    const Turn& turn_;
    const RunState& state_;
    Rings& rings_;
    Agenda& agenda_;
    std::map<GroupId, Group> groups_;
};

}  // namespace pccl::core
