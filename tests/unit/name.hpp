// Names of peers for tests of one part.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>

namespace pccl::core {

inline Uuid name(std::uint8_t last) {
    Uuid uuid;
    uuid.bytes[15] = last;
    return uuid;
}

}  // namespace pccl::core
