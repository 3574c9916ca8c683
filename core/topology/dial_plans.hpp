// Sends each peer its dial plan: the peers that it must dial, the newcomers that may dial it, and the peers to which it
// offers connections, because they may be unable to reach it (core/topology/offers.hpp).
//
// A plan is sent if it differs from the last one on the same link. It may be long, so it is sent in pages. While a plan
// waits for a record, no other plan is queued behind it. If a name was not wanted for some of that time but is wanted
// again, the next plan leaves it out and a further plan names it, so that the peer closes its connections and begins
// anew.
//
// Invariant: a peer's last plan names exactly the edges that are wanted from it and that it may dial, unless a plan
// waits for a record.
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

    // Sends to all members and newcomers that have a link.
    void send();

private:
    // The peers that a plan names; true: as a caller, false: as a target.
    using Names = std::set<std::pair<bool, std::string>>;
    // The plan that was sent on one link.
    struct Told {
        std::optional<std::string> last;  // the last plan, encoded
        Names unnamed;                    // named in `last`, but not wanted at some time since
    };

    static Names names(const proto::DialPlan& plan);
    // Who dials a peer.
    struct Callers {
        std::vector<Uuid> silent;   // those that send nothing ahead of a start: newcomers, and those of direct edges
        std::vector<Uuid> offered;  // those that it dials too, for their use
    };
    void send(const Uuid& uuid, const Callers& callers, Told& told);
    proto::DialPlan plan_of(const Uuid& uuid, const Callers& callers, const Names& but) const;
    void say(const Uuid& uuid, const proto::DialPlan& plan);

    const RunState& state_;
    const Rings& rings_;
    const Joiners& joiners_;
    Roster& roster_;
    std::map<LinkId, Told> told_;
};

}  // namespace pccl::core
