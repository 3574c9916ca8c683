#include "net-real/exposure.hpp"

#include "core/topology/address_rules.hpp"
#include "net-real/streams/own_addresses.hpp"

#include <algorithm>
#include <initializer_list>

namespace pccl::real {

namespace {

bool is_unspecified(const core::Endpoint& endpoint) { return endpoint.address == core::Endpoint{}.address; }

bool begins(const core::Endpoint& endpoint, std::initializer_list<std::uint8_t> bytes) {
    return std::equal(bytes.begin(), bytes.end(), endpoint.address.begin());
}

}  // namespace

bool is_private(const core::Endpoint& endpoint) {
    const auto& a = endpoint.address;
    if (endpoint.is_v6) return (a[0] & 0xFE) == 0xFC;
    const bool is_shared = a[0] == 100 && (a[1] & 0xC0) == 64;  // between a provider and its customers
    return begins(endpoint, {10}) || (a[0] == 172 && (a[1] & 0xF0) == 16) || begins(endpoint, {192, 168}) || is_shared;
}

bool is_public(const core::Endpoint& endpoint) {
    if (is_unspecified(endpoint) || core::is_confined(endpoint) || is_private(endpoint)) return false;
    if (endpoint.is_v6) return !begins(endpoint, {0x20, 0x01, 0x0D, 0xB8});
    const bool is_example =
        begins(endpoint, {192, 0, 2}) || begins(endpoint, {198, 51, 100}) || begins(endpoint, {203, 0, 113});
    return !is_example;
}

std::optional<core::Endpoint> public_address_of(const std::optional<core::Endpoint>& local) {
    if (local && !is_unspecified(*local)) return is_public(*local) ? local : std::nullopt;
    // An IPv6 listener on every address accepts IPv4 too.
    const bool v4_only = local && !local->is_v6;
    const std::vector<core::Endpoint> all = own_addresses();
    // Every host has loopback. If the system does not tell the addresses (a sandbox), the worst is assumed.
    if (all.empty()) return local ? *local : core::Endpoint{};
    for (const core::Endpoint& own : all) {
        if (is_public(own) && !(v4_only && own.is_v6)) return own;
    }
    return std::nullopt;
}

core::Endpoint address_for_others() {
    std::vector<core::Endpoint> all = own_addresses();
    const auto rank = [](const core::Endpoint& own) {
        const int reach = is_public(own) ? 0 : !core::is_confined(own) ? 1 : core::is_loopback(own) ? 2 : 3;
        return 2 * reach + (own.is_v6 ? 1 : 0);
    };
    std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    core::Endpoint loopback;
    loopback.address = {127, 0, 0, 1};
    return all.empty() ? loopback : all.front();
}

}  // namespace pccl::real
