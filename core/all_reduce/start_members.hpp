// The members of a started collective, read from the master's answer and compared with what this member launched.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/limits.hpp"
#include "core/events.hpp"
#include "core/voting/graph.hpp"
#include "core/voting/launches.hpp"
#include "core/wire/control.pb.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pccl::core {

struct StartMembers {
    std::vector<Piece> pieces;  // by position; an all-reduce: shares, or empty
    std::vector<Completion::Part> by_index;
    std::uint32_t root = 0;   // its position
    std::uint64_t count = 0;  // elements of the array of all, or those that are sent
    std::uint32_t index = 0;  // of this member
    std::vector<std::uint32_t> host_ends;  // of a hierarchical all-reduce; else empty
};

// `start` has a world of two or more, and the position of this member, `me`, in it. Empty: the members contradict each
// other or the launch.
std::optional<StartMembers> members_in(const proto::StartAnswer& start, const Launches::Start& launch, const Uuid& me,
                                       const Limits& limits);

}  // namespace pccl::core
