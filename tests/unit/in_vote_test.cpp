// A reduction that the votes carry gives the bytes that the ring gives.
#include "core/all_reduce/operation.hpp"
#include "core/numeric/kernels.hpp"
#include "core/voting/in_vote.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <random>

using namespace pccl::core;
namespace proto = pccl::proto;

namespace {

proto::Shape shape_of(std::uint64_t count, DataType type, ReduceOp op) {
    proto::Shape shape;
    shape.set_count(count);
    shape.set_type(static_cast<std::uint32_t>(type));
    shape.set_op(static_cast<std::uint32_t>(op));
    return shape;
}

// Slice by slice from the member that starts it to the one that finishes it, as operations do.
std::string reduce_around_a_ring(const ReduceShape& shape, const std::vector<std::string>& inputs) {
    const auto world = static_cast<std::uint32_t>(inputs.size());
    Limits limits;
    limits.slice_bytes = 64;
    std::string result(inputs.front().size(), '\0');
    const auto operation_at = [&](std::uint32_t position) {
        Operation::Identity identity;
        identity.world = world;
        identity.position = position;
        return Operation(identity, shape, 2, 4, limits);
    };
    std::vector<Operation> members;
    for (std::uint32_t position = 0; position < world; ++position) members.push_back(operation_at(position));
    for (std::uint32_t slice = 0; slice < members[0].slices(); ++slice) {
        const std::uint64_t offset = members[0].byte_offset(slice), length = members[0].byte_length(slice);
        std::string partial;
        for (std::uint32_t hop = 0; hop < world; ++hop) {
            for (std::uint32_t position = 0; position < world; ++position) {
                if (members[position].distance(slice) != hop) continue;
                const char* const mine = inputs[position].data() + offset;
                if (hop == 0) {
                    partial.assign(mine, length);
                    continue;
                }
                const bool divides = members[position].finishes(slice) && shape.op == ReduceOp::avg;
                numeric::reduce(shape.type, shape.op, partial.data(), partial.data(), mine,
                                length / element_bytes(shape.type), divides ? world : 0);
            }
        }
        std::memcpy(result.data() + offset, partial.data(), length);
    }
    return result;
}

}  // namespace

TEST_CASE("votes give the bytes that the ring gives, for every type and operation") {
    std::mt19937_64 draw(1);
    for (std::uint32_t type = 0; type < data_type_count; ++type) {
        for (std::uint32_t op = 0; op < reduce_op_count; ++op) {
            for (const std::size_t world : {2u, 3u, 7u}) {
                for (const std::uint64_t count : {1u, 2u, 6u, 37u, 500u}) {
                    const ReduceShape shape{count, static_cast<DataType>(type), static_cast<ReduceOp>(op), {}};
                    std::vector<std::string> inputs(world, std::string(count * element_bytes(shape.type), '\0'));
                    for (std::string& input : inputs) {
                        for (char& c : input) c = static_cast<char>(draw());
                    }
                    const std::vector<std::string_view> views(inputs.begin(), inputs.end());
                    INFO("type " << type << " operation " << op << ", " << count << " elements of " << world);
                    const bool same = reduce_in_ring_order(shape_of(count, shape.type, shape.op), views) ==
                                      reduce_around_a_ring(shape, inputs);
                    CHECK(same);
                }
            }
        }
    }
}

TEST_CASE("only inputs that fit ride in a vote") {
    CHECK(input_bytes_in_vote(shape_of(100, DataType::f32, ReduceOp::sum), 400) == 400);
    CHECK(input_bytes_in_vote(shape_of(101, DataType::f32, ReduceOp::sum), 400) == 0);
    CHECK(input_bytes_in_vote(shape_of(~std::uint64_t{0}, DataType::f64, ReduceOp::sum), 400) == 0);
    CHECK(input_bytes_in_vote(shape_of(0, DataType::u8, ReduceOp::sum), 400) == 0);
    CHECK(input_bytes_in_vote(shape_of(1, DataType::u8, ReduceOp::sum), 0) == 0);
    proto::Shape quantized = shape_of(4, DataType::f32, ReduceOp::sum);
    quantized.set_quantization(1);
    CHECK(input_bytes_in_vote(quantized, 400) == 0);
}
