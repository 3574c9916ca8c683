// Measurements of the simulator, and predictions made with it: the published tables, speed, bandwidth tests, and a run
// of 1,000 peers.
#pragma once

#include <string>

namespace pccl::tools {

// `what`: paper, speed, topology, scale, quantized or all. Returns the exit code of the program.
int bench(const std::string& what);
// The part `quantized`. False if a figure is worse than promised.
bool bench_quantized();

}  // namespace pccl::tools
