#include "core/voting/in_vote.hpp"

#include "core/base/assert.hpp"
#include "core/numeric/kernels.hpp"

namespace pccl::core {

std::uint64_t input_bytes_in_vote(const proto::Shape& shape, std::uint64_t bytes_max) {
    const std::uint64_t element = element_bytes(static_cast<DataType>(shape.type()));
    return shape.quantization() != 0 || shape.count() > bytes_max / element ? 0 : shape.count() * element;
}

std::string reduce_in_ring_order(const proto::Shape& shape, const std::vector<std::string_view>& inputs) {
    const auto type = static_cast<DataType>(shape.type());
    const auto op = static_cast<ReduceOp>(shape.op());
    const std::size_t element = element_bytes(type), world = inputs.size();
    ASSERT(world >= 2);
    for (const std::string_view input : inputs) ASSERT(input.size() == shape.count() * element);
    std::string result(inputs.front().size(), '\0');
    for (std::size_t part = 0; part < world; ++part) {
        const std::size_t first = shape.count() * part / world;
        const std::size_t count = shape.count() * (part + 1) / world - first;
        char* const target = result.data() + first * element;
        const auto at = [&](std::size_t position) { return inputs[position % world].data() + first * element; };
        // As the slices travel: from position part + 1 around the ring to position `part`, which divides.
        const char* partial = at(part + 1);
        for (std::size_t hop = 2; hop <= world; ++hop) {
            const bool last = hop == world;
            numeric::reduce(type, op, target, partial, at(part + hop), count,
                            last && op == ReduceOp::avg ? static_cast<std::uint32_t>(world) : 0);
            partial = target;
        }
    }
    return result;
}

}  // namespace pccl::core
