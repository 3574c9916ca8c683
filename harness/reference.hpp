// A naive model of all-reduce. The `value` oracle compares results with it.
//
// It must not depend on rings, slices or kernels. In exact mode inputs are small integers (powers of two for products),
// so every order of summation gives the same bytes. In random mode floating-point results must lie within an error
// bound.
#pragma once

#include "core/events.hpp"
#include "net-sim/draw.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace pccl::harness {

// Fills `bytes` with inputs of the shape.
void draw_inputs(const core::ReduceShape& shape, bool exact, sim::Draw& draw, std::span<std::uint8_t> bytes);

// Whether `result` is the operation over exactly these inputs. Compares at most `elements_max` elements.
bool is_result(const core::ReduceShape& shape, bool exact, std::span<const std::vector<std::uint8_t>* const> inputs,
               const std::vector<std::uint8_t>& result, std::uint64_t elements_max);

}  // namespace pccl::harness
