// A reduction that is finished by its start vote. Each member's vote carries its whole input. When all members have
// voted, the master reduces the inputs, and its start decision carries the result. So the operation takes one round
// trip, its outcome included, and needs no neighbour.
//
// The sum is that of the ring, bit for bit: each part of the vector is reduced in the order in which its slices travel
// from member to member (operation.hpp).
#pragma once

#include "core/numeric/types.hpp"
#include "core/wire/control.pb.h"

#include <string>
#include <string_view>
#include <vector>

namespace pccl::core {

// Bytes of the input of such a vote. 0: the shape cannot be reduced in a vote (it is quantized, or larger than
// `bytes_max`), or has no elements.
std::uint64_t input_bytes_in_vote(const proto::Shape& shape, std::uint64_t bytes_max);

// `inputs`: of all members in ring order, at least two, each as long as the shape says.
std::string reduce_in_ring_order(const proto::Shape& shape, const std::vector<std::string_view>& inputs);

}  // namespace pccl::core
