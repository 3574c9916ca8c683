// How much of an all-reduce each member of a ring finishes, so that slow edges carry less.
//
// The edge behind position p carries a vector of S bytes twice, except the part that p finishes and the part that p + 1
// finishes, which it carries once each: 2 S - s(p) - s(p+1). With equal parts, each edge carries 2 (w-1) / w S, and the
// slowest one decides. With unequal parts it carries as little as S, and the others carry up to 2 S.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pccl::core {

// The sum of all shares.
constexpr std::uint32_t shares_whole = 1u << 16;

// `rates`: of the edge behind each position, in any unit. Returns the shares by position, for which the slowest edge
// needs the least time, and otherwise as equal as possible. Empty: equal shares are best, or little worse (gain of less
// than a tenth), or a rate is 0. The same arguments give the same shares on all machines.
std::vector<std::uint32_t> shares_for(std::span<const std::uint64_t> rates);

}  // namespace pccl::core
