// The command `move` of a peer of pccl-bench: collectives of any kind (`./dev bench collectives`).
//
//   move KIND BYTES ITERATIONS
//       -> "moved CODE BEGIN_NS END_NS BEGIN_NS END_NS..."  CODE 0: done, and the first result was right. A barrier is
//          before each iteration. Times are of CLOCK_MONOTONIC.
//
// BYTES is the whole array: what all hold after an all_gather, what each has before a reduce_scatter and an all_to_all,
// what the root has in a gather and a scatter. Elements are f32. gloo_peer.py obeys the same command.
#pragma once

#include <pccl.h>

#include <istream>
#include <string>

namespace pccl::bench {

// One `move`, from the words behind the command. Blocks until it is done.
std::string move_arrays(pcclComm_t* communicator, unsigned rank, unsigned world, std::istream& arguments);

}  // namespace pccl::bench
