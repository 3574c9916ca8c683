// A number for the host of this process, for PeerConfig::host. Equal in processes that can exchange data through shared
// memory: those of one running kernel and one network namespace. It is a hash, so it tells nothing else.
#pragma once

#include <cstdint>
#include <string_view>

namespace pccl::real {

std::uint64_t host_id();                          // 0: the system does not tell
std::uint64_t host_id_of(std::string_view name);  // of a name that the operator chose; never 0

}  // namespace pccl::real
