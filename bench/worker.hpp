// The two hidden roles of pccl-bench: a peer that takes commands from its standard input, and a master.
//
// Commands to a peer, one line each, and its answers:
//   reduce BYTES IN_PLACE TAGS WARMUP ITERATIONS [QUANTIZED]
//       -> "reduced CODE CPU_SECONDS EXTRA_BYTES COUNT TIME_MS..." (only the first peer sends times)
//   stream BYTES IN_FLIGHT WARMUP ITERATIONS
//       the same out of place, without a pause: the next operation of a tag is launched when the last one is over
//       -> "reduced CODE CPU_SECONDS 0 COUNT TIME_MS" (only the first peer; for IN_FLIGHT operations, on average)
//   faulty BYTES
//       -> "begin NS", then "end CODE NS", and if that failed "retried CODE NS WORLD VALUE_IS_RIGHT
//          ATTEMPTS"; the parent sends its signal to the last rank
//   state BYTES TURNS
//       -> "state CODE HASH_SECONDS READ_SECONDS TIME_S..." (only the last peer sends times)
//   move KIND BYTES ITERATIONS
//       see collectives.hpp
//   memory
//       -> "memory RESIDENT_BYTES"
//   quit
//       leaves the run and ends; so does the end of the input
#pragma once

#include <cstdint>
#include <string>

namespace pccl::bench {

struct MasterPlace {
    std::string host = "127.0.0.1";
    std::uint16_t port = 0;
};

// `connections` to each neighbour; 0: the library chooses.
int run_peer(unsigned rank, unsigned world, const MasterPlace& master, unsigned connections);
// Listens at `host` on a free port, prints "port N", serves until the end of its input.
int run_master(const std::string& host);

}  // namespace pccl::bench
