#include "net-real/buffers.hpp"

#include "core/base/assert.hpp"
#include "net-real/staging_file.hpp"

#include <algorithm>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace pccl::real {

namespace {

constexpr core::Duration idle_time = 10 * core::second;
constexpr std::size_t huge_page_bytes = 2u << 20;
constexpr std::size_t small_page_bytes = 4096;

constexpr std::size_t aside_bytes = 256u << 20;  // beyond it munmap is too slow for an I/O thread, see unmap_aside

}  // namespace

BufferTable::~BufferTable() {
    for (auto& [id, buffer] : machine_) {
        if (buffer.kind != MachineBuffer::Kind::file) unmap(buffer.block);
    }
    for (auto& idle : idle_) unmap(idle.block);
}

core::BufferId BufferTable::register_buffer(void* data, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const core::BufferId id = next_id_;
    next_id_ += 2;
    application_.emplace(id, Memory{static_cast<std::uint8_t*>(data), bytes});
    return id;
}

void BufferTable::release_buffer(core::BufferId id) {
    const std::lock_guard lock(mutex_);
    application_.erase(id);
}

BufferTable::Block BufferTable::map(std::size_t bytes) {
    // Big blocks start on a huge page, so that the kernel can use huge pages for them: fewer page faults.
    const bool is_big = bytes >= 2 * huge_page_bytes;
    const std::size_t unit = is_big ? huge_page_bytes : small_page_bytes;
    const std::size_t rounded = (bytes + unit - 1) / unit * unit;
    if (rounded < bytes) return {};
    const std::size_t reserved = is_big ? rounded + huge_page_bytes : rounded;
    void* raw = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return {};
    auto* begin = static_cast<std::uint8_t*>(raw);
    if (!is_big) return {begin, rounded};
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const std::size_t skip = (huge_page_bytes - address % huge_page_bytes) % huge_page_bytes;
    if (skip > 0) ::munmap(begin, skip);
    const std::size_t behind = reserved - skip - rounded;
    if (behind > 0) ::munmap(begin + skip + rounded, behind);
    ::madvise(begin + skip, rounded, MADV_HUGEPAGE);
    return {begin + skip, rounded};
}

void BufferTable::unmap(const Block& block) {
    if (block.data == nullptr) return;
    if (block.bytes > aside_bytes)
        unmap_aside(block.data, block.bytes);
    else
        ::munmap(block.data, block.bytes);
}

bool BufferTable::allocate_staging(core::BufferId id, std::uint64_t bytes) {
    if (staging_bytes_ + bytes > staging_max_) return false;
    const Block block = map(static_cast<std::size_t>(bytes));
    if (block.data == nullptr) return false;
    staging_bytes_ += bytes;
    machine_.emplace(id, MachineBuffer{{block.data, bytes}, block, MachineBuffer::Kind::staging, nullptr});
    return true;
}

void BufferTable::adopt_file(core::BufferId id, std::uint8_t* data, std::uint64_t bytes) {
    ASSERT(id % 2 == 1 && machine_.find(id) == machine_.end());
    const Block block{data, static_cast<std::size_t>(bytes)};
    std::shared_ptr<const void> file(data, [block](void*) { unmap_aside(block.data, block.bytes); });
    machine_.emplace(id, MachineBuffer{{data, bytes}, block, MachineBuffer::Kind::file, std::move(file)});
}

std::shared_ptr<const void> BufferTable::file_of(core::BufferId id) const {
    const auto found = id % 2 == 1 ? machine_.find(id) : machine_.end();
    return found == machine_.end() ? nullptr : found->second.file;
}

