// Finds stripes whose last slices are late while the rest of the edge is idle, so that another stripe carries them too.
//
// On a long path one connection may stall for seconds, for example because it lost a packet that was the last one. An
// operation then waits for a few slices that other connections could bring in one round trip. So the time from the
// departure of a slice to its acknowledgement is measured for each edge, as TCP does it (RFC 6298). If a stripe with
// slices in flight is silent for longer than that, and another one has nothing to send, its slices leave once more.
//
// A hedge uses only idle connections. It needs a word of the neighbour on another stripe since the late one fell silent:
// a neighbour that is silent altogether gets no copies. Each hedge doubles the patience until a slice that left only
// once is acknowledged. So an edge that carries nothing gets few copies, and the clocks of progress.hpp judge it.
//
// It owns nothing. It changes its clocks, which stand in Flow and Link. SliceSender queues the slices again.
#pragma once

#include "core/all_reduce/flow.hpp"
#include "core/all_reduce/reductions.hpp"
#include "core/links/link_table.hpp"
#include "core/topology/stripes.hpp"
#include "core/turn.hpp"

#include <vector>

namespace pccl::core {

class Hedges {
public:
    Hedges(const Turn& turn, LinkTable& links, const Stripes& stripes, const Reductions& reductions, Flows& flows)
        : turn_(turn), links_(links), stripes_(stripes), reductions_(reductions), flows_(flows) {}

    // The neighbour could not answer before what had left: its clocks begin now.
    void can_answer(const Uuid& target);
    // The edge has a stripe with nothing to send (`idle`), or has none.
    void plan(const Uuid& target, Flow& flow, bool idle);
    // When late() is to be called again; never: no edge may need it.
    Instant next() const;
    // The stripes whose slices are to be queued again, with the other ends of their edges.
    struct Late {
        Uuid target;
        LinkId stripe = 0;
    };
    std::vector<Late> late();

private:
    // Since when the stripe owes words; never: nothing is in flight on it, as far as is known.
    Instant silent_since(const Link& link) const;
    bool owes(const Uuid& target, LinkId id, const Flow& flow) const;

    const Turn& turn_;
    LinkTable& links_;
    const Stripes& stripes_;
    const Reductions& reductions_;
    Flows& flows_;
};

}  // namespace pccl::core
