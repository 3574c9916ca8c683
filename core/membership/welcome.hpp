// The fields of the master's welcome that are the same for all peers: the run, and the limits of the master.
#pragma once

#include "core/journal/run_state.hpp"
#include "core/turn.hpp"
#include "core/wire/convert.hpp"
#include "core/wire/frame.hpp"

#include <cstdint>

namespace pccl::core {

inline proto::Welcome welcome_to(const RunState& run, const Turn& turn) {
    proto::Welcome welcome;
    welcome.set_protocol_version(wire::protocol_version);
    welcome.set_run_id(to_bytes(run.run_id));
    welcome.set_incarnation(run.incarnation);
    welcome.set_peer_timeout_ms(static_cast<std::uint32_t>(turn.timeouts.peer / millisecond));
    welcome.set_control_bytes_max(turn.limits.control_bytes_max);
    welcome.set_entries_max(turn.limits.entries_max);
    welcome.set_key_bytes_max(turn.limits.key_bytes_max);
    welcome.set_vote_input_bytes_max(turn.limits.vote_input_bytes_max);
    return welcome;
}

}  // namespace pccl::core
