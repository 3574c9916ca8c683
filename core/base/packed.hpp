// Packs small numbers into one word. Abstract states are such words.
#pragma once

#include "core/base/assert.hpp"

#include <cstddef>
#include <cstdint>

namespace pccl::core {

class Packed {
public:
    // A count that does not fit into `bits` becomes the largest one that does.
    void count(std::size_t value, unsigned bits) {
        const std::size_t most = (std::size_t{1} << bits) - 1;
        put(value < most ? value : most, bits);
    }
    template <class... Flags>
    void flags(Flags... values) {
        (put(static_cast<bool>(values) ? 1 : 0, 1), ...);
    }
    std::uint64_t word() const { return word_; }

private:
    void put(std::uint64_t value, unsigned bits) {
        ASSERT(used_ + bits <= 64);
        word_ |= value << used_;
        used_ += bits;
    }
    std::uint64_t word_ = 0;
    unsigned used_ = 0;
};

}  // namespace pccl::core