BufferTable::Allocation BufferTable::allocate(core::BufferId id, std::uint64_t bytes, bool may_be_file) {
    ASSERT(id % 2 == 1 && machine_.find(id) == machine_.end());
    if (may_be_file && bytes > 0) return allocate_staging(id, bytes) ? Allocation::done : Allocation::needs_file;
    if (bytes == 0) {
        machine_.emplace(id, MachineBuffer{});
        return Allocation::done;
    }
    // Take the smallest idle block that fits and does not waste much.
    std::size_t best = idle_.size();
    for (std::size_t i = 0; i < idle_.size(); ++i) {
        const std::size_t have = idle_[i].block.bytes;
        if (have < bytes || have > bytes + bytes / 4 + huge_page_bytes) continue;
        if (scratch_max_ != 0 && pooled_bytes_ + have > scratch_max_) continue;
        if (best == idle_.size() || have < idle_[best].block.bytes) best = i;
    }
    Block block;
    if (best < idle_.size()) {
        block = idle_[best].block;
        idle_bytes_ -= block.bytes;
        idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(best));
    } else {
        drop_idle(bytes);
        block = map(static_cast<std::size_t>(bytes));
        if (block.data == nullptr && !idle_.empty()) {
            for (auto& idle : idle_) unmap(idle.block);
            idle_.clear();
            idle_bytes_ = 0;
            block = map(static_cast<std::size_t>(bytes));
        }
        if (block.data == nullptr) return Allocation::failed;
    }
    pooled_bytes_ += block.bytes;
    machine_.emplace(id, MachineBuffer{{block.data, bytes}, block, MachineBuffer::Kind::pooled, nullptr});
    return Allocation::done;
}

// Makes room within the limit: unmaps the longest idle blocks first.
void BufferTable::drop_idle(std::uint64_t wanted_bytes) {
    if (scratch_max_ == 0) return;
    std::size_t gone = 0;
    while (gone < idle_.size() && pooled_bytes_ + idle_bytes_ + wanted_bytes > scratch_max_) {
        idle_bytes_ -= idle_[gone].block.bytes;
        unmap(idle_[gone++].block);
    }
    idle_.erase(idle_.begin(), idle_.begin() + static_cast<std::ptrdiff_t>(gone));
}

void BufferTable::free(core::BufferId id, core::Instant now) {
    const auto found = machine_.find(id);
    if (found == machine_.end()) return;  // its allocation failed
    if (found->second.kind == MachineBuffer::Kind::staging) {
        staging_bytes_ -= found->second.memory.bytes;
        unmap(found->second.block);
    } else if (found->second.kind == MachineBuffer::Kind::pooled && found->second.block.data != nullptr) {
        pooled_bytes_ -= found->second.block.bytes;
        idle_bytes_ += found->second.block.bytes;
        idle_.push_back({found->second.block, now});
    }
    machine_.erase(found);
}

std::uint8_t* BufferTable::resolve(const core::BufferRef& range) {
    Memory memory;
    if (range.id % 2 == 1) {
        const auto found = machine_.find(range.id);
        ASSERT(found != machine_.end());
        memory = found->second.memory;
    } else {
        const std::lock_guard lock(mutex_);
        const auto found = application_.find(range.id);
        if (found == application_.end() && range.length == 0) return nullptr;
        ASSERT(found != application_.end());
        memory = found->second;
    }
    ASSERT(range.offset <= memory.bytes && range.length <= memory.bytes - range.offset);
    return memory.data == nullptr ? nullptr : memory.data + range.offset;
}

std::uint64_t BufferTable::scratch_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [id, buffer] : machine_) bytes += buffer.block.bytes;
    for (const IdleBlock& idle : idle_) bytes += idle.block.bytes;
    return bytes;
}

core::Instant BufferTable::next_trim() const {
    core::Instant earliest = core::never;
    for (const auto& idle : idle_) earliest = std::min(earliest, idle.since + idle_time);
    return earliest;
}

core::Instant BufferTable::trim(core::Instant now) {
    std::erase_if(idle_, [&](const IdleBlock& idle) {
        if (now - idle.since < idle_time) return false;
        idle_bytes_ -= idle.block.bytes;
        unmap(idle.block);
        return true;
    });
    return next_trim();
}

}  // namespace pccl::real
