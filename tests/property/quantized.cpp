// Quantization as users measure it: time on a slow link, and a reference model that accepts right results and refuses
// wrong ones.
#include "harness/quantized.hpp"
#include "core/numeric/kernels.hpp"
#include "core/numeric/quantize.hpp"
#include "harness/gigabit.hpp"
#include "harness/reference.hpp"
#include "harness/run.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

using namespace pccl;
using namespace pccl::core;

TEST_CASE("on links of 1 Gbit/s bytes are at least 3 times as fast as floats") {
    for (const std::uint32_t peers : {3u, 4u}) {
        const harness::Verdict plain = harness::run(harness::gigabit_scenario(peers, 16u << 20, false));
        const harness::Verdict quantized = harness::run(harness::gigabit_scenario(peers, 16u << 20, true));
        REQUIRE(plain.held());
        REQUIRE(quantized.held());
        REQUIRE(quantized.reduce_time > 0);
        INFO(peers << " peers: " << plain.reduce_time << " ns and " << quantized.reduce_time << " ns");
        CHECK(plain.reduce_time >= 3 * quantized.reduce_time);
    }
}

namespace {

// Plays a ring by hand: the first input is quantized, and each further member is one hop.
std::vector<std::uint8_t> through_the_ring(const ReduceShape& shape,
                                           const std::vector<std::vector<std::uint8_t>>& inputs) {
    const Quantization& how = shape.quantization;
    std::vector<std::uint8_t> wire(numeric::wire_bytes(how, shape.type, shape.count)), result(inputs[0].size());
    numeric::quantize(how, shape.type, wire.data(), inputs[0].data(), shape.count);
    for (std::size_t i = 1; i < inputs.size(); ++i) {
        const bool last = i + 1 == inputs.size();
        const std::uint32_t divisor = shape.op == ReduceOp::avg && last ? static_cast<std::uint32_t>(inputs.size()) : 0;
        numeric::reduce_quantized(how, shape.type, shape.op, wire.data(), wire.data(), inputs[i].data(), shape.count,
                                  divisor);
    }
    numeric::dequantize(how, shape.type, result.data(), wire.data(), shape.count);
    return result;
}

}  // namespace

TEST_CASE("the reference model accepts what a ring gives, and not what lacks a member") {
    sim::Draw draw(7);
    int refused = 0;
    for (int round = 0; round < 600; ++round) {
        ReduceShape shape;
        shape.type = draw.chance(500'000) ? DataType::f32 : DataType::f64;
        shape.op = static_cast<ReduceOp>(draw.below(reduce_op_count));
        shape.count = static_cast<std::uint64_t>(draw.log_uniform(2, 1500));
        shape.quantization = harness::draw_quantization(draw);
        const bool exact = draw.chance(500'000);
        std::vector<std::vector<std::uint8_t>> inputs(draw.below(4) + 2);
        std::vector<const std::vector<std::uint8_t>*> pointers;
        for (auto& input : inputs) {
            input.resize(shape.count * element_bytes(shape.type));
            harness::draw_inputs(shape, exact, draw, input);
            pointers.push_back(&input);
        }
        const std::vector<std::uint8_t> result = through_the_ring(shape, inputs);
        INFO("round " << round << " algorithm " << static_cast<int>(shape.quantization.algorithm) << " codes "
                      << static_cast<int>(shape.quantization.type) << " op " << static_cast<int>(shape.op) << " count "
                      << shape.count << " members " << inputs.size());
        REQUIRE(harness::is_result(shape, exact, pointers, result, shape.count));
        // Leaves out the input of one member, if a step is far smaller than the inputs.
        if (shape.op != ReduceOp::sum || shape.quantization.type == CodeType::u4 || shape.count < 50) continue;
        const std::vector<std::vector<std::uint8_t>> others(inputs.begin(), inputs.end() - 1);
        const auto is_nan = [&](const std::vector<std::uint8_t>& bytes) {
            float value = 0;
            double wide = 0;
            std::memcpy(&value, bytes.data(), 4);
            std::memcpy(&wide, bytes.data(), 8);
            return shape.type == DataType::f32 ? std::isnan(value) : std::isnan(wide);
        };
        if (is_nan(result)) continue;  // no number is left that could be wrong
        CHECK_FALSE(harness::is_result(shape, exact, pointers, through_the_ring(shape, others), shape.count));
        ++refused;
    }
    CHECK(refused > 20);
}
