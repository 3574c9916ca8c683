// What memory a BufferId stands for.
//
// Even ids are the application's memory, registered and released by any thread. Odd ids are the machine's (AllocateBuffer,
// FreeBuffer): blocks from a pool that keeps freed ones for 10 s, so that a loop of operations faults its pages in once.
// Blocks that may be large and are used once count against a limit; beyond it a file without a name backs them.
// resolve() is for the I/O thread; the machine's ids are touched by that thread only.
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

    // needs_file: `may_be_file`, and it does not fit the limit of staging memory; the caller makes a StagingFile.
    enum class Allocation : std::uint8_t { done, failed, needs_file };
    Allocation allocate(core::BufferId id, std::uint64_t bytes, bool may_be_file = false);
    // A mapping of StagingFile. When it throws (std::bad_alloc) the mapping is given back.
    void adopt_file(core::BufferId id, std::uint8_t* data, std::uint64_t bytes);
    bool is_file(core::BufferId id) const { return file_of(id) != nullptr; }
    // The mapping stays as long as somebody holds this, also after free(). Null: it is no file.
    std::shared_ptr<const void> file_of(core::BufferId id) const;
    void limit_staging(std::uint64_t bytes) { staging_max_ = bytes; }  // before the first allocation
    // Blocks in use and idle ones together; 0: no limit. What is in use alone may exceed it: the machine counts that itself.
    void limit_scratch(std::uint64_t bytes) { scratch_max_ = bytes; }  // before the first allocation
    void free(core::BufferId id, core::Instant now);
    // Memory of the range. Null with length 0 is legal; a range outside its buffer is a broken invariant.
    std::uint8_t* resolve(const core::BufferRef& range);

    // Gives blocks back that were idle for 10 s; the instant at which to call again, or `never`.
    core::Instant trim(core::Instant now);
    core::Instant next_trim() const;
    std::uint64_t scratch_bytes() const;  // mapped for the machine, idle blocks too

private:
    struct Memory {
        std::uint8_t* data = nullptr;
        std::uint64_t bytes = 0;
    };
    struct Block {
        std::uint8_t* data = nullptr;
        std::size_t bytes = 0;  // really mapped
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
        std::shared_ptr<const void> file;  // Kind::file: unmapped with the last holder
    };
    std::unordered_map<core::BufferId, MachineBuffer> machine_;
    std::vector<IdleBlock> idle_;     // the longest idle one first
    std::uint64_t pooled_bytes_ = 0;  // in use, of Kind::pooled
    std::uint64_t idle_bytes_ = 0;
    std::uint64_t scratch_max_ = 0;
    std::uint64_t staging_max_ = ~std::uint64_t{0};
    std::uint64_t staging_bytes_ = 0;
};

}  // namespace pccl::real
