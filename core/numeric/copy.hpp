// Copies of large ranges that leave the caches alone.
#pragma once

#include <cstddef>

namespace pccl::core::numeric {

// From this length on the target's lines are written past the caches. An ordinary copy reads each line of the target
// before it overwrites it, and throws out of the caches what is in use there.
constexpr std::size_t copy_past_caches_bytes = std::size_t{4} << 20;

// Any alignment is legal. The ranges do not overlap (a shorter copy may: then it is as memmove). When it returns, other
// threads that synchronize with this one see the bytes.
void copy(void* target, const void* source, std::size_t bytes);

// Past the caches, whatever the length. The ranges do not overlap.
void copy_past_caches(void* target, const void* source, std::size_t bytes);

}  // namespace pccl::core::numeric
