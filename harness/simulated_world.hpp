// The world of application processes in the simulator.
#pragma once

#include "harness/process_world.hpp"
#include "harness/reach.hpp"
#include "net-sim/world.hpp"

#include <utility>

namespace pccl::harness {

class SimulatedWorld final : public ProcessWorld {
public:
    // `ended_item`: the script item that is scheduled with the node when a program has ended.
    SimulatedWorld(sim::World& world, std::uint64_t ended_item, Reach* reach)
        : world_(world), ended_item_(ended_item), reach_(reach) {}

    core::Instant now() const override { return world_.now(); }
    core::BufferId add_buffer(std::uint32_t node, std::uint64_t bytes) override {
        return world_.driver(node)->add_application_buffer(bytes);
    }
    std::vector<std::uint8_t>& memory(std::uint32_t node, core::BufferId id) override {
        return *world_.driver(node)->buffers().find(id);
    }
    std::uint64_t written(std::uint32_t node, core::BufferId id) override {
        return world_.driver(node)->buffers().written(id);
    }
    std::uint64_t read(std::uint32_t node, core::BufferId id) override {
        return world_.driver(node)->buffers().read(id);
    }
    void forget_uses(std::uint32_t node, core::BufferId id) override { world_.driver(node)->buffers().forget_uses(id); }
    core::Uuid peer_id(std::uint32_t node) override {
        const core::PeerMachine* peer = world_.driver(node)->machine().peer();
        return peer == nullptr ? core::Uuid{} : peer->uuid();
    }
    void command(std::uint32_t node, core::Command command) override {
        if (reach_ != nullptr) reach_->command(command);
        world_.command(node, std::move(command));
    }
    void wake_after(std::uint32_t node, core::Duration duration, core::Ticket ticket) override {
        world_.schedule_application(node, duration, ticket, 0);
    }
    void program_ended(std::uint32_t node) override { world_.schedule_script(world_.now(), ended_item_, node); }
    bool lied(std::uint32_t node) const override { return world_.lied(node); }
    void violate(std::string oracle, std::string reason) override {
        world_.violate(std::move(oracle), std::move(reason));
    }

private:
    sim::World& world_;
    std::uint64_t ended_item_;
    Reach* reach_;
};

}  // namespace pccl::harness
