// Observes each command and each configuration that a run passes to the core. A test uses it to check that the
// generator draws every one of them.
#pragma once

#include "core/master_machine.hpp"
#include "core/peer_machine.hpp"

namespace pccl::harness {

class Reach {
public:
    virtual ~Reach() = default;
    virtual void peer(const core::PeerConfig& config) = 0;
    virtual void master(const core::MasterConfig& config) = 0;
    virtual void command(const core::Command& command) = 0;
};

}  // namespace pccl::harness
