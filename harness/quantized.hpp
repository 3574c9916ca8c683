// A model of the quantized all-reduce: its result must equal the unquantized one, within the errors that its hops may
// make.
//
// It contains only the promise: at most half a step of error per hop, a constant keeps its value, NaN stays NaN. It
// must not depend on blocks, slices, the order of the ring or the kernels.
#pragma once

#include "core/events.hpp"
#include "net-sim/draw.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace pccl::harness {

// A random quantization that is valid for f32 and f64.
core::Quantization draw_quantization(sim::Draw& draw);
// Sometimes makes the drawn inputs constant, or one of them NaN.
void vary_inputs(const core::ReduceShape& shape, sim::Draw& draw, std::span<std::uint8_t> bytes);

bool is_quantized_result(const core::ReduceShape& shape, std::span<const std::vector<std::uint8_t>* const> inputs,
                         const std::vector<std::uint8_t>& result, std::uint64_t elements_max);

}  // namespace pccl::harness
