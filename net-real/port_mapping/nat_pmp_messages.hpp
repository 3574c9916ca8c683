// The bytes of NAT-PMP (RFC 6886): requests for the outer address and for a TCP port, and their answers.
#pragma once

#include "core/base/ids.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pccl::real::nat_pmp {

enum class Kind : std::uint8_t {
    ignored,  // not an answer to this request
    granted,
    refused,   // with `result`
    unusable,  // granted, but it is 0
};

struct Answer {
    Kind kind = Kind::ignored;
    std::uint16_t result = 0;
    core::Endpoint outer;  // of an address: without port; of a port: without address
    std::uint32_t life_s = 0;
};

std::array<std::uint8_t, 2> write_address_request();
// A lifetime of 0: the mapping is to be forgotten.
std::array<std::uint8_t, 12> write_port_request(std::uint16_t port, std::uint16_t wished, std::uint32_t lifetime_s);
// Any bytes. Only datagrams of the router may be given.
Answer read_address(std::span<const std::uint8_t> datagram);
Answer read_port(std::span<const std::uint8_t> datagram, std::uint16_t port);
const char* text_of(std::uint16_t result);

}  // namespace pccl::real::nat_pmp
