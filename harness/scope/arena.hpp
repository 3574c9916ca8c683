// An arena is memory that belongs to one machine alone. So the state of the machine can be saved, restored and
// compared, although the machine can neither be copied nor inspected.
//
// While an Arena::Use is in scope, `operator new` of this process takes memory from that arena (arena.cpp replaces the
// global operators). A saved image consists of the bytes of the arena, in chunks that equal images share.
//
// fingerprint() is a hash of everything that can be reached from the first block. A word that points into the arena is
// replaced by the number of the block, in the order of the visit, and the offset in it. So the hash does not depend on
// the places of blocks, on the order of allocations, or on the content of freed blocks. Equal fingerprints mean equal
// states, because nothing that the machine could read is left out. Equal states may still have different fingerprints:
// trees of another shape with the same keys, remains of popped elements in a deque, other bytes in padding. That costs
// additional states, but hides no behaviour. Numbers of states differ a little between compilers.
//
// Not thread-safe: one thread uses arenas.
#pragma once

#include "core/numeric/kernels.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace pccl::scope {

using core::numeric::Hash128;

struct HashOfHash {
    std::size_t operator()(const Hash128& hash) const { return static_cast<std::size_t>(hash.low); }
};

// Chunks of bytes that images share.
class ChunkTable {
public:
    static constexpr std::size_t chunk_bytes = 256;
    using Chunk = std::array<std::uint8_t, chunk_bytes>;
    const Chunk* keep(const std::uint8_t* bytes);
    std::size_t size() const { return chunks_.size(); }

private:
    std::unordered_map<Hash128, std::unique_ptr<Chunk>, HashOfHash> chunks_;
};

class Arena {
public:
    using Image = std::vector<const ChunkTable::Chunk*>;

    explicit Arena(std::size_t bytes);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // While one of these exists, allocations of this process come from the arena.
    class Use {
    public:
        explicit Use(Arena& arena);
        ~Use();
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

    private:
        Arena* before_;
    };

    void clear();
    Image save(ChunkTable& table) const;
    void load(const Image& image);
    Hash128 fingerprint() const;

    bool contains(const void* address) const {
        return address >= base_ && address < static_cast<const void*>(base_ + bytes_);
    }
    void* allocate(std::size_t bytes);
    void release(void* address);

private:
    struct Top;
    struct Block;
    Top& top() const;

    std::uint8_t* base_ = nullptr;
    std::size_t bytes_ = 0;
};

// Clears the stack. Bytes that earlier calls left there can end up in the padding of a state. Called before a machine
// handles an event.
void clear_stack();

}  // namespace pccl::scope
