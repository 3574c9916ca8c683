#include "net-real/streams/own_addresses.hpp"

#include "core/topology/address_rules.hpp"
#include "net-real/sockets.hpp"

#include <algorithm>
#include <ifaddrs.h>
#include <sys/socket.h>

namespace pccl::real {

namespace {

constexpr core::Duration age_max = 5 * core::second;

}  // namespace

std::vector<core::Endpoint> own_addresses() {
    std::vector<core::Endpoint> found;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return found;
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
        core::Endpoint own;
        if (one->ifa_addr != nullptr && read_native(*one->ifa_addr, own)) found.push_back(own);
    }
    ::freeifaddrs(list);
    return found;
}

bool OwnAddresses::contains(const core::Endpoint& endpoint, core::Instant now) {
    if (core::is_loopback(endpoint)) return true;
    if (now >= stale_at_) {
        stale_at_ = now + age_max;
        known_ = own_addresses();
    }
    return std::any_of(known_.begin(), known_.end(), [&](const core::Endpoint& own) {
        return own.is_v6 == endpoint.is_v6 && own.address == endpoint.address;
    });
}

}  // namespace pccl::real
