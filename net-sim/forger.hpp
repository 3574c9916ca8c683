// Changes what a member says, on its way out: the machine is an honest one, and the member lies.
#pragma once

#include "net-sim/describe.hpp"

#include <cstdint>
#include <span>

namespace pccl::sim {

// Called for the effects of members that lie, before they are carried out. Set only in runs that have such members.
class Forger {
public:
    virtual ~Forger() = default;
    virtual bool lies(std::uint32_t node) const = 0;
    // The same, or it did before: what it said may still be on its way.
    virtual bool lied(std::uint32_t node) const = 0;
    // Changes a SendControl, SendFlow or SendPayload to node `far`. What is put into `more` is carried out after it.
    // False: the effect is dropped (never a SendPayload, which has to be answered). The length of a payload stays.
    virtual bool forge(std::uint32_t node, std::uint32_t far, Talk talk, core::Effect& effect, core::Effects& more) = 0;
    // Changes the payload of a SendPayload; its memory stays as it is. True: the checksum is that of the changed bytes.
    virtual bool forge_payload(std::uint32_t node, const core::wire::BulkHeader& header,
                               std::span<std::uint8_t> payload) = 0;
};

}  // namespace pccl::sim
