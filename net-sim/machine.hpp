// The interface of a machine towards its driver, common to PeerMachine, MasterMachine and the toy machines of tests.
#pragma once

#include "core/events.hpp"
#include "core/peer_machine.hpp"

#include <cstdint>
#include <string>
#include <type_traits>

namespace pccl::sim {

class Machine {
public:
    virtual ~Machine() = default;
    virtual core::Status handle(core::Instant now, const core::Event& event, core::Effects& out) = 0;
    virtual core::Instant next_deadline() const = 0;
    virtual std::uint64_t state_hash() const = 0;
    // See PeerMachine. Toy machines have none.
    virtual std::uint64_t abstract_state() const { return 0; }
    virtual std::string explain() const = 0;
    virtual std::string leftovers() const { return {}; }
    virtual void check() const {}
    virtual const core::PeerMachine* peer() const { return nullptr; }  // null for other machines
};

// Adapts a class with the same members.
template <class Real>
class MachineOf final : public Machine {
public:
    template <class Config>
    explicit MachineOf(const Config& config) : real(config) {}
    core::Status handle(core::Instant now, const core::Event& event, core::Effects& out) override {
        return real.handle(now, event, out);
    }
    core::Instant next_deadline() const override { return real.next_deadline(); }
    std::uint64_t state_hash() const override { return real.state_hash(); }
    std::uint64_t abstract_state() const override { return real.abstract_state(); }
    std::string explain() const override { return real.explain(); }
    std::string leftovers() const override { return real.leftovers(); }
    void check() const override { real.check(); }
    const core::PeerMachine* peer() const override {
        if constexpr (std::is_same_v<Real, core::PeerMachine>)
            return &real;
        else
            return nullptr;
    }
    Real real;
};

}  // namespace pccl::sim
