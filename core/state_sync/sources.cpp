// The table of members that hold the elected state, as a receiver keeps it.
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"

namespace pccl::core {

// The table is full: of those that are not used, one that the master does not name any more goes, the longest known first.
// A dead holder keeps no place from a living one, nor does one that was given up.
bool PeerCore::forget_source() {
    auto oldest = sync_->sources.end();
    for (auto source = sync_->sources.begin(); source != sync_->sources.end(); ++source) {
        if (source->active || (source->named_at == now_ && source->given_up == 0)) continue;
        if (oldest == sync_->sources.end() || source->named_at < oldest->named_at) oldest = source;
    }
    if (oldest == sync_->sources.end()) return false;
    PROBE(sync_source_forgotten);
    sync_->sources.erase(oldest);
    return true;
}

}  // namespace pccl::core
