// What an all-reduce must give, written down naively: the model that the `value` oracle compares with.
//
// Knows nothing of rings, slices or kernels. In exact mode inputs are small integers (powers of two for products), for
// which every order of summation gives the same bytes; in random mode floating-point results are held to an error bound.
#pragma once

#include "core/events.hpp"
#include "net-sim/draw.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace pccl::harness {

// Fills `bytes` with inputs of the shape.
void draw_inputs(const core::ReduceShape& shape, bool exact, sim::Draw& draw, std::span<std::uint8_t> bytes);

// Whether `result` is the operation over exactly these inputs. `elements_max` limits how many are looked at.
bool is_result(const core::ReduceShape& shape, bool exact, std::span<const std::vector<std::uint8_t>* const> inputs,
               const std::vector<std::uint8_t>& result, std::uint64_t elements_max);

}  // namespace pccl::harness
