#include "core/voting/graph.hpp"

#include "core/base/assert.hpp"

namespace pccl::core {

namespace {

// For each position, the elements of all pieces with a lower index.
std::vector<std::uint64_t> offsets_of(std::span<const Piece> pieces) {
    std::vector<std::uint64_t> by_index(pieces.size() + 1);
    for (const Piece& piece : pieces) {
        ASSERT(piece.index < pieces.size());
        by_index[piece.index + 1] = piece.count;
    }
    for (std::size_t i = 1; i < by_index.size(); ++i) by_index[i] += by_index[i - 1];
    std::vector<std::uint64_t> offsets;
    for (const Piece& piece : pieces) offsets.push_back(by_index[piece.index]);
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

}  // namespace

Graph graph_of(CollectiveKind kind, std::uint32_t world, std::uint64_t count, std::uint32_t root,
               std::span<const Piece> pieces) {
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
    default: break;
    }
    ASSERT(pieces.size() == world);
    const std::vector<std::uint64_t> offsets = offsets_of(pieces);
    graph.shared = kind == CollectiveKind::all_gather;
    for (std::uint32_t p = 0; p < world; ++p) {
        const std::uint64_t own = pieces[p].count;
        switch (kind) {
        case CollectiveKind::all_gather: graph.parts.push_back({own, p, 0, around, everyone, 0, offsets[p]}); break;
        case CollectiveKind::reduce_scatter: graph.parts.push_back({own, p, around, 0, p, offsets[p], 0}); break;
        case CollectiveKind::gather: graph.parts.push_back({own, p, 0, hops(p, root), root, 0, offsets[p]}); break;
        case CollectiveKind::scatter: graph.parts.push_back({own, root, 0, hops(root, p), p, offsets[p], 0}); break;
        case CollectiveKind::all_to_all:
            for (std::uint32_t to = 0; to < world; ++to) {
                graph.parts.push_back({own, p, 0, hops(p, to), to, pieces[to].index * own, offsets[p]});
            }
            break;
        default: ASSERT(false);
        }
    }
    return graph;
}

}  // namespace pccl::core
