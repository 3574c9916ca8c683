// The real machine as the world of one application process: its calls go to libpccl and block, its sleeps are sleeps.
//
// The program never waits for two things at once, so one thread does: carry out the call or the sleep that it asked for,
// then hand it the answer. Before anything is begun the facts are written, so that a killed process has told all it did.
#pragma once

#include "harness/process.hpp"
#include "harness/real/facts.hpp"
#include "include/pccl.h"

#include <memory>
#include <optional>

namespace pccl::bridge {

class RealWorld final : public harness::ProcessWorld {
public:
    // `origin`: the time of the machine's clock that is 0 in the run.
    RealWorld(const pcclCommCreateParams_t& parameters, core::Instant origin, harness::FactsWriter& facts,
              harness::Shared& shared)
        : parameters_(parameters), origin_(origin), facts_(facts), shared_(shared) {}
    ~RealWorld() override;
    RealWorld(const RealWorld&) = delete;
    RealWorld& operator=(const RealWorld&) = delete;

    // Runs the program to its end. Standard input tells until when it makes no call (8 bytes each time); its end, that the
    // program is to end. False: the facts cannot be written.
    bool run(harness::Process& process);

    core::Instant now() const override;
    core::BufferId add_buffer(std::uint32_t node, std::uint64_t bytes) override;
    std::vector<std::uint8_t>& memory(std::uint32_t, core::BufferId id) override { return *buffers_[id]; }
    void command(std::uint32_t, core::Command command) override { command_ = std::move(command); }
    void wake_after(std::uint32_t, core::Duration duration, core::Ticket ticket) override {
        wake_ = Wake{now() + duration, ticket};
    }
    void program_ended(std::uint32_t) override {}
    void violate(std::string oracle, std::string reason) override { facts_.violated(oracle, reason); }

private:
    struct Wake {
        core::Instant at = 0;
        core::Ticket ticket = 0;
    };
    core::Completion carry_out(const core::Command& command);
    core::Completion answer(pcclResult_t result) const;
    core::Completion operator()(const core::CommandConnect&);
    core::Completion operator()(const core::CommandUpdateTopology&);
    core::Completion operator()(const core::CommandArePeersPending&);
    core::Completion operator()(const core::CommandLaunch&);
    core::Completion operator()(const core::CommandAwait&);
    core::Completion operator()(const core::CommandSync&);
    core::Completion operator()(const core::CommandLeave&);
    core::Completion operator()(const core::CommandReduceMany&);
    core::Completion operator()(const core::CommandOptimizeTopology&);
    void sleep_until(core::Instant at, harness::Process& process);

    pcclCommCreateParams_t parameters_;
    core::Instant origin_;
    harness::FactsWriter& facts_;
    harness::Shared& shared_;
    pcclComm_t* communicator_ = nullptr;
    bool joined_ = false;                                              // this communicator has been a member once
    std::vector<std::unique_ptr<std::vector<std::uint8_t>>> buffers_;  // their addresses stay
    std::optional<core::Command> command_;
    std::optional<Wake> wake_;
};

}  // namespace pccl::bridge
