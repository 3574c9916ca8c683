// Steady worlds: everything takes long, but nothing goes wrong except connections that break or a member that dies.
// They have default limits and mostly default time-outs, payload for seconds to minutes over paths of 20 kB/s to
// 1 MB/s, many tags at once, and up to 24 members.
#pragma once

#include "harness/scenario.hpp"

namespace pccl::harness {

void draw_slow_world(Scenario& scenario, const GeneratorOptions& options, std::uint32_t on);

// How long the payload of one turn takes over the narrowest path.
Duration payload_time(const Scenario& scenario);

}  // namespace pccl::harness
