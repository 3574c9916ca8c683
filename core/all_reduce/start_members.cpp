#include "core/all_reduce/start_members.hpp"

#include "core/base/host_span.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <functional>

namespace pccl::core {

namespace {

// Whether the pieces are those that this member launched, have room here, and are not too many.
bool pieces_match(const Launches::Start& launch, const StartMembers& members, std::uint32_t position,
                  const Limits& limits) {
    const Collective& own = launch.collective;
    const std::vector<Piece>& pieces = members.pieces;
    const Piece& mine = pieces[position];
    const bool is_root = position == members.root && !own.root.is_nil();
    const bool pairs = own.kind == CollectiveKind::all_to_all;
    std::uint64_t sum = 0, comes = 0;
    constexpr std::uint64_t most = std::uint64_t{1} << 62;
    const std::uint64_t parts = pairs ? pieces.size() * pieces.size() : pieces.size();
    const auto few = [&] { return pieces_fit(sum, parts, element_bytes(launch.shape.type), limits.slice_bytes); };
    if (pairs && !few()) return false;  // before a loop over all of them
    for (const Piece& piece : pieces) {
        for (std::uint32_t index = 0; index < (pairs ? pieces.size() : 1); ++index) {
            const std::uint64_t count = pairs ? piece.for_member(index) : piece.count;
            if (count > most - sum) return false;
            sum += count;
        }
        if (pairs) comes += piece.for_member(mine.index);
    }
    switch (own.kind) {
    case CollectiveKind::all_gather: return mine.count == own.count && sum <= own.capacity;
    case CollectiveKind::gather: return mine.count == own.count && (!is_root || sum <= own.capacity) && few();
    case CollectiveKind::reduce_scatter: return mine.count == own.count && sum == launch.shape.count;
    case CollectiveKind::scatter:
        if (mine.count > own.capacity || !few()) return false;
        if (!is_root) return true;
        return pieces.size() == own.world && std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
                   return piece.count == (own.counts.empty() ? own.count : own.counts[piece.index]);
               });
    case CollectiveKind::all_to_all:
        return mine.count == own.count && mine.counts == own.counts && pieces.size() == own.world &&
               comes <= own.capacity && few();
    default: return mine.count == own.count;
    }
}

// Whether the hosts of a hierarchical all-reduce, and the other end of this member's edge within its host, can be true.
bool host_ends_fit(const proto::StartAnswer& start, const StartMembers& members, const Uuid& me) {
    const std::vector<std::uint32_t>& ends = members.host_ends;
    if (ends.empty()) return start.host_other_end().empty();
    if (ends.size() < 2 || ends.size() >= start.world() || ends.back() >= start.world() || start.reduced())
        return false;
    if (std::adjacent_find(ends.begin(), ends.end(), std::greater_equal<>()) != ends.end()) return false;
    const auto no_share = [&](std::uint32_t end) { return members.pieces[end].count == 0; };
    if (!members.pieces.empty() && std::all_of(ends.begin(), ends.end(), no_share)) return false;
    const HostSpan host = host_of(start.position(), start.world(), ends);
    if (host.size == 1 || (start.position() != host.first && start.position() != host.last))
        return start.host_other_end().empty();
    Uuid other;
    const bool is_last = start.position() == host.last;
    return read(start.host_other_end(), other) && other != me &&
           other != uuid_of(is_last ? start.successor() : start.predecessor());
}

// The ends of a send, at one of them.
std::optional<StartMembers> ends_in(const proto::StartAnswer& start, const Launches::Start& launch, const Uuid& me,
                                    const Limits& limits) {
    const Collective& own = launch.collective;
    const proto::Shape& shape = start.shape();
    StartMembers members;
    members.count = shape.count();
    members.index = own.root == me ? 0 : 1;
    const std::uint32_t last = start.world() - 1;
    if (start.position() != (members.index == 0 ? 0 : last) || (start.reduced() && last != 1) ||
        shape.root() != to_bytes(own.root) || shape.target() != to_bytes(own.target) ||
        shape.type() != static_cast<std::uint32_t>(launch.shape.type) ||
        shape.slice_bytes() != limits.slice_bytes)
        return {};
    if (members.index == 0 ? shape.count() != own.count : shape.count() > own.capacity) return {};
    if (!pieces_fit(shape.count(), 1, element_bytes(launch.shape.type), limits.slice_bytes)) return {};
    members.by_index = {{own.root, shape.count()}, {own.target, shape.count()}};
    return members;
}

}  // namespace

std::optional<StartMembers> members_in(const proto::StartAnswer& start, const Launches::Start& launch, const Uuid& me,
                                       const Limits& limits) {
    StartMembers members;
    const Collective& own = launch.collective;
    members.count = launch.shape.count;
    if (start.collective() != static_cast<std::uint32_t>(own.kind)) return {};
    if (start.direct() && (!is_of_pieces(own.kind) || start.reduced())) return {};
    if (start.has_shape() != (own.kind == CollectiveKind::send)) return {};
    if (start.host_ends_size() != 0 && own.kind != CollectiveKind::all_reduce) return {};
    if (start.pairwise() &&
        (own.kind != CollectiveKind::all_reduce || start.reduced() || start.world() != 2 || start.shares_size() != 0 ||
         start.host_ends_size() != 0 || launch.shape.quantization.algorithm != QuantizationAlgorithm::none))
        return {};
    if (start.has_shape()) return ends_in(start, launch, me, limits);
    const std::uint32_t world = start.world();
    if (own.kind == CollectiveKind::all_reduce) {
        std::uint64_t whole = 0;
        for (const std::uint32_t share : start.shares()) {
            members.pieces.push_back({0, share});
            whole += share;
        }
        if (!members.pieces.empty() && (members.pieces.size() != world || whole == 0)) return {};
        members.host_ends.assign(start.host_ends().begin(), start.host_ends().end());
        if (!host_ends_fit(start, members, me)) return {};
        return members;
    }
    if (static_cast<std::uint32_t>(start.members_size()) != world) return {};
    members.by_index.resize(world);
    bool root_found = own.root.is_nil();
    for (std::uint32_t position = 0; position < world; ++position) {
        const proto::StartMember& member = start.members(static_cast<int>(position));
        Uuid peer;
        if (!read(member.peer(), peer) || peer.is_nil() || member.index() >= world) return {};
        Completion::Part& part = members.by_index[member.index()];
        if (!part.peer.is_nil()) return {};  // two members with one index
        part = {peer, member.count()};
        Piece piece{member.index(), member.count()};
        if (own.kind == CollectiveKind::all_to_all) piece.counts.assign(member.counts().begin(), member.counts().end());
        if (!piece.counts.empty() && piece.counts.size() != world) return {};
        members.pieces.push_back(std::move(piece));
        if (peer != own.root) continue;
        members.root = position;
        root_found = true;
    }
    const proto::StartMember& mine = start.members(static_cast<int>(start.position()));
    if (!root_found || uuid_of(mine.peer()) != me || !pieces_match(launch, members, start.position(), limits))
        return {};
    if (own.kind == CollectiveKind::all_to_all) {
        for (const Piece& piece : members.pieces)
            members.by_index[piece.index].count = piece.for_member(mine.index());
    }
    members.index = mine.index();
    return members;
}

}  // namespace pccl::core
