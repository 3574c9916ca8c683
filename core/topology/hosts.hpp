// Members that share a host, in the rings of their groups.
//
// Each peer names its host in its hello. The value is a hint and proves nothing; members with an unknown host count as
// alone on theirs. The ring of newcomers follows their order of registration, so members of one host may be apart in it.
// Then this part wants the edges of the same ring with the members of each host side by side, and makes it the ring
// when all of them work. A ring that another part has chosen, because an edge does not work or for its bandwidth, stays
// as it is until the group gets members. So does one whose better order does not work within two peer time-outs.
//
// In a ring with neighbours that share a host, an all-reduce may be hierarchical (voting/graph.hpp). It needs one more
// edge in each host, from the last member to the first one, which is wanted as long as the ring is.
//
// Invariants: it removes nobody and no operation waits for it. At most one change of a ring follows each admission.
#pragma once

#include "core/journal/decision_log.hpp"
#include "core/topology/rings.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace pccl::core {

// The positions of the last members of the hosts, ascending. Empty: no two neighbours share a host, all do, or the host
// of a member is not known (0).
std::vector<std::uint32_t> host_ends_of(std::span<const std::uint64_t> hosts);
// The same ring with the members of each host side by side: positions, the first one first. Empty: they are already.
std::vector<std::uint32_t> grouped_by_host(std::span<const std::uint64_t> hosts);

class Hosts {
public:
    using Edge = std::pair<Uuid, Uuid>;

    Hosts(Turn& turn, DecisionLog& decisions, const Rings& rings, Agenda& agenda)
        : turn_(turn), decisions_(decisions), state_(decisions.state()), rings_(rings), agenda_(agenda) {}

    // At each look at the topology, after the rings: changes those whose better order works. Returns the edges that are
    // wanted beside those of the rings.
    std::set<Edge> maintain();
    // After a restart. The journal does not tell why a ring has its order, and the marks of edges are lost. So all rings
    // count as chosen: a better order could lead back over an edge that does not work.
    void take_up();
    // A decision of any part.
    void decided(const proto::Decision& decision);
    void forget_run() {
        chosen_.clear();
        wanted_since_.clear();
    }

    std::vector<std::uint32_t> ends_of(const std::vector<Uuid>& ring) const { return host_ends_of(hosts_of(ring)); }
    // The edges beside the ring that a hierarchical all-reduce with these ends needs.
    static std::vector<Edge> edges_within(const std::vector<Uuid>& ring, const std::vector<std::uint32_t>& host_ends);
    std::size_t of_no_group() const;

private:
    std::vector<std::uint64_t> hosts_of(const std::vector<Uuid>& ring) const;
    bool regroup(GroupId group, std::set<Edge>& wanted);

    Turn& turn_;
    DecisionLog& decisions_;
    const RunState& state_;
    const Rings& rings_;
    Agenda& agenda_;
    std::set<GroupId> chosen_;                 // groups whose ring was chosen since their last admission
    std::map<GroupId, Instant> wanted_since_;  // since when the edges of a better order are wanted
};

}  // namespace pccl::core
