// Describes a small world that is explored completely: its peers, their calls, and the faults that may happen.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::scope {

// One call of a peer's program. `await` and `sync` end the collective that the oracles judge.
enum class Call : std::uint8_t { connect, update, launch, await, sync, leave };
struct Line {
    Call call = Call::connect;
    // For `update`: called when nothing else can happen without time passing, until every live peer is a member.
    bool repeated = false;
    bool at_once = false;  // for `await`: called as soon as the launch has returned, not as a step of its own
};
using Program = std::vector<Line>;

// A false observation on purpose, to test that the oracles and the exploration work. It occurs only in some orders.
enum class Lie : std::uint8_t { none, value, outcome, input, memory };

struct Scope {
    std::string name;
    std::string about;
    std::uint32_t peers = 2;
    std::uint32_t joiners = 0;  // so many of the last peers are not connected when the exploration begins
    Program program;            // of each member
    Program joiner;             // of each joiner
    std::uint64_t count = 4;    // elements (i32) of a reduction and of the shared state; a slice has 2
    bool in_place = false;
    // Each of these is a step of its own if set. Otherwise it happens at once, after the event that caused it.
    bool slow_disk = false;     // RecordPersisted
    bool slow_payload = false;  // the arrival of a payload after its header
    // At most `faults` faults, of these kinds.
    std::uint32_t faults = 0;
    bool cut = false;         // a connection breaks, with or without the data in flight, or a dial is refused
    bool death = false;       // a peer's process dies
    bool master = false;      // the master's process dies and starts again with what is durable
    bool heartbeats = false;  // heartbeats take as long as other messages; otherwise they arrive at once
    bool nightly = false;     // one of the smallest, which ./dev nightly completes
    Lie lie = Lie::none;

    // A call that stays open for longer after the last fault hangs. Most waits are a few ticks. A peer that dies may
    // cost the peer time-out (1 s in a scope).
    core::Duration patience = core::second / 2;
};

const std::vector<Scope>& all_scopes();
const Scope* find_scope(const std::string& name);

}  // namespace pccl::scope
