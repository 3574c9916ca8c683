// A peer's unanswered requests to its driver: computes and memory. Each request stores the part that owns it.
//
// Invariant: each answer goes to exactly one owner, the one that made the request.
#pragma once

#include "core/base/assert.hpp"
#include "core/turn.hpp"

#include <map>
#include <utility>
#include <variant>

namespace pccl::core {

// ---- computes ------------------------------------------------------------------------------------------------------

struct SliceReduction {
    static constexpr std::uint32_t no_cell = ~0u;
    LaneId op;
    std::uint32_t slice = 0;
    std::uint32_t cell = no_cell;  // cell in the reserve of `remote`, to be freed afterwards
    Uuid remote;
};
// Own input is quantized, or is brought to the place of final bytes.
struct InputPreparation {
    LaneId op;
    std::uint32_t slice = 0;
};
// Own input is copied to scratch while it leaves, because final bytes will overwrite it.
struct InputCopy {
    LaneId op;
    std::uint32_t slice = 0;
};
struct CommitCopy {
    LaneId op;
    bool ahead = false;  // of the outcome
};
struct EntryHash {
    std::uint32_t entry = 0;
    std::uint32_t chunk = 0;
};
struct ChunkCheck {
    std::uint32_t entry = 0;
    std::uint32_t chunk = 0;
    std::uint32_t generation = 0;  // SyncFetch::generation
};
struct StateCopy {};
using ComputeOwner =
    std::variant<SliceReduction, InputPreparation, InputCopy, CommitCopy, EntryHash, ChunkCheck, StateCopy>;

class Computes {
public:
    explicit Computes(Turn& turn) : turn_(turn) {}
    void request(Compute compute, const ComputeOwner& owner) {
        compute.id = next_++;
        owners_.emplace(compute.id, owner);
        turn_.add(std::move(compute));
    }
    ComputeOwner answered(ComputeId id) {
        const auto entry = owners_.find(id);
        ASSERT(entry != owners_.end());
        const ComputeOwner owner = entry->second;
        owners_.erase(entry);
        return owner;
    }
    ComputeId next_name() const { return next_; }

private:
    Turn& turn_;
    std::map<ComputeId, ComputeOwner> owners_;
    ComputeId next_ = 1;
};

// ---- memory --------------------------------------------------------------------------------------------------------

struct OperationMemory {
    LaneId op;
};
struct ReserveMemory {
    Uuid remote;
};
struct StagingMemory {};  // for data that a synchronization fetches
struct TestMemory {};     // for a bandwidth test
using MemoryOwner = std::variant<OperationMemory, ReserveMemory, StagingMemory, TestMemory>;

class Memory {
public:
    explicit Memory(Turn& turn) : turn_(turn) {}
    // `may_be_file`: the driver may back the part beyond its limit with a file.
    BufferId request(std::uint64_t bytes, const MemoryOwner& owner, bool may_be_file = false) {
        const BufferId id = next_;
        next_ += 2;
        owners_.emplace(id, owner);
        turn_.add(AllocateBuffer{id, bytes, may_be_file});
        return id;
    }
    MemoryOwner answered(BufferId id) {
        const auto entry = owners_.find(id);
        ASSERT(entry != owners_.end());
        const MemoryOwner owner = entry->second;
        owners_.erase(entry);
        return owner;
    }
    void free(BufferId id) { turn_.add(FreeBuffer{id}); }
    bool waits() const { return !owners_.empty(); }
    BufferId next_name() const { return next_; }

private:
    Turn& turn_;
    std::map<BufferId, MemoryOwner> owners_;
    BufferId next_ = 1;  // odd: chosen by the machine
};

}  // namespace pccl::core
