// The memory behind buffer ids on one node, and who is using which range of it.
//
// Ranges in use are held as locks: a range being sent or read by a compute is not written, a range being received or
// written by a compute is not touched by anybody else. A lock that cannot be had is a broken contract of the machine.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

namespace pccl::sim {

using core::BufferId;
using core::BufferRef;

enum class Use : std::uint8_t { send, receive, compute };

class Buffers {
public:
    std::vector<std::uint8_t>* find(BufferId id) {
        const auto found = memory_.find(id);
        return found == memory_.end() ? nullptr : &found->second;
    }
    // Fresh memory is filled with a pattern that no test data has.
    bool add(BufferId id, std::uint64_t bytes) {
        const bool added = memory_.try_emplace(id, static_cast<std::size_t>(bytes), std::uint8_t{0xCD}).second;
        if (added && (id & 1) != 0) {
            machine_bytes_ += bytes;
            if (machine_bytes_ > machine_bytes_most_) machine_bytes_most_ = machine_bytes_;
        }
        return added;
    }
    bool remove(BufferId id) {
        const auto found = memory_.find(id);
        if (found == memory_.end()) return false;
        if ((id & 1) != 0) machine_bytes_ -= found->second.size();
        memory_.erase(found);
        return true;
    }
    bool contains(const BufferRef& ref) {
        const std::vector<std::uint8_t>* bytes = find(ref.id);
        return bytes != nullptr && ref.offset <= bytes->size() && ref.length <= bytes->size() - ref.offset;
    }
    std::uint8_t* at(const BufferRef& ref) { return find(ref.id)->data() + ref.offset; }

    // False: somebody uses an overlapping range in a way that excludes this one.
    bool lock(const BufferRef& ref, bool writes, Use use, std::uint64_t key) {
        if (ref.length == 0) return true;
        for (const Lock& other : locks_) {
            if (other.ref.id != ref.id || (!writes && !other.writes)) continue;
            if (other.use == use && other.key == key) continue;  // one compute may write over its own input
            if (ref.offset < other.ref.offset + other.ref.length && other.ref.offset < ref.offset + ref.length)
                return false;
        }
        locks_.push_back(Lock{ref, key, use, writes});
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
    std::uint64_t machine_bytes() const { return machine_bytes_; }
    std::uint64_t machine_bytes_most() const { return machine_bytes_most_; }

private:
    struct Lock {
        BufferRef ref;
        std::uint64_t key = 0;
        Use use = Use::send;
        bool writes = false;
    };
    std::unordered_map<BufferId, std::vector<std::uint8_t>> memory_;  // never iterated
    std::vector<Lock> locks_;
    std::uint64_t machine_bytes_ = 0;
    std::uint64_t machine_bytes_most_ = 0;
};

}  // namespace pccl::sim
