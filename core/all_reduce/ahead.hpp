// Names of operations whose start is not known yet.
//
// A peer may send own input together with its start vote, before the master's decision names the operation. Until then
// the frames carry a name that the sender makes of the serial of its vote. A start tells each member the serial of its
// predecessor's vote, so the receiver knows to which operation such slices belong.
//
// Own names and those of a predecessor may be equal, so the receiver marks the latter.
#pragma once

#include "core/base/ids.hpp"
#include "core/voting/graph.hpp"

#include <cstdint>
#include <span>

namespace pccl::core {

// Names how an all-reduce is cut: by hosts and by the members' shares, or pairwise; 0: into equal parts for all members.
inline constexpr std::uint64_t name_of_pairwise = 1;
inline std::uint64_t name_of_cuts(std::span<const Piece> shares, std::span<const std::uint32_t> host_ends) {
    std::uint64_t name = 0;
    // The mix of splitmix64, from one number to the next.
    const auto mix = [&](std::uint64_t number) {
        name = (name ^ number) + 0x9E3779B97F4A7C15ull;
        name = (name ^ (name >> 30)) * 0xBF58476D1CE4E5B9ull;
        name = (name ^ (name >> 27)) * 0x94D049BB133111EBull;
        name ^= name >> 31;
    };
    for (const Piece& piece : shares) mix(piece.count);
    for (const std::uint32_t end : host_ends) mix(~std::uint64_t{end});
    return name;
}

// How the sender has cut its array, beside the shape: by the members' shares, and by its place in the ring. Slices that
// were cut otherwise are of no use.
inline std::uint64_t cut_of(std::uint32_t world, std::uint32_t position, std::uint64_t shares) {
    return (std::uint64_t{world} << 32 | position) ^ shares;
}

inline constexpr OpId ahead_mark = OpId{1} << 63;
inline constexpr OpId theirs_mark = OpId{1} << 62;

inline bool is_ahead(OpId op) { return (op & ahead_mark) != 0; }
inline OpId ahead_of(Serial serial) { return ahead_mark | serial; }
inline OpId theirs_ahead_of(Serial serial) { return ahead_mark | theirs_mark | serial; }
inline Serial serial_of(OpId ahead) { return ahead & ~(ahead_mark | theirs_mark); }
// The name on the wire of what arrives under a marked name.
inline OpId on_the_wire(OpId op) { return is_ahead(op) ? op & ~theirs_mark : op; }

}  // namespace pccl::core
