#include "harness/scope/arena.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace pccl::scope {
namespace {

constexpr std::size_t granule = 16;
constexpr std::size_t exact_classes = 128;  // payloads up to 2 KiB in steps of a granule, then powers of two
constexpr std::size_t classes = exact_classes + 16;
constexpr std::size_t arenas_max = 8;

Arena* current = nullptr;
std::array<Arena*, arenas_max> all{};

[[noreturn]] void broken(const char* what) {
    std::fprintf(stderr, "scope arena: %s\n", what);
    std::abort();
}

std::size_t class_of(std::size_t bytes) {
    const std::size_t granules = std::max<std::size_t>((bytes + granule - 1) / granule, 1);
    if (granules <= exact_classes) return granules - 1;
    std::size_t index = exact_classes, size = 2 * exact_classes;
    for (; size < granules; size *= 2) ++index;
    if (index >= classes) broken("an allocation is too large");
    return index;
}

std::size_t size_of(std::size_t index) {
    if (index < exact_classes) return (index + 1) * granule;
    return (2 * exact_classes * granule) << (index - exact_classes);
}

Arena* owner_of(const void* address) {
    for (Arena* arena : all) {
        if (arena != nullptr && arena->contains(address)) return arena;
    }
    return nullptr;
}

}  // namespace

// Both structs lie in the arena's own memory, so an image is complete.
struct Arena::Top {
    std::uint64_t used = 0;                     // bytes from the base
    std::array<std::uint64_t, classes> free{};  // the first free block of each class, as an offset; 0: none
};
struct alignas(granule) Arena::Block {
    std::uint32_t index = 0;
    std::uint32_t live = 0;
};

Arena::Top& Arena::top() const { return *reinterpret_cast<Top*>(base_); }

Arena::Arena(std::size_t bytes) : base_(static_cast<std::uint8_t*>(std::aligned_alloc(4096, bytes))), bytes_(bytes) {
    const auto place = std::find(all.begin(), all.end(), nullptr);
    if (base_ == nullptr || place == all.end()) broken("no room for another arena");
    *place = this;
    clear();
}

Arena::~Arena() {
    std::replace(all.begin(), all.end(), this, static_cast<Arena*>(nullptr));
    std::free(base_);
}

Arena::Use::Use(Arena& arena) : before_(current) { current = &arena; }
Arena::Use::~Use() { current = before_; }

void Arena::clear() {
    new (base_) Top;
    top().used = (sizeof(Top) + granule - 1) / granule * granule;
}

void* Arena::allocate(std::size_t bytes) {
    Top& state = top();
    const std::size_t index = class_of(bytes), size = size_of(index);
    std::uint8_t* place = nullptr;
    if (state.free[index] != 0) {
        place = base_ + state.free[index];
        std::memcpy(&state.free[index], place + sizeof(Block), sizeof(std::uint64_t));
    } else {
        if (bytes_ - state.used < sizeof(Block) + size) broken("an arena is full");
        place = base_ + state.used;
        state.used += sizeof(Block) + size;
    }
    std::memset(place, 0, sizeof(Block) + size);
    new (place) Block{static_cast<std::uint32_t>(index), 1};
    return place + sizeof(Block);
}

void Arena::release(void* address) {
    auto* place = static_cast<std::uint8_t*>(address) - sizeof(Block);
    auto& block = *reinterpret_cast<Block*>(place);
    if (block.live != 1) broken("memory is freed twice");
    block.live = 0;
    Top& state = top();
    std::memset(address, 0, size_of(block.index));
    std::memcpy(address, &state.free[block.index], sizeof(std::uint64_t));
    state.free[block.index] = static_cast<std::uint64_t>(place - base_);
}

const ChunkTable::Chunk* ChunkTable::keep(const std::uint8_t* bytes) {
    std::unique_ptr<Chunk>& chunk = chunks_[core::numeric::hash128(bytes, chunk_bytes)];
    if (!chunk) {
        chunk = std::make_unique<Chunk>();
        std::memcpy(chunk->data(), bytes, chunk_bytes);
    }
    return chunk.get();
}

Arena::Image Arena::save(ChunkTable& table) const {
    const std::size_t used = top().used;
    const std::size_t count = (used + ChunkTable::chunk_bytes - 1) / ChunkTable::chunk_bytes;
    // Bytes behind the end are left from an earlier state.
    std::memset(base_ + used, 0, std::min(bytes_, count * ChunkTable::chunk_bytes) - used);
    Image image(count);
    for (std::size_t i = 0; i < count; ++i) image[i] = table.keep(base_ + i * ChunkTable::chunk_bytes);
    return image;
}

