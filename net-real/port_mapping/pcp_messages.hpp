// The bytes of PCP (RFC 6887): requests for mappings (MAP) and for a sign of life (ANNOUNCE), and their answers.
#pragma once

#include "core/base/ids.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pccl::real::pcp {

inline constexpr std::size_t header_bytes = 24, map_bytes = 60;

using Nonce = std::array<std::uint8_t, 12>;

struct Map {
    core::Endpoint client;  // IPv4: the address from which the request comes
    Nonce nonce{};          // the same in all requests for one mapping; others must not be able to guess it
    std::uint16_t port = 0;
    core::Endpoint wished;         // IPv4: the outer end; 0: any
    std::uint32_t lifetime_s = 0;  // 0: the mapping is to be forgotten
};

enum class Kind : std::uint8_t {
    ignored,        // not an answer to this request
    granted,        // with `outer` and `life_s`
    refused,        // with `result`
    unusable,       // granted, but without an IPv4 address or a port
    other_version,  // the server speaks NAT-PMP, or another version of PCP
};

struct Answer {
    Kind kind = Kind::ignored;
    std::uint8_t result = 0;
    std::uint32_t life_s = 0;
    core::Endpoint outer;
};

// The same for the same secret, address and port, so that a peer that was killed and started again owns its old mapping.
Nonce make_nonce(std::string_view secret, const core::Endpoint& client, std::uint16_t port);
std::array<std::uint8_t, map_bytes> write_map(const Map& request);
std::array<std::uint8_t, header_bytes> write_announce(const core::Endpoint& client);
// Any bytes. Only datagrams of the router may be given.
Answer read_map(std::span<const std::uint8_t> datagram, const Map& request);
Answer read_announce(std::span<const std::uint8_t> datagram);  // granted: without `outer` and `life_s`
const char* text_of(std::uint8_t result);

}  // namespace pccl::real::pcp
