// Addresses come from Python as the 4 or 16 bytes of the IP address and a port.
#pragma once

#include "include/ccoip_inet.h"

#include <nanobind/nanobind.h>

#include <algorithm>

namespace pccl_python {

inline ccoip_socket_address_t socket_address(const nanobind::bytes& address, std::uint16_t port) {
    ccoip_socket_address_t out{};
    out.port = port;
    const bool is_v6 = address.size() == sizeof out.inet.ipv6.data;
    out.inet.protocol = is_v6 ? inetIPv6 : inetIPv4;
    unsigned char* target = is_v6 ? out.inet.ipv6.data : out.inet.ipv4.data;
    const std::size_t size = is_v6 ? sizeof out.inet.ipv6.data : sizeof out.inet.ipv4.data;
    std::copy_n(static_cast<const unsigned char*>(address.data()), std::min(address.size(), size), target);
    return out;
}

}  // namespace pccl_python
