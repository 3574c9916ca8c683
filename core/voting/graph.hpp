// How the bytes of a collective travel around the ring.
//
// A collective is a list of parts. The final bytes of a part are first at its source, a position of the ring. In phase
// 0 the part starts `reduce_hops` positions before the source, as the input of that member, and each next member
// reduces it; the source finishes it. Without reduce_hops the final bytes are the source's own input. In phase 1 the
// final bytes travel `copy_hops` positions on from the source.
//
//   collective       parts           source   reduce_hops   copy_hops       kept by
//   all_reduce       w cuts          p        w-1           w-1             all
//     pairwise       2, the array    p        1             0               the source
//     hierarchical   h, one a host   its end  w-1           w-k, and k-1    all
//   reduce_scatter   one per member  it       w-1           0               the source
//   reduce           one             root     w-1           0               the source
//   all_gather       one per member  it       0             w-1             all
//   broadcast        one             root     0             w-1             all
//   gather           one per member  it       0             to the root     the root
//   scatter          one per member  root     0             to the member   the member
//   all_to_all       w*w             i        0             from i to j     j
//   send             one             0        0             w-1             w-1
//   barrier          none
//
// In a pairwise all-reduce, two members send each other the whole array, and each reduces it. It moves as many bytes as
// the cuts do, half a round trip sooner, and computes twice as much. The master chooses it for all but large arrays.
//
// In a hierarchical all-reduce, neighbours in the ring that share a host (core/topology/hosts.hpp) finish one part
// together, at the last of them. From there its final bytes go on to the other hosts, and over a direct edge to the
// first member of the same host, which passes them on to those between. So no bytes come back to a host over the network
// that were made there, and each host sends 2 (h-1) / h of the array. Here k is the number of its members.
//
// A gather, a scatter and an all_to_all may also use direct edges: then each part goes from its source to its keeper in
// one hop (lanes_of). The master chooses.
//
// The ring of a send is a path: from the sender, position 0, to the receiver, the last position.
//
// Arrays of pieces are ordered by the index of members, whatever their positions are, or as the member wants that has
// the array (Collective::order). No member needs to know the order of another one. The cuts of an all-reduce are equal,
// or as large as the master says (topology/shares.hpp).
#pragma once

#include "core/events.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace pccl::core {

inline constexpr std::uint32_t everyone = ~0u;

struct Part {
    std::uint64_t elements = 0;
    std::uint32_t source = 0;
    std::uint32_t reduce_hops = 0;     // 0 or world-1
    std::uint32_t copy_hops = 0;       // less than the world
    std::uint32_t keeper = everyone;   // the position that puts the final bytes into its receive array
    std::uint64_t send_offset = 0;     // elements, in the send array of each member that contributes
    std::uint64_t receive_offset = 0;  // elements, in the receive array of each member that keeps it
    // The final bytes also go from the source over a direct edge to the position after the last copy, and from there
    // around the ring to so many positions, that one included. 0, or what copy_hops leaves of the others.
    std::uint32_t branch_hops = 0;
};

// The array has a piece for each member, or pair of members, and each piece has one keeper. So each may go in one hop.
constexpr bool is_of_pieces(CollectiveKind kind) {
    return kind == CollectiveKind::gather || kind == CollectiveKind::scatter || kind == CollectiveKind::all_to_all;
}

// What a member contributes or gets, at its position in the ring.
struct Piece {
    std::uint32_t index = 0;
    // Elements of its piece; all_to_all, if `counts` is empty: of its piece for each member; all_reduce: its share of the
    // vector, as a part of the sum of all shares.
    std::uint64_t count = 0;
    std::vector<std::uint64_t> counts = {};  // all_to_all: elements of its piece for each member, by index

    std::uint64_t for_member(std::uint32_t other) const { return counts.empty() ? count : counts[other]; }
};

// Slices of one gather, scatter or all_to_all. Its members keep books about each slice of all members, so this bounds
// the memory that others can make a member use.
inline constexpr std::uint64_t slices_of_pieces_max = 1u << 22;
// Whether pieces with so many elements in all, in so many parts, stay within it.
bool pieces_fit(std::uint64_t elements, std::uint64_t parts, std::size_t element_bytes, std::uint32_t slice_bytes);

// Elements of the send array of a member with this launch. `count`: ReduceShape::count.
std::uint64_t input_elements(const Collective& collective, std::uint64_t count, bool is_root);

struct Graph {
    std::vector<Part> parts;
    // All members have all final bytes at the end, so their digests are equal. Otherwise no bytes are compared.
    bool shared = true;
    // The parts are the same array at so many members, so their slices count alike in the digests.
    std::uint32_t copies = 1;
};

// The indices of all members, in the order in which a member with this Collective::order keeps pieces.
std::vector<std::uint32_t> order_of_pieces(std::span<const std::uint32_t> order, std::uint32_t world);

// `count`: ReduceShape::count; of a send the elements that travel. `root`: its position. `pieces`: of all members in
// ring order; not needed for a broadcast, a reduce, a barrier and a send, nor for an all_reduce with equal parts.
// `order`: Collective::order of the member that asks. The offsets are those in its arrays.
Graph graph_of(CollectiveKind kind, std::uint32_t world, std::uint64_t count, std::uint32_t root = 0,
               std::span<const Piece> pieces = {}, std::span<const std::uint32_t> order = {});

// A pairwise all-reduce. The members take the operands in different orders; every operation gives the same bytes either
// way.
Graph pairwise_of(std::uint64_t count);
// A member reduces its own exact input with the quantized one of the other, so results of quantized arrays would differ.
bool goes_pairwise(std::size_t world, std::uint64_t count, DataType type, bool quantized, std::uint64_t bytes_max);

// A hierarchical all-reduce: one part for each host, in the order of `host_ends`. These are the positions of their last
// members, ascending, two or more. `shares`: by position, those of the last members count; empty: equal parts.
Graph hierarchical_of(std::uint32_t world, std::uint64_t count, std::span<const std::uint32_t> host_ends,
                      std::span<const Piece> shares = {});

// One part of a collective over direct edges, at one of its members.
struct Lane {
    std::uint32_t peer = 0;  // the position of the other end; this member's own for what stays here
    bool sends = false;      // from here to the other end
    Part part;               // on a path of two members, from position 0 to position 1; what stays here: at position 0
};
// The lanes of the member at `position`: those with elements, what stays here first. Every part of the graph has a
// keeper. The two ends of a lane cut the same part, so they number its slices alike.
std::vector<Lane> lanes_of(const Graph& graph, std::uint32_t position);

}  // namespace pccl::core
