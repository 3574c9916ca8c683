// A gang: processes that join and leave the run together, such as those of one sharded replica of a model.
//
// Each process declares the name and the size of its gang, and its own place. The master admits a gang when all its
// places are taken and connected, in one decision. If one member leaves or is lost, one decision removes them all.
// Gangs span peer groups: usually the member at place k is in peer group k.
#pragma once

#include <cstdint>
#include <string>

namespace pccl::core {

struct Gang {
    std::string name;  // empty: in no gang
    std::uint32_t size = 0;
    std::uint32_t place = 0;  // 0 to size - 1
    bool none() const { return name.empty(); }
    friend bool operator==(const Gang&, const Gang&) = default;
};

}  // namespace pccl::core
