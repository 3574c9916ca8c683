// The world as one application process sees it. The same program runs in the simulated one (simulated_world.hpp) and, as
// a process of its own over the C interface, in the real one (tools/bridge-peer).
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
    // Of symbolic memory: how many different bytes were written, or read, since the last call of forget_uses.
    virtual std::uint64_t written(std::uint32_t, core::BufferId) { return 0; }
    virtual std::uint64_t read(std::uint32_t, core::BufferId) { return 0; }
    virtual void forget_uses(std::uint32_t, core::BufferId) {}
    virtual std::vector<std::uint8_t>& memory(std::uint32_t node, core::BufferId id) = 0;

    // Answered later by Process::completed, never from inside.
    virtual void command(std::uint32_t node, core::Command command) = 0;
    // Process::resume(ticket) after that time.
    virtual void wake_after(std::uint32_t node, core::Duration duration, core::Ticket ticket) = 0;
    // Process::finished() has become true.
    virtual void program_ended(std::uint32_t node) = 0;
    virtual void violate(std::string oracle, std::string reason) = 0;
};

}  // namespace pccl::harness
