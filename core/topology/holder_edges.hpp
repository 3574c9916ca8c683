// Edges from receivers of a shared state to holders that they cannot dial.
//
// A receiver dials the holders of a synchronization by itself, and asks the master when it reaches none. If a holder is
// behind an address translator or a firewall, the master then wants an edge between the two until the synchronization is
// over, so that the plans have it dialled from both ends (topology/offers.hpp). Such an edge belongs to no ring: nobody
// is judged by it.
//
// Invariant: after maintain(), each entry is of a member, and of the synchronization that its group runs.
#pragma once

#include "core/journal/run_state.hpp"
#include "core/topology/rings.hpp"

#include <cstddef>
#include <map>
#include <vector>

namespace pccl::core {

class HolderEdges {
public:
    HolderEdges(const RunState& state, Rings& rings) : state_(state), rings_(rings) {}

    // The receiver was told these holders, in place of those before. True: other edges are wanted from now on.
    bool told(const Uuid& receiver, OpId sync, const std::vector<Uuid>& holders);
    // Wants the edges, and forgets those that are over.
    void maintain();

    void forget_run() { asked_.clear(); }
    bool empty() const { return asked_.empty(); }
    std::size_t over() const;  // entries of synchronizations that are over
    void check() const;

private:
    struct Asked {
        OpId sync = 0;
        std::vector<Uuid> holders;
    };
    bool runs(const Uuid& receiver, const Asked& asked) const;

    const RunState& state_;
    Rings& rings_;
    std::map<Uuid, Asked> asked_;
};

}  // namespace pccl::core
