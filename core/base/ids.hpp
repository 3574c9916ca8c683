// Identifiers, addresses and time. Ids that a machine or the driver chooses never repeat within their scope.
//
// Time is in nanoseconds of a monotonic clock that only the driver reads; 0 is a legal instant.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <limits>
#include <string>

namespace pccl::core {

using Instant = std::int64_t;   // nanoseconds, monotonic, passed in by the driver
using Duration = std::int64_t;  // nanoseconds
inline constexpr Instant never = std::numeric_limits<Instant>::max();
inline constexpr Duration microsecond = 1'000;
inline constexpr Duration millisecond = 1'000'000;
inline constexpr Duration second = 1'000'000'000;

using LinkId = std::uint64_t;  // odd: chosen by the machine (OpenLink); even: chosen by the driver (LinkAccepted)
using BufferId =
    std::uint64_t;  // odd: chosen by the machine (AllocateBuffer); even: the application's, chosen by the driver
using ComputeId = std::uint64_t;
using Ticket = std::uint64_t;  // one blocked call of the application; chosen by the driver, never repeats
using OpId = std::uint64_t;    // (master incarnation << 32) | counter
// One of a peer's transfers that have one outcome. A collective over direct edges has several, any other only lane 0.
struct LaneId {
    OpId op = 0;
    std::uint32_t lane = 0;
    friend constexpr auto operator<=>(const LaneId&, const LaneId&) = default;
};
using Serial = std::uint64_t;  // names one vote of one peer
using GroupId = std::uint32_t;
using Tag = std::uint64_t;

struct Uuid {
    std::array<std::uint8_t, 16> bytes{};
    // The order of the bytes, compared as two numbers for speed: every lookup in a table of peers compares some uuids.
    friend constexpr std::strong_ordering operator<=>(const Uuid& a, const Uuid& b) {
        const auto x = a.halves(), y = b.halves();
        return x[0] != y[0] ? in_byte_order(x[0]) <=> in_byte_order(y[0]) : in_byte_order(x[1]) <=> in_byte_order(y[1]);
    }
    friend constexpr bool operator==(const Uuid& a, const Uuid& b) {
        const auto x = a.halves(), y = b.halves();
        return x[0] == y[0] && x[1] == y[1];
    }
    constexpr bool is_nil() const { return *this == Uuid{}; }

private:
    using Halves = std::array<std::uint64_t, 2>;
    constexpr Halves halves() const { return std::bit_cast<Halves>(bytes); }
    static constexpr std::uint64_t in_byte_order(std::uint64_t number) {
        return std::endian::native == std::endian::big ? number : __builtin_bswap64(number);
    }
};

// The first 8 hex digits. Log lines use them to name a peer.
std::string short_name(const Uuid& uuid);

// Where a peer or the master listens. IPv4 uses address[0..3].
struct Endpoint {
    bool is_v6 = false;
    std::uint16_t port = 0;  // host order
    std::array<std::uint8_t, 16> address{};
    friend constexpr auto operator<=>(const Endpoint&, const Endpoint&) = default;
};

std::string to_text(const Endpoint& endpoint);

inline bool same_host(const Endpoint& a, const Endpoint& b) { return a.is_v6 == b.is_v6 && a.address == b.address; }

// A range of a buffer. Only the driver maps the id to memory.
struct BufferRef {
    BufferId id = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    friend constexpr bool operator==(const BufferRef&, const BufferRef&) = default;
};

}  // namespace pccl::core
