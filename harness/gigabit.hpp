// A ring of peers on links of 1 Gbit/s, the case that quantization is made for. Symbolic payload, one all-reduce of
// f32.
#pragma once

#include "harness/scenario.hpp"

namespace pccl::harness {

// For three peers or more. `quantized`: to bytes, by minimum and maximum.
Scenario gigabit_scenario(std::uint32_t peers, std::uint32_t elements, bool quantized);

}  // namespace pccl::harness
