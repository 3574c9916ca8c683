// Memory in which one machine lives alone, so that its state can be saved, restored and compared although the machine can
// neither be copied nor looked into.
//
// While an Arena::Use is in scope, `operator new` of this process takes memory from that arena (arena.cpp replaces the
// global operators). A saved image is the bytes of the arena in chunks that equal images share.
//
// fingerprint() is a hash of everything that can be reached from the first block. Words that point into the arena are
// replaced by the number of the block in the order of the visit and the offset in it; so it does not matter where blocks
// lie, in which order they were allocated, and what freed blocks contain. Equal fingerprints mean equal states: nothing
// that the machine could read is left out. The converse does not hold: two trees with the same keys and another shape, what
// a popped element left behind in a deque, or other bytes in padding make equal states look different. That costs states,
// never behaviours; numbers of states differ a little between compilers.
// Not thread-safe; one thread uses arenas.
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

// Bytes that many images have in common.
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

    // Allocations of this process come from the arena while one of these lives.
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

// The frames of earlier calls leave bytes on the stack that can end up in the padding of a state. Called before a machine
// handles an event.
void clear_stack();

}  // namespace pccl::scope
