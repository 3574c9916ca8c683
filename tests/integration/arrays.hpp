// Arrays that tests of collectives send, and the names of members.
#pragma once

#include "pccl/ext.h"

#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>
#include <vector>

namespace integration {

using Values = std::vector<std::uint32_t>;
inline constexpr pcclDataType_t type = pcclUint32;

// Others for each `salt`.
inline Values drawn(std::size_t count, std::size_t salt) {
    Values values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::uint32_t>(salt * 1'000'003 + i * 7 + 1);
    return values;
}

inline pcclPeerId_t id_of(const pcclComm_t* comm) {
    pcclPeerId_t id{};
    REQUIRE(pcclGetPeerId(comm, &id) == pcclSuccess);
    return id;
}

inline bool same(const pcclPeerId_t& one, const pcclPeerId_t& other) {
    return std::memcmp(one.bytes, other.bytes, sizeof one.bytes) == 0;
}

}  // namespace integration
