// Converts the address structure of the C interface to the core's Endpoint.
#pragma once

#include "core/base/ids.hpp"
#include "include/ccoip_inet.h"

#include <algorithm>

namespace pccl::c_api {

// `address` has passed check_address.
inline core::Endpoint to_endpoint(const ccoip_socket_address_t& address) {
    core::Endpoint endpoint;
    endpoint.is_v6 = address.inet.protocol == inetIPv6;
    endpoint.port = address.port;
    if (endpoint.is_v6) {
        std::copy_n(address.inet.ipv6.data, 16, endpoint.address.begin());
    } else {
        std::copy_n(address.inet.ipv4.data, 4, endpoint.address.begin());
    }
    return endpoint;
}

}  // namespace pccl::c_api
