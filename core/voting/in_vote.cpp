#include "core/voting/in_vote.hpp"

#include "core/base/assert.hpp"
#include "core/numeric/kernels.hpp"
#include "core/wire/convert.hpp"

#include <string_view>

namespace pccl::core {

namespace {

// Reduces each part in the order in which its slices travel. The result has the layout of the inputs.
std::string reduce_parts(const proto::Shape& shape, const Graph& graph, const std::vector<std::string_view>& inputs) {
    const auto type = static_cast<DataType>(shape.type());
    const auto op = static_cast<ReduceOp>(shape.op());
    const std::size_t element = element_bytes(type), world = inputs.size();
    ASSERT(world >= 2);
    for (const std::string_view input : inputs) ASSERT(input.size() == shape.count() * element);
    std::string result(inputs.front().size(), '\0');
    for (const Part& part : graph.parts) {
        const std::size_t first = part.send_offset * element;
        char* const target = result.data() + first;
        const auto at = [&](std::size_t position) { return inputs[position % world].data() + first; };
        // From the position behind the source around the ring to the source, which divides.
        const char* partial = at(part.source + 1);
        for (std::size_t hop = 2; hop <= world; ++hop) {
            const bool last = hop == world;
            numeric::reduce(type, op, target, partial, at(part.source + hop), part.elements,
                            last && op == ReduceOp::avg ? static_cast<std::uint32_t>(world) : 0);
            partial = target;
        }
    }
    return result;
}

// `lengths`: bytes of each piece, by index. `input` has the pieces in the order of a member if `to_indices`, else in
// that of indices; the result has them in the other one.
std::string rearranged(const std::string& input, const std::vector<std::uint64_t>& lengths,
                       std::span<const std::uint32_t> order, bool to_indices) {
    if (order.empty()) return input;
    const std::vector<std::uint32_t> own = order_of_pieces(order, static_cast<std::uint32_t>(lengths.size()));
    std::vector<std::uint64_t> first(lengths.size());  // in the input, by index
    std::uint64_t before = 0;
    for (std::uint32_t k = 0; k < lengths.size(); ++k) {
        const std::uint32_t index = to_indices ? own[k] : k;
        first[index] = before;
        before += lengths[index];
    }
    ASSERT(before == input.size());
    std::string result;
    result.reserve(input.size());
    for (std::uint32_t k = 0; k < lengths.size(); ++k) {
        const std::uint32_t index = to_indices ? k : own[k];
        result.append(input, first[index], lengths[index]);
    }
    return result;
}

}  // namespace

std::uint64_t input_bytes_in_vote(const proto::Shape& shape, std::uint64_t bytes_max) {
    const std::uint64_t element = element_bytes(static_cast<DataType>(shape.type()));
    return shape.quantization() != 0 || shape.count() > bytes_max / element ? 0 : shape.count() * element;
}

std::optional<std::uint64_t> whole_input(const proto::Vote& vote, const Uuid& voter, std::uint64_t bytes_max) {
    const proto::Shape& shape = vote.shape();
    const auto kind = static_cast<CollectiveKind>(shape.collective());
    if (kind == CollectiveKind::all_reduce) {
        const std::uint64_t bytes = input_bytes_in_vote(shape, bytes_max);
        return bytes == 0 ? std::nullopt : std::optional(bytes);
    }
    const std::uint64_t count = input_elements(vote, voter);
    const std::uint64_t element = element_bytes(static_cast<DataType>(shape.type()));
    if (shape.quantization() != 0 || count > bytes_max / element) return {};
    // The result of a broadcast is as long as the input of its root.
    if (kind == CollectiveKind::broadcast && shape.count() > bytes_max / element) return {};
    return count * element;
}

std::uint64_t input_elements(const proto::Vote& vote, const Uuid& voter) {
    const proto::Shape& shape = vote.shape();
    Collective collective;
    collective.kind = static_cast<CollectiveKind>(shape.collective());
    collective.count = vote.count();
    collective.counts.assign(vote.counts().begin(), vote.counts().end());
    collective.world = vote.world();
    return input_elements(collective, shape.count(), shape.root() == to_bytes(voter));
}

std::uint64_t result_bytes_in_vote(const Collective& collective, const ReduceShape& shape,
                                   const std::vector<Piece>& pieces) {
    std::uint64_t count = shape.count;
    switch (collective.kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
        for (const Piece& piece : pieces) count += piece.count;
        break;
    case CollectiveKind::all_to_all:
        for (const Piece& piece : pieces) {
            for (std::uint32_t index = 0; index < pieces.size(); ++index) count += piece.for_member(index);
        }
        break;
    default: break;
    }
    return count * element_bytes(shape.type);
}

std::string result_in_vote(CollectiveKind kind, const std::vector<const proto::Vote*>& votes,
                           const std::vector<Piece>& pieces, std::uint32_t root) {
    std::vector<std::string_view> inputs;
    for (const proto::Vote* vote : votes) inputs.push_back(vote->input());
    const proto::Shape& shape = votes.front()->shape();
    switch (kind) {
    case CollectiveKind::scatter:
    case CollectiveKind::broadcast: return votes[root]->input();
    case CollectiveKind::gather:
    case CollectiveKind::all_to_all:
    case CollectiveKind::all_gather: {
        std::vector<std::string_view> by_index(inputs.size());
        for (std::size_t i = 0; i < inputs.size(); ++i) by_index[pieces[i].index] = inputs[i];
        std::string result;
        for (const std::string_view input : by_index) result += input;
        return result;
    }
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::reduce_scatter: {
        const Graph graph = graph_of(kind, static_cast<std::uint32_t>(inputs.size()), shape.count(), root, pieces);
        return reduce_parts(shape, graph, inputs);
    }
    default: return {};
    }
}

std::string own_part(const Collective& collective, std::size_t element_bytes, std::string result,
                     const std::vector<Piece>& pieces, std::uint32_t position, std::uint32_t root) {
    std::vector<std::uint64_t> lengths(pieces.size());
    const auto in_own_order = [&](const std::string& by_index) {
        return rearranged(by_index, lengths, collective.order, false);
    };
    switch (collective.kind) {
    case CollectiveKind::reduce: return position == root ? result : std::string{};
    case CollectiveKind::gather:
        if (position != root) return {};
        [[fallthrough]];
    case CollectiveKind::all_gather:
        for (const Piece& piece : pieces) lengths[piece.index] = piece.count * element_bytes;
        return in_own_order(result);
    case CollectiveKind::scatter:
    case CollectiveKind::reduce_scatter: {
        std::uint64_t first = 0;
        for (const Piece& piece : pieces) first += piece.index < pieces[position].index ? piece.count : 0;
        return result.substr(first * element_bytes, pieces[position].count * element_bytes);
    }
    case CollectiveKind::all_to_all: {
        std::string column(result.size(), '\0');
        std::uint64_t first = 0;
        std::vector<const Piece*> by_index(pieces.size());
        for (const Piece& piece : pieces) by_index[piece.index] = &piece;
        std::size_t length = 0;
        for (const Piece* row : by_index) {
            for (std::uint32_t index = 0; index < pieces.size(); ++index) {
                const std::uint64_t bytes = row->for_member(index) * element_bytes;
                if (index == pieces[position].index) {
                    column.replace(length, bytes, result, first, bytes);
                    length += bytes;
                    lengths[row->index] = bytes;
                }
                first += bytes;
            }
        }
        column.resize(length);
        return in_own_order(column);
    }
    default: return result;
    }
}

std::optional<std::string> input_in_vote(const Collective& collective, std::size_t element_bytes,
                                         const std::string& input) {
    if (collective.order.empty()) return input;
    switch (collective.kind) {
    case CollectiveKind::reduce_scatter: return {};
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_all: {
        std::vector<std::uint64_t> lengths(collective.world);
        for (std::uint32_t index = 0; index < collective.world; ++index)
            lengths[index] = (collective.counts.empty() ? collective.count : collective.counts[index]) * element_bytes;
        return rearranged(input, lengths, collective.order, true);
    }
    default: return input;
    }
}

}  // namespace pccl::core
