// Reads a fuzzer's bytes as numbers. After their end, every number is 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace fuzz {

class Input {
public:
    Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
    bool empty() const { return rest_.empty(); }
    std::uint8_t byte() {
        if (rest_.empty()) return 0;
        const std::uint8_t value = rest_.front();
        rest_ = rest_.subspan(1);
        return value;
    }
    std::uint64_t number(int bytes) {
        std::uint64_t value = 0;
        for (int i = 0; i < bytes; ++i) value |= static_cast<std::uint64_t>(byte()) << (8 * i);
        return value;
    }
    std::size_t below(std::size_t bound) { return bound == 0 ? 0 : number(bound > 256 ? 4 : 1) % bound; }
    std::string bytes(std::size_t count) {
        const std::span<const std::uint8_t> part = rest_.first(std::min(count, rest_.size()));
        rest_ = rest_.subspan(part.size());
        return {part.begin(), part.end()};
    }
    std::string all() { return bytes(rest_.size()); }

private:
    std::span<const std::uint8_t> rest_;
};

}  // namespace fuzz
