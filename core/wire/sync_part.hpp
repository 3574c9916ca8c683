// A receiver's request to one holder for a part of a shared state.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>

namespace pccl::core {

struct SyncPart {
    enum class Kind : std::uint8_t { chunk, hashes, entry_list };
    OpId sync = 0;
    std::uint32_t entry = 0;
    std::uint32_t index = 0;  // of the chunk, or of the first hash of a page
    Kind kind = Kind::chunk;
    std::uint32_t most = 0;  // hashes on the page; not compared: with another number it is still the same request
    friend bool operator==(const SyncPart& a, const SyncPart& b) {
        return a.sync == b.sync && a.entry == b.entry && a.index == b.index && a.kind == b.kind;
    }
};

}  // namespace pccl::core
