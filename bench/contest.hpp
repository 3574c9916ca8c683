// The commands that every contestant of `./dev bench` obeys, one process per peer. bench/python/compare/contestants.py
// sends them. pccl-bench's hidden peer role (worker.hpp) and gloo_peer.py read the same commands.
//
//   reduce BYTES IN_PLACE TAGS WARMUP ITERATIONS
//       -> "reduced CODE CPU_SECONDS 0 COUNT TIME_MS..."  CODE 0: done, and the first sum was right. Only rank 0 sends
//          times. TAGS is ignored.
//   quit, or the end of the input, ends the process.
#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>

namespace pccl::bench {

// One all-reduce (f32 sum) of `elements`; `send` may be `receive`. False: it failed.
using Reduce = std::function<bool(float* send, float* receive, std::size_t elements)>;

void obey_commands(std::istream& commands, std::ostream& answers, unsigned rank, unsigned world, const Reduce& reduce);

}  // namespace pccl::bench
