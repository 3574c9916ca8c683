// The table of members that hold the elected state, as a receiver keeps it.
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"

namespace pccl::core {

// Makes room in the full table for a source that was given up `given_up` times. False: every other one has to stay. A source
// that is not used leaves if the master stopped naming it, the longest known first, or if it was given up more often.
bool PeerCore::forget_source(std::uint32_t given_up) {
    Sync& sync = *sync_;
    if (sync.forgotten.size() >= config_.limits.peers_max) return false;
    auto oldest = sync.sources.end();
    for (auto source = sync.sources.begin(); source != sync.sources.end(); ++source) {
        if (source->active || (source->named_at == now_ && source->given_up <= given_up)) continue;
        if (oldest == sync.sources.end() || source->named_at < oldest->named_at) oldest = source;
    }
    if (oldest == sync.sources.end()) return false;
    PROBE(sync_source_forgotten);
    sync.forgotten.emplace(oldest->peer, *oldest);
    sync.sources.erase(oldest);
    return true;
}

}  // namespace pccl::core
