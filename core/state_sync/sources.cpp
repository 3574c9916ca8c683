// The table of members that hold the elected state, as a receiver keeps it.
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"

namespace pccl::core {

// Nothing can be asked of it at present: it sent what is not the elected state, or lacks what is still open.
bool PeerCore::useless(const SyncSource& source) const { return source.wrongs >= wrongs_max || !helps(source); }

// Makes room in the full table for `candidate`. False: every source in it has to stay. Of those that are not used, a useless
// one leaves first, then one that the master stopped naming, the longest known first, then one that was given up more often.
bool PeerCore::make_room_for(const SyncSource& candidate) {
    Sync& sync = *sync_;
    if (sync.forgotten.size() >= config_.limits.peers_max || useless(candidate)) return false;
    const auto may_leave = [&](const SyncSource& source) {
        return !source.active &&
               (useless(source) || source.named_at != turn_.now || source.given_up > candidate.given_up);
    };
    auto leaves = sync.sources.end();
    for (auto source = sync.sources.begin(); source != sync.sources.end(); ++source) {
        if (!may_leave(*source)) continue;
        const auto rank = [&](const SyncSource& one) { return std::pair(!useless(one), one.named_at); };
        if (leaves == sync.sources.end() || rank(*source) < rank(*leaves)) leaves = source;
    }
    if (leaves == sync.sources.end()) return false;
    PROBE(sync_source_forgotten);
    sync.forgotten.emplace(leaves->peer, *leaves);
    sync.sources.erase(leaves);
    return true;
}

}  // namespace pccl::core
