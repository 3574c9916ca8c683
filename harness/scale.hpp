// A run of a thousand peers: join, reduce, lose twenty, reduce, admit twenty, reduce, leave.
#pragma once

#include "harness/scenario.hpp"

namespace pccl::harness {

Scenario scale_scenario(std::uint32_t peers = 1000, std::uint32_t replaced = 20);

}  // namespace pccl::harness
