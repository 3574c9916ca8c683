// Maps a BufferId to its memory.
//
// Even ids are memory of the application; any thread registers and releases it. Odd ids are buffers of the machine
// (AllocateBuffer, FreeBuffer). They come from a pool that keeps freed blocks for 10 s, so that a loop of operations
// faults its pages in only once. Buffers with `may_be_file` are used once and may be large. They are not pooled and
// count against the staging limit; beyond it they are backed by a file without a name. Only the I/O thread calls
// resolve() and touches the machine's ids.
#pragma once

#include "core/base/ids.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace pccl::real {

class BufferTable {
public:
    BufferTable() = default;
    ~BufferTable();
    BufferTable(const BufferTable&) = delete;
    BufferTable& operator=(const BufferTable&) = delete;

    core::BufferId register_buffer(void* data, std::uint64_t bytes);  // any thread
    void release_buffer(core::BufferId id);                           // any thread

    // needs_file: only with `may_be_file`. The buffer exceeds the limit of staging memory; the caller makes a
    // StagingFile.
    enum class Allocation : std::uint8_t { done, failed, needs_file };
    Allocation allocate(core::BufferId id, std::uint64_t bytes, bool may_be_file = false);
    // Takes over a mapping that StagingFile made. If it throws (std::bad_alloc), the mapping is unmapped.
    void adopt_file(core::BufferId id, std::uint8_t* data, std::uint64_t bytes);
    bool is_file(core::BufferId id) const { return file_of(id) != nullptr; }
    // The mapping of a file. It stays mapped as long as somebody holds this pointer, also after free(). Null: not a
    // file.
    std::shared_ptr<const void> file_of(core::BufferId id) const;
    void limit_staging(std::uint64_t bytes) { staging_max_ = bytes; }  // before the first allocation
    // Limits blocks in use plus idle blocks; 0: no limit. Blocks in use alone may exceed it: the machine limits those
    // itself.
    void limit_scratch(std::uint64_t bytes) { scratch_max_ = bytes; }  // before the first allocation
    void free(core::BufferId id, core::Instant now);
    // The memory of the range. Null is legal for length 0. A range outside its buffer breaks an invariant (ASSERT).
    std::uint8_t* resolve(const core::BufferRef& range);

    // Unmaps blocks that were idle for 10 s. Returns when to call it again, or `never`.
    core::Instant trim(core::Instant now);
    core::Instant next_trim() const;
    std::uint64_t scratch_bytes() const;  // mapped for the machine, including idle blocks

private:
    struct Memory {
        std::uint8_t* data = nullptr;
        std::uint64_t bytes = 0;
    };
    struct Block {
        std::uint8_t* data = nullptr;
        std::size_t bytes = 0;  // size of the mapping
    };
    struct IdleBlock {
        Block block;
        core::Instant since = 0;
    };
    static Block map(std::size_t bytes);
    bool allocate_staging(core::BufferId id, std::uint64_t bytes);
    static void unmap(const Block& block);
    void drop_idle(std::uint64_t wanted_bytes);

    std::mutex mutex_;  // guards application_ and next_id_
    std::unordered_map<core::BufferId, Memory> application_;
    core::BufferId next_id_ = 2;

    struct MachineBuffer {
        Memory memory;
        Block block;
        enum class Kind : std::uint8_t { pooled, staging, file } kind = Kind::pooled;
        std::shared_ptr<const void> file;  // Kind::file: the last holder unmaps it
    };
    std::unordered_map<core::BufferId, MachineBuffer> machine_;
    std::vector<IdleBlock> idle_;     // longest idle first
    std::uint64_t pooled_bytes_ = 0;  // in use, of Kind::pooled
    std::uint64_t idle_bytes_ = 0;
    std::uint64_t scratch_max_ = 0;
    std::uint64_t staging_max_ = ~std::uint64_t{0};
    std::uint64_t staging_bytes_ = 0;
};

}  // namespace pccl::real