void Arena::load(const Image& image) {
    std::uint8_t* to = base_;
    for (const ChunkTable::Chunk* chunk : image) {
        std::memcpy(to, chunk->data(), ChunkTable::chunk_bytes);
        to += ChunkTable::chunk_bytes;
    }
}

Hash128 Arena::fingerprint() const {
    struct Place {
        std::uint64_t begin = 0;  // of the payload, as an offset
        std::uint64_t size = 0;
        bool live = false;
        std::uint64_t number = 0;  // in the order of the visit; 0: not visited
    };
    static std::vector<Place> places;
    static std::vector<std::size_t> order;
    static std::vector<std::uint64_t> words;
    places.clear();
    order.clear();
    words.clear();
    const std::uint64_t used = top().used;
    for (std::uint64_t at = (sizeof(Top) + granule - 1) / granule * granule; at < used;) {
        const auto& block = *reinterpret_cast<const Block*>(base_ + at);
        const std::uint64_t size = size_of(block.index);
        places.push_back({at + sizeof(Block), size, block.live != 0, 0});
        at += sizeof(Block) + size;
    }
    if (places.empty()) return {};
    const auto base = reinterpret_cast<std::uint64_t>(base_);
    places.front().number = 1;
    order.push_back(0);
    for (std::size_t i = 0; i < order.size(); ++i) {
        const Place place = places[order[i]];
        words.push_back(place.size);
        for (std::uint64_t at = place.begin; at < place.begin + place.size; at += sizeof(std::uint64_t)) {
            std::uint64_t word = 0;
            std::memcpy(&word, base_ + at, sizeof(word));
            if (word - base > used) {
                words.push_back(word);
                continue;
            }
            const std::uint64_t offset = word - base;
            auto found = std::upper_bound(places.begin(), places.end(), offset,
                                          [](std::uint64_t a, const Place& b) { return a < b.begin; });
            // A pointer to freed memory, which is not read any more. A pointer to the end of a block, where the next
            // header is, counts as one into that block.
            if (found == places.begin() || !(--found)->live) {
                words.push_back(~std::uint64_t{0});
                continue;
            }
            if (found->number == 0) {
                order.push_back(static_cast<std::size_t>(found - places.begin()));
                found->number = order.size();
            }
            words.push_back(0xA5C0'0000'0000'0000ull | found->number << 24 | (offset - found->begin));
        }
    }
    return core::numeric::hash128(words.data(), words.size() * sizeof(std::uint64_t));
}

__attribute__((noinline)) void clear_stack() {
    volatile std::uint8_t bytes[24 * 1024];
    for (std::size_t i = 0; i < sizeof(bytes); i += 8)
        *reinterpret_cast<volatile std::uint64_t*>(const_cast<std::uint8_t*>(&bytes[i])) = 0;
}

namespace {

void* take(std::size_t bytes) {
    if (current != nullptr) return current->allocate(bytes);
    void* const address = std::malloc(std::max<std::size_t>(bytes, 1));
    if (address == nullptr) broken("no memory left");
    return address;
}

void give(void* address) noexcept {
    if (address == nullptr) return;
    if (Arena* const arena = owner_of(address); arena != nullptr) return arena->release(address);
    std::free(address);
}

}  // namespace
}  // namespace pccl::scope

// The core has no type with a larger alignment than an arena gives.
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    if (pccl::scope::current != nullptr) pccl::scope::broken("memory with a large alignment");
    const auto unit = static_cast<std::size_t>(alignment);
    return std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}
void operator delete(void* address, std::align_val_t) noexcept { std::free(address); }
void operator delete(void* address, std::size_t, std::align_val_t) noexcept { std::free(address); }
void* operator new(std::size_t bytes) { return pccl::scope::take(bytes); }
void* operator new[](std::size_t bytes) { return pccl::scope::take(bytes); }
// The library's own nothrow operators call those above, but not under AddressSanitizer.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return pccl::scope::take(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return pccl::scope::take(bytes); }
void operator delete(void* address) noexcept { pccl::scope::give(address); }
void operator delete[](void* address) noexcept { pccl::scope::give(address); }
void operator delete(void* address, std::size_t) noexcept { pccl::scope::give(address); }
void operator delete[](void* address, std::size_t) noexcept { pccl::scope::give(address); }
