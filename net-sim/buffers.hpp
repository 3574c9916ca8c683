// The memory behind the buffer ids of one node, and locks on the ranges in use.
//
// A range that is sent or read by a compute must not be written. A range that is received or written by a compute must
// not be used by anything else. If a lock fails, the machine has broken its contract (core/events.hpp).
//
// Symbolic memory has lengths and locks but no content. It reads as zeros, writes are not carried out, and checksums
// and hashes of zeros are computed once per length. So the cost of a driver does not depend on how much memory it
// holds.
#pragma once

#include "core/base/ids.hpp"
#include "core/numeric/kernels.hpp"

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace pccl::sim {

using core::BufferId;
using core::BufferRef;

enum class Use : std::uint8_t { send, receive, compute, store };

// Checksums and hashes of zeros, cached by length.
class Zeros {
public:
    std::uint64_t checksum(std::uint64_t length) {
        const auto [entry, fresh] = checksums_.try_emplace(length, 0);
        if (fresh) entry->second = core::numeric::checksum64(block(length), length);
        return entry->second;
    }
    core::numeric::Hash128 hash(std::uint64_t length) {
        const auto [entry, fresh] = hashes_.try_emplace(length);
        if (fresh) entry->second = core::numeric::hash128(block(length), length);
        return entry->second;
    }

private:
    const std::uint8_t* block(std::uint64_t length) {
        if (block_.size() < length) block_.resize(static_cast<std::size_t>(length));
        return block_.data();
    }
    std::vector<std::uint8_t> block_;
    std::unordered_map<std::uint64_t, std::uint64_t> checksums_;        // never iterated
    std::unordered_map<std::uint64_t, core::numeric::Hash128> hashes_;  // never iterated
};

// A set of bytes as disjoint ranges. Ranges that touch are merged.
class Ranges {
public:
    void add(std::uint64_t begin, std::uint64_t end) {
        auto next = ranges_.upper_bound(begin);
        if (next != ranges_.begin() && std::prev(next)->second >= begin) {
            --next;
            begin = next->first;
        }
        while (next != ranges_.end() && next->first <= end) {
            if (next->second > end) end = next->second;
            next = ranges_.erase(next);
        }
        ranges_.emplace(begin, end);
    }
    std::uint64_t bytes() const {
        std::uint64_t sum = 0;
        for (const auto& [begin, end] : ranges_) sum += end - begin;
        return sum;
    }

private:
    std::map<std::uint64_t, std::uint64_t> ranges_;  // begin to end
};

class Buffers {
public:
    // The memory is symbolic if `zeros` is not null.
    explicit Buffers(Zeros* zeros) : zeros_(zeros) {}

    bool symbolic() const { return zeros_ != nullptr; }
    // The content, empty if the memory is symbolic or large memory of the machine. Null: no such buffer.
    std::vector<std::uint8_t>* find(BufferId id) {
        const auto found = memory_.find(id);
        return found == memory_.end() ? nullptr : &found->second.content;
    }
    // New memory is filled with a pattern that no test data contains. Large memory of the machine is zero: most of it is
    // payload of bandwidth tests that nobody touches, and the system gives zeros page by page.
    bool add(BufferId id, std::uint64_t bytes) {
        const auto [entry, added] = memory_.try_emplace(id);
        if (added) {
            entry->second.bytes = bytes;
            if (!symbolic()) entry->second.fill(bytes, (id & 1) != 0);
        }
        if (added && (id & 1) != 0) {
            machine_bytes_ += bytes;
            if (machine_bytes_ > machine_bytes_most_) machine_bytes_most_ = machine_bytes_;
        }
        return added;
    }
    bool remove(BufferId id) {
        const auto found = memory_.find(id);
        if (found == memory_.end()) return false;
        if ((id & 1) != 0) machine_bytes_ -= found->second.bytes;
        memory_.erase(found);
        return true;
    }
    bool contains(const BufferRef& ref) const {
        const auto found = memory_.find(ref.id);
        return found != memory_.end() && ref.offset <= found->second.bytes &&
               ref.length <= found->second.bytes - ref.offset;
    }
    std::uint8_t* at(const BufferRef& ref) {  // real memory only
        Memory& memory = memory_.find(ref.id)->second;
        return (memory.zeros ? memory.zeros.get() : memory.content.data()) + ref.offset;
    }
    std::uint64_t checksum(const BufferRef& ref) {
        return symbolic() ? zeros_->checksum(ref.length) : core::numeric::checksum64(at(ref), ref.length);
    }
    core::numeric::Hash128 hash(const BufferRef& ref) {
        return symbolic() ? zeros_->hash(ref.length) : core::numeric::hash128(at(ref), ref.length);
    }

    // False if an overlapping range is locked in a conflicting way.
    bool lock(const BufferRef& ref, bool writes, Use use, std::uint64_t key) {
        if (ref.length == 0) return true;
        for (const Lock& other : locks_) {
            if (other.ref.id != ref.id || (!writes && !other.writes)) continue;
            if (other.use == use && other.key == key) continue;  // one compute may write over its own input
            if (ref.offset < other.ref.offset + other.ref.length && other.ref.offset < ref.offset + ref.length)
                return false;
        }
        locks_.push_back(Lock{ref, key, use, writes});
        if (symbolic()) {
            Memory& memory = memory_[ref.id];
            (writes ? memory.writes : memory.reads).add(ref.offset, ref.offset + ref.length);
        }
        return true;
    }
    void unlock(Use use, std::uint64_t key) {
        std::size_t kept = 0;
        for (const Lock& lock : locks_) {
            if (lock.use != use || lock.key != key) locks_[kept++] = lock;
        }
        locks_.resize(kept);
    }
    bool in_use(BufferId id) const {
        for (const Lock& lock : locks_) {
            if (lock.ref.id == id) return true;
        }
        return false;
    }
    // The number of distinct bytes written (or read) since forget_uses. Counted for symbolic memory only, whose content
    // cannot be checked.
    std::uint64_t written(BufferId id) const {
        const auto found = memory_.find(id);
        return found == memory_.end() ? 0 : found->second.writes.bytes();
    }
    std::uint64_t read(BufferId id) const {
        const auto found = memory_.find(id);
        return found == memory_.end() ? 0 : found->second.reads.bytes();
    }
    void forget_uses(BufferId id) { memory_[id].writes = memory_[id].reads = {}; }
    std::uint64_t machine_bytes() const { return machine_bytes_; }
    std::uint64_t machine_bytes_most() const { return machine_bytes_most_; }

private:
    struct Lock {
        BufferRef ref;
        std::uint64_t key = 0;
        Use use = Use::send;
        bool writes = false;
    };
    static constexpr std::uint64_t large_bytes = 16 << 20;
    struct Memory {
        struct Free {
            void operator()(std::uint8_t* memory) const { std::free(memory); }
        };
        void fill(std::uint64_t size, bool of_machine) {
            if (of_machine && size >= large_bytes) zeros.reset(static_cast<std::uint8_t*>(std::calloc(size, 1)));
            if (!zeros) content.assign(static_cast<std::size_t>(size), std::uint8_t{0xCD});
        }
        std::uint64_t bytes = 0;
        std::vector<std::uint8_t> content;
        std::unique_ptr<std::uint8_t, Free> zeros;  // large memory of the machine
        Ranges writes, reads;                       // symbolic memory only
    };
    Zeros* zeros_ = nullptr;
    std::unordered_map<BufferId, Memory> memory_;  // never iterated
    std::vector<Lock> locks_;
    std::uint64_t machine_bytes_ = 0;
    std::uint64_t machine_bytes_most_ = 0;
};

}  // namespace pccl::sim
