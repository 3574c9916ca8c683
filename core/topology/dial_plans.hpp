// What each peer is told of whom it is to dial, and who may dial it.
//
// A plan is told when it differs from the last one on the same link. It may be long, so it is sent in pages. While one waits for
// a record no other is queued behind it; peers that are not named in between are told to go and to come back.
//
// Invariant: a peer's last plan names exactly the edges that the rings want of it, unless one waits for a record.
#pragma once

#include "core/links/roster.hpp"
#include "core/topology/joiners.hpp"
#include "core/topology/rings.hpp"
#include "core/turn.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pccl::core {

class DialPlans {
public:
    DialPlans(const RunState& state, const Rings& rings, const Joiners& joiners, Roster& roster)
        : state_(state), rings_(rings), joiners_(joiners), roster_(roster) {}

    // To all members and newcomers that have a link.
    void send();

private:
    // Peers that a plan names; true: as a caller, false: as a target.
    using Names = std::set<std::pair<bool, std::string>>;
    // On one link.
    struct Told {
        std::optional<std::string> last;  // encoded
        Names unnamed;                    // by it, and meanwhile not
    };

    static Names names(const proto::DialPlan& plan);
    void send(const Uuid& uuid, const std::vector<Uuid>& callers, Told& told);
    proto::DialPlan plan_of(const Uuid& uuid, const std::vector<Uuid>& callers, const Names& but) const;
    void say(const Uuid& uuid, const proto::DialPlan& plan);

    const RunState& state_;
    const Rings& rings_;
    const Joiners& joiners_;
    Roster& roster_;
    std::map<LinkId, Told> told_;
};

}  // namespace pccl::core
