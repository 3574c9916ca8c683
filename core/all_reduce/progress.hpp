// Whether operations get on: the judge of their clocks.
//
// Progress is a slice that lands for the first time, its acknowledgement, or more bytes of one than ever landed before.
// Frame headers, heartbeats, dials and copies that are sent again renew no clock, so each wait ends: the sender gives up an edge
// that takes slices and answers none, the receiver an operation to which nothing new comes.
//
// It owns nothing and changes nothing: what follows from a judgement is the matter of Exchange.
#pragma once

#include "core/all_reduce/flow.hpp"
#include "core/all_reduce/predecessors.hpp"
#include "core/all_reduce/reductions.hpp"
#include "core/links/link_table.hpp"
#include "core/topology/stripes.hpp"
#include "core/turn.hpp"

#include <string>

namespace pccl::core {

class Progress {
public:
    Progress(const Turn& turn, const LinkTable& links, const Stripes& stripes, const Predecessors& predecessors,
             const Reductions& reductions, const Flows& flows)
        : turn_(turn), links_(links), stripes_(stripes), predecessors_(predecessors), reductions_(reductions),
          flows_(flows) {}

    // Whether slices leave for the successor, or would, and nothing of them gets through. An edge that is not connected is the
    // master's to judge, unless it keeps connecting in vain: such connections may break so soon that no tick finds one open.
    bool successor_stuck(const Operation& op) const;
    // Why the operation is given up for want of input; empty: it is not. A neighbour that waits for its own upstream is not to
    // blame and gets far more time, so that a fault is charged where it is.
    std::string starved_reason(const Operation& op) const;

private:
    bool waits_for_turn(const Operation& op, const Predecessors::Arrivals& arrivals) const;
    bool waits_to_leave(const Operation& op) const;
    std::uint64_t rounds() const;

    const Turn& turn_;
    const LinkTable& links_;
    const Stripes& stripes_;
    const Predecessors& predecessors_;
    const Reductions& reductions_;
    const Flows& flows_;
};

}  // namespace pccl::core
