// The memory in which the fetched data of a synchronization lands, separate from the application's memory.
//
// An allocation may take as long as a disk takes. A synchronization that ends does not wait for it: the memory is
// abandoned, and freed when it comes. At most Limits::abandoned_stagings_max such allocations are outstanding.
// Invariant: memory that was requested is wanted, abandoned or freed. It is freed at most once.
#pragma once

#include "core/requests.hpp"
#include "core/turn.hpp"

#include <set>

namespace pccl::core {

class Staging {
public:
    Staging(Turn& turn, Memory& memory) : turn_(turn), memory_(memory) {}

    // False: too many earlier allocations have not come yet. A disk that hangs gets no more requests.
    bool request(std::uint64_t bytes);
    enum class Came : std::uint8_t { for_nobody, there, none_left };
    Came came(const BufferAllocated& event);
    // Abandons memory that was requested and has not come yet. Returns whether there was any.
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
