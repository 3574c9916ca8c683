// What one application process needs from its world: time, memory, calls and wake-ups. The same program runs in the
// simulated world (simulated_world.hpp) and in the real one (tools/bridge-peer), there as a process over the C
// interface.
#pragma once

#include "core/events.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::harness {

class ProcessWorld {
public:
    virtual ~ProcessWorld() = default;
    virtual core::Instant now() const = 0;

    virtual core::BufferId add_buffer(std::uint32_t node, std::uint64_t bytes) = 0;
    // For symbolic memory: how many different bytes were written, or read, since the last call of forget_uses.
    virtual std::uint64_t written(std::uint32_t, core::BufferId) { return 0; }
    virtual std::uint64_t read(std::uint32_t, core::BufferId) { return 0; }
    virtual void forget_uses(std::uint32_t, core::BufferId) {}
    virtual std::vector<std::uint8_t>& memory(std::uint32_t node, core::BufferId id) = 0;

    // The name of this node's machine in the run; nil: there is no way to know it.
    virtual core::Uuid peer_id(std::uint32_t) { return {}; }

    // The answer comes later, through Process::completed, never from inside this call.
    virtual void command(std::uint32_t node, core::Command command) = 0;
    // Calls Process::resume(ticket) after that time.
    virtual void wake_after(std::uint32_t node, core::Duration duration, core::Ticket ticket) = 0;
    // Called when Process::finished() has become true.
    virtual void program_ended(std::uint32_t node) = 0;
    virtual void violate(std::string oracle, std::string reason) = 0;
    virtual bool lied(std::uint32_t) const { return false; }
};

}  // namespace pccl::harness
