// Worlds in which everything takes long and nothing goes wrong: the limits and time-outs that users have, payload for
// seconds to minutes over paths of 20 kB/s to 1 MB/s, many tags at once, more members than fit into a picture.
#pragma once

#include "harness/scenario.hpp"

namespace pccl::harness {

void draw_slow_world(Scenario& scenario, const GeneratorOptions& options, std::uint32_t on);

// How long the payload of one turn takes over the narrowest path.
Duration payload_time(const Scenario& scenario);

}  // namespace pccl::harness
