// A reduction that is finished by its start vote. Each member's vote carries its whole input. When all members have
// voted, the master reduces the inputs, and its start decision carries the result. So the operation takes one round
// trip, its outcome included, and needs no neighbour.
//
// The sum is that of the ring, bit for bit: each part of the vector is reduced in the order in which its slices travel
// from member to member (operation.hpp).
//
// The other collectives end in the same way. Their votes say that the input is whole, because it may be empty. A send
// ends so with the votes of its two ends; its result is the input of the sender, and only the receiver is told it.
#pragma once

#include "core/numeric/types.hpp"
#include "core/voting/graph.hpp"
#include "core/wire/control.pb.h"

#include <optional>
#include <string>
#include <vector>

namespace pccl::core {

// Bytes of the input of such a vote. 0: the shape cannot be reduced in a vote (it is quantized, or larger than
// `bytes_max`), or has no elements.
std::uint64_t input_bytes_in_vote(const proto::Shape& shape, std::uint64_t bytes_max);

// The same for a vote for any collective. nullopt: its input cannot ride in it.
std::optional<std::uint64_t> whole_input(const proto::Vote& vote, const Uuid& voter, std::uint64_t bytes_max);
inline bool carries_input(const proto::Vote& vote) { return vote.whole() || !vote.input().empty(); }

// Elements of the input of such a voter.
std::uint64_t input_elements(const proto::Vote& vote, const Uuid& voter);

// Bytes of the result of a collective whose votes carry the inputs. `pieces`: not needed for an all-reduce.
std::uint64_t result_bytes_in_vote(const Collective& collective, const ReduceShape& shape,
                                   const std::vector<Piece>& pieces);

// What such a start tells all members: for a reduce_scatter and a scatter the pieces of all, for a gather and an
// all_to_all the inputs of all, in the order of their indices. `votes` and `pieces`: in ring order, of at least
// two members; an all_reduce needs no pieces. The arguments agree with each other.
std::string result_in_vote(CollectiveKind kind, const std::vector<const proto::Vote*>& votes,
                           const std::vector<Piece>& pieces, std::uint32_t root);

// The part of that result that the member at `position` gets, in its order. `result` has result_bytes_in_vote() bytes.
std::string own_part(const Collective& collective, std::size_t element_bytes, std::string result,
                     const std::vector<Piece>& pieces, std::uint32_t position, std::uint32_t root);

// The input of a member as its vote carries it, with the pieces in the order of indices. nullopt: it cannot ride in a
// vote, because the member does not know the lengths of the pieces and has them in another order.
std::optional<std::string> input_in_vote(const Collective& collective, std::size_t element_bytes,
                                         const std::string& input);

}  // namespace pccl::core
