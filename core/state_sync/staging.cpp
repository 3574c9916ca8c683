#include "core/state_sync/staging.hpp"

#include "core/base/probe.hpp"

namespace pccl::core {

bool Staging::request(std::uint64_t bytes) {
    if (abandoned_.size() >= turn_.limits.abandoned_stagings_max) return false;
    buffer_ = memory_.request(bytes, StagingMemory{}, true);
    bytes_ = bytes;
    return true;
}

Staging::Came Staging::came(const BufferAllocated& event) {
    if (abandoned_.erase(event.buffer) != 0) {
        if (event.ok) memory_.free(event.buffer);
        return Came::for_nobody;
    }
    ASSERT(buffer_ == event.buffer && !there_);
    there_ = event.ok;
    if (event.ok) return Came::there;
    PROBE(sync_not_allocated);
    buffer_ = 0;
    return Came::none_left;
}

bool Staging::abandon_if_awaited() {
    if (!awaited()) return false;
    PROBE(sync_over_before_memory);
    abandoned_.insert(buffer_);
    buffer_ = 0;
    return true;
}

void Staging::free() {
    if (buffer_ != 0) memory_.free(buffer_);
    buffer_ = 0;
    there_ = false;
}

}  // namespace pccl::core
