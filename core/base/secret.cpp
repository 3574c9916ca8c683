#include "core/base/secret.hpp"

#include <bit>
#include <cstddef>
#include <string>

namespace pccl::core {

namespace {

std::uint64_t load(const void* bytes, std::size_t count = 8) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < count; ++i)
        word |= static_cast<std::uint64_t>(static_cast<const std::uint8_t*>(bytes)[i]) << (8 * i);
    return word;
}

void store(std::uint64_t word, std::uint8_t* bytes) {
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(word >> (8 * i));
}

struct SipState {
    std::uint64_t v0, v1, v2, v3;

    void rounds(int count) {
        for (; count > 0; --count) {
            v0 += v1;
            v1 = std::rotl(v1, 13) ^ v0;
            v0 = std::rotl(v0, 32);
            v2 += v3;
            v3 = std::rotl(v3, 16) ^ v2;
            v0 += v3;
            v3 = std::rotl(v3, 21) ^ v0;
            v2 += v1;
            v1 = std::rotl(v1, 17) ^ v2;
            v2 = std::rotl(v2, 32);
        }
    }
    void absorb(std::uint64_t word) {
        v3 ^= word;
        rounds(2);
        v0 ^= word;
    }
    std::uint64_t digest() const { return v0 ^ v1 ^ v2 ^ v3; }
};

}  // namespace

Secret derive(const Secret& key, std::string_view message) {
    const std::uint64_t k0 = load(key.data()), k1 = load(key.data() + 8);
    SipState state{k0 ^ 0x736f6d6570736575ull, k1 ^ 0x646f72616e646f6dull ^ 0xee, k0 ^ 0x6c7967656e657261ull,
                   k1 ^ 0x7465646279746573ull};
    std::size_t at = 0;
    for (; at + 8 <= message.size(); at += 8) state.absorb(load(message.data() + at));
    state.absorb(load(message.data() + at, message.size() - at) | static_cast<std::uint64_t>(message.size()) << 56);
    Secret out;
    state.v2 ^= 0xee;
    state.rounds(4);
    store(state.digest(), out.data());
    state.v1 ^= 0xdd;
    state.rounds(4);
    store(state.digest(), out.data() + 8);
    return out;
}

bool same_secret(const Secret& a, std::string_view b) {
    if (b.size() != a.size()) return false;
    // Compare the second half even if the first one differs: the time must be the same.
    const bool first = same_secret(load(a.data()), load(b.data()));
    const bool second = same_secret(load(a.data() + 8), load(b.data() + 8));
    return first && second;
}

bool same_secret(std::uint64_t a, std::uint64_t b) {
    const volatile std::uint64_t difference = a ^ b;
    return difference == 0;
}

Secret SecretSource::next() {
    std::string message(16, '\0');
    store(seed_, reinterpret_cast<std::uint8_t*>(message.data()));
    store(++count_, reinterpret_cast<std::uint8_t*>(message.data()) + 8);
    return derive(key_, message);
}

std::uint64_t SecretSource::next_token() { return load(next().data()) | 1; }

}  // namespace pccl::core
