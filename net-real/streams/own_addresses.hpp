// Whether an address belongs to this host, seen from this network namespace. The list is read from the system again when
// it is older than a few seconds.
#pragma once

#include "core/base/ids.hpp"

#include <vector>

namespace pccl::real {

// Those of all interfaces; ports are 0. Empty if the system does not tell.
std::vector<core::Endpoint> own_addresses();

class OwnAddresses {
public:
    bool contains(const core::Endpoint& endpoint, core::Instant now);  // the port does not matter

private:
    std::vector<core::Endpoint> known_;
    core::Instant stale_at_ = 0;
};

}  // namespace pccl::real
