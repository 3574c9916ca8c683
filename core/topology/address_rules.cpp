#include "core/topology/address_rules.hpp"

#include <algorithm>

namespace pccl::core {

bool is_loopback(const Endpoint& endpoint) {
    if (!endpoint.is_v6) return endpoint.address[0] == 127;
    return std::all_of(endpoint.address.begin(), endpoint.address.end() - 1, [](auto byte) { return byte == 0; }) &&
           endpoint.address[15] == 1;
}

bool is_link_local(const Endpoint& endpoint) {
    const auto& bytes = endpoint.address;
    return endpoint.is_v6 ? bytes[0] == 0xFE && (bytes[1] & 0xC0) == 0x80 : bytes[0] == 169 && bytes[1] == 254;
}

const char* why_not_a_target(const Endpoint& endpoint) {
    const auto& bytes = endpoint.address;
    if (endpoint.port == 0) return "port 0 is no port that anybody listens on";
    if (std::all_of(bytes.begin(), bytes.begin() + (endpoint.is_v6 ? 16 : 4), [](auto byte) { return byte == 0; }))
        return "it is the wildcard address, which names no host";
    if (endpoint.is_v6) {
        if (bytes[0] == 0xFF) return "it is a multicast address";
        if (is_link_local(endpoint)) return "it is a link-local address, which means another host on each link";
        return nullptr;
    }
    if (bytes[0] == 0) return "it is an address of 'this network', which names no host";
    if (bytes[0] >= 224 && bytes[0] < 240) return "it is a multicast address";
    if (bytes[0] >= 240) return "it is a broadcast or reserved address";
    return nullptr;
}

}  // namespace pccl::core
