// What a quantized all-reduce must give: the same as without, within the errors that its hops may make.
//
// Knows the promise (half a step a hop, a constant stays what it is, NaN stays NaN) and nothing of blocks, slices, the
// order of the ring or the kernels.
#pragma once

#include "core/events.hpp"
#include "net-sim/draw.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace pccl::harness {

// Some way that the elements of the shape can be quantized.
core::Quantization draw_quantization(sim::Draw& draw);
// Now and then makes drawn inputs constant, or one of them a NaN.
void vary_inputs(const core::ReduceShape& shape, sim::Draw& draw, std::span<std::uint8_t> bytes);

bool is_quantized_result(const core::ReduceShape& shape, std::span<const std::vector<std::uint8_t>* const> inputs,
                         const std::vector<std::uint8_t>& result, std::uint64_t elements_max);

}  // namespace pccl::harness
