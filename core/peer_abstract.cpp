// A coarse description of a peer's state: counts are put into a few classes. Observation only.
#include "core/base/packed.hpp"
#include "core/peer_core.hpp"

namespace pccl::core {

std::uint64_t PeerCore::abstract_state() const {
    Packed state;
    // phase
    state.count(static_cast<std::size_t>(session_.state()), 2);
    state.count(sync_.stage_number(), 3);
    state.flags(!exchange_.reductions().empty(), launches_.unstarted() != 0, run_wide_.size() != 0);
    // session
    state.count(session_.link_stage(), 2);
    state.flags(session_.lost_since() != never);
    state.count(session_.votes().size(), 2);
    state.count(run_wide_.size(), 2);
    // operations
    exchange_.describe_operations(state);
    state.flags(launches_.many());
    // edges
    exchange_.describe_edges(state);
    // shared state
    sync_.describe(state);
    state.flags(probe_.sends(), probe_.receives(), memory_.waits(), sync_.awaits_abandoned_memory(),
                session_.former_tokens() != 0);
    return state.word();
}

}  // namespace pccl::core
