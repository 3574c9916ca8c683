// Memory beside the application's, where what a synchronization fetches lands.
//
// Memory that is asked for may be on its way for as long as a disk takes. A synchronization that is over does not wait for it:
// it is freed when it comes, and not much of such memory may be outstanding.
// Invariant: what was asked for is wanted, abandoned or freed, and freed at most once.
#pragma once

#include "core/requests.hpp"
#include "core/turn.hpp"

#include <set>

namespace pccl::core {

class Staging {
public:
    Staging(Turn& turn, Memory& memory) : turn_(turn), memory_(memory) {}

    // False: memory that was asked for earlier has not come yet. A disk that hangs gets no more requests.
    bool request(std::uint64_t bytes);
    enum class Came : std::uint8_t { for_nobody, there, none_left };
    Came came(const BufferAllocated& event);
    // True if it has not come: nobody waits for it any more.
    bool abandon_if_awaited();
    void free();

    bool awaited() const { return buffer_ != 0 && !there_; }
    bool there() const { return there_; }
    bool has_abandoned() const { return !abandoned_.empty(); }
    std::uint64_t bytes() const { return bytes_; }
    BufferRef at(std::uint64_t offset, std::uint64_t length) const { return BufferRef{buffer_, offset, length}; }

private:
    Turn& turn_;
    Memory& memory_;
    BufferId buffer_ = 0;
    std::uint64_t bytes_ = 0;
    bool there_ = false;
    std::set<BufferId> abandoned_;
};

}  // namespace pccl::core
