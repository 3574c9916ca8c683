// The run of fuzz_master and fuzz_peer: a simulated master and three peers, whose applications, faults and strangers are
// chosen by the fuzzer's bytes.
//
// Some members alter messages that they send: peer 3, and for Target::peers the master too. The only oracles are those
// of the driver, which checks the contract of core/events.hpp, and the replay of the journal. So what fires was caused
// by remote input.
#pragma once

#include "input.hpp"

namespace fuzz {

enum class Target { master, peers };  // whom strangers and altered messages reach
// Aborts if a machine breaks its contract.
void play(Input& input, Target target);

}  // namespace fuzz
