#include "core/voting/graph.hpp"

#include "core/base/assert.hpp"
#include "core/base/host_span.hpp"

#include <algorithm>
#include <numeric>

namespace pccl::core {

namespace {

// The position of each index.
std::vector<std::uint32_t> positions_of(std::span<const Piece> pieces) {
    std::vector<std::uint32_t> positions(pieces.size());
    for (std::uint32_t p = 0; p < pieces.size(); ++p) {
        ASSERT(pieces[p].index < pieces.size());
        positions[pieces[p].index] = p;
    }
    return positions;
}

// For each position, the elements of all pieces that come before its own.
std::vector<std::uint64_t> offsets_of(std::span<const Piece> pieces, std::span<const std::uint32_t> order) {
    const std::vector<std::uint32_t> positions = positions_of(pieces);
    std::vector<std::uint64_t> offsets(pieces.size());
    std::uint64_t before = 0;
    for (const std::uint32_t index : order_of_pieces(order, static_cast<std::uint32_t>(pieces.size()))) {
        offsets[positions[index]] = before;
        before += pieces[positions[index]].count;
    }
    return offsets;
}

// Parts of an all-reduce.
void cut(Graph& graph, std::uint32_t world, std::uint64_t count, std::span<const Piece> shares) {
    ASSERT(shares.empty() || shares.size() == world);
    const auto share = [&](std::uint32_t p) { return shares.empty() ? 1 : shares[p].count; };
    std::uint64_t whole = 0;
    for (std::uint32_t p = 0; p < world; ++p) whole += share(p);
    ASSERT(whole > 0);
    graph.parts.reserve(world);
    std::uint64_t before = 0, begin = 0;
    for (std::uint32_t p = 0; p < world; ++p) {
        before += share(p);
        const auto end = static_cast<std::uint64_t>(static_cast<unsigned __int128>(count) * before / whole);
        graph.parts.push_back({end - begin, p, world - 1, world - 1, everyone, begin, begin});
        begin = end;
    }
}

// The parts of an all_to_all: member `from` sends its row; member `to` receives its column.
std::vector<Part> rows_of(std::span<const Piece> pieces, std::uint32_t world, std::span<const std::uint32_t> order) {
    ASSERT(pieces.size() == world);
    for (const Piece& piece : pieces) ASSERT(piece.counts.empty() || piece.counts.size() == world);
    const std::vector<std::uint32_t> positions = positions_of(pieces), indices = order_of_pieces(order, world);
    std::vector<Part> parts(std::size_t{world} * world);
    std::vector<std::uint64_t> received(world);  // by index: elements from the members before
    for (const std::uint32_t from_index : indices) {
        const std::uint32_t from = positions[from_index];
        std::uint64_t sent = 0;
        for (const std::uint32_t index : indices) {
            const std::uint32_t to = positions[index];
            const std::uint64_t count = pieces[from].for_member(index);
            parts[std::size_t{from} * world + to] = {count, from, 0, (to + world - from) % world, to, sent,
                                                     received[index]};
            sent += count;
            received[index] += count;
        }
    }
    return parts;
}

}  // namespace

std::vector<std::uint32_t> order_of_pieces(std::span<const std::uint32_t> order, std::uint32_t world) {
    std::vector<std::uint32_t> indices;
    std::vector<bool> placed(world);
    indices.reserve(world);
    const auto place = [&](std::uint32_t index) {
        if (index >= world || placed[index]) return;
        placed[index] = true;
        indices.push_back(index);
    };
    for (const std::uint32_t index : order) place(index);
    for (std::uint32_t index = 0; index < world; ++index) place(index);
    return indices;
}

bool pieces_fit(std::uint64_t elements, std::uint64_t parts, std::size_t element_bytes, std::uint32_t slice_bytes) {
    const std::uint64_t slice_elements = std::max<std::uint64_t>(slice_bytes / element_bytes, 1);
    return parts <= slices_of_pieces_max && elements / slice_elements + parts <= slices_of_pieces_max;
}

std::uint64_t input_elements(const Collective& collective, std::uint64_t count, bool is_root) {
    switch (collective.kind) {
    case CollectiveKind::broadcast: return is_root ? count : 0;
    case CollectiveKind::all_gather:
    case CollectiveKind::gather: return collective.count;
    case CollectiveKind::send: return is_root ? collective.count : 0;
    case CollectiveKind::scatter:
        if (!is_root) return 0;
        [[fallthrough]];
    case CollectiveKind::all_to_all:
        return collective.counts.empty()
                   ? collective.count * collective.world
                   : std::accumulate(collective.counts.begin(), collective.counts.end(), std::uint64_t{0});
    default: return count;
    }
}

Graph graph_of(CollectiveKind kind, std::uint32_t world, std::uint64_t count, std::uint32_t root,
               std::span<const Piece> pieces, std::span<const std::uint32_t> order) {
    ASSERT(world >= 2 && root < world);
    Graph graph;
    const std::uint32_t around = world - 1;
    const auto hops = [world](std::uint32_t from, std::uint32_t to) { return (to + world - from) % world; };
    switch (kind) {
    case CollectiveKind::all_reduce:
        cut(graph, world, count, pieces);
        return graph;
    case CollectiveKind::broadcast: graph.parts.push_back({count, root, 0, around, everyone, 0, 0}); return graph;
    case CollectiveKind::reduce:
        graph.shared = false;
        graph.parts.push_back({count, root, around, 0, root, 0, 0});
        return graph;
    case CollectiveKind::barrier: return graph;
    case CollectiveKind::send:
        graph.shared = false;
        graph.parts.push_back({count, 0, 0, around, around, 0, 0});
        return graph;
    case CollectiveKind::all_to_all:
        graph.shared = false;
        graph.parts = rows_of(pieces, world, order);
        return graph;
    default: break;
    }
    ASSERT(pieces.size() == world);
    const std::vector<std::uint64_t> offsets = offsets_of(pieces, order);
    graph.shared = kind == CollectiveKind::all_gather;
    for (std::uint32_t p = 0; p < world; ++p) {
        const std::uint64_t own = pieces[p].count;
        switch (kind) {
        case CollectiveKind::all_gather: graph.parts.push_back({own, p, 0, around, everyone, 0, offsets[p]}); break;
        case CollectiveKind::reduce_scatter: graph.parts.push_back({own, p, around, 0, p, offsets[p], 0}); break;
        case CollectiveKind::gather: graph.parts.push_back({own, p, 0, hops(p, root), root, 0, offsets[p]}); break;
        case CollectiveKind::scatter: graph.parts.push_back({own, root, 0, hops(root, p), p, offsets[p], 0}); break;
        default: ASSERT(false);
        }
    }
    return graph;
}

bool goes_pairwise(std::size_t world, std::uint64_t count, DataType type, bool quantized, std::uint64_t bytes_max) {
    return world == 2 && !quantized && count <= bytes_max / element_bytes(type);
}

Graph pairwise_of(std::uint64_t count) {
    Graph graph;
    for (const std::uint32_t source : {0u, 1u}) graph.parts.push_back({count, source, 1, 0, source, 0, 0});
    graph.copies = 2;
    return graph;
}

Graph hierarchical_of(std::uint32_t world, std::uint64_t count, std::span<const std::uint32_t> host_ends,
                      std::span<const Piece> shares) {
    ASSERT(host_ends.size() >= 2 && host_ends.size() <= world);
    std::vector<Piece> of_hosts;
    for (const std::uint32_t end : host_ends) of_hosts.push_back({0, shares.empty() ? 1 : shares[end].count});
    Graph graph;
    cut(graph, static_cast<std::uint32_t>(host_ends.size()), count, of_hosts);
    for (Part& part : graph.parts) {
        const HostSpan host = host_of(host_ends[part.source], world, host_ends);
        part.source = host.last;
        part.reduce_hops = world - 1;
        part.copy_hops = world - host.size;
        part.branch_hops = host.size - 1;
    }
    return graph;
}

std::vector<Lane> lanes_of(const Graph& graph, std::uint32_t position) {
    std::vector<Lane> lanes;
    for (const Part& part : graph.parts) {
        ASSERT(part.keeper != everyone && part.reduce_hops == 0);
        if (part.elements == 0 || (part.source != position && part.keeper != position)) continue;
        const bool stays = part.source == part.keeper;
        const std::uint32_t hops = stays ? 0 : 1;
        const Lane lane{part.source == position ? part.keeper : part.source, !stays && part.source == position,
                        Part{part.elements, 0, 0, hops, hops, part.send_offset, part.receive_offset}};
        lanes.insert(stays ? lanes.begin() : lanes.end(), lane);
    }
    return lanes;
}

}  // namespace pccl::core
