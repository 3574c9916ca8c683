// Decides from the clocks of operations whether they make progress.
//
// Progress is a slice that lands for the first time, its acknowledgement, or more bytes of a slice than ever landed
// before. Frame headers, heartbeats, dials and resent copies renew no clock, so each wait ends. Declines, and frames
// that nobody wants any more, are activity, which prolongs a wait for a limited time (prolonged()). The sender gives up
// an edge that takes slices and answers none. The receiver gives up an operation that gets no new bytes.
//
// It owns nothing and changes nothing. Exchange acts on its results.
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

    // True: slices leave for the successor, or wait to leave, and none gets through. An edge without a connection is
    // judged by the master, unless it connects again and again in vain. Such connections may break so soon that no tick
    // finds one open.
    bool successor_stuck(const Operation& op) const;
    // Why the operation is given up for lack of input; empty: it is not given up. A neighbour that waits for its own
    // predecessor is not to blame. It gets far more time, so that the blame falls on the place of the fault.
    Cause starved(const Operation& op) const;
    // Slices for the successor leave, or wait for its credit, and none got through for so long that the successor would
    // have given the operation up. Other operations may get through.
    bool sends_in_vain(const Operation& op) const;

private:
    // What came since the last progress, without progress. `rests`: frames that nobody wants. `rest_at`: when one
    // of them last grew.
    struct Activity {
        Instant at = 0;
        Instant rest_at = 0;
        std::uint32_t rests = 0;
    };
    // The wait began with progress at `since`. Returns since when it counts. The rests of frames fill a slow path, so
    // they count while they grow, if there were only a few for each connection. Everything else, such as a decline,
    // prolongs the wait for a limited time.
    Instant prolonged(Instant since, const Activity& activity, std::size_t connections) const;
    // By what the successor says.
    Instant prolonged_by(const Uuid& successor, Instant since) const;
    bool waits_for_turn(const Operation& op, const Predecessors::Arrivals& arrivals) const;
    bool waits_to_leave(const Operation& op) const;
    bool waits_for_host(const Operation& whole) const;
    std::uint64_t rounds() const;

    const Turn& turn_;
    const LinkTable& links_;
    const Stripes& stripes_;
    const Predecessors& predecessors_;
    const Reductions& reductions_;
    const Flows& flows_;
};

}  // namespace pccl::core
