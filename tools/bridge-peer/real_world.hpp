// The real machine as the world of one application process: its calls go to libpccl and block, its sleeps are real.
//
// The program never waits for two things at once, so one thread is enough. It carries out the call or the sleep that
// the program asked for, then hands over the answer. The facts are written before each of them, so that a killed
// process has reported all that it did.
#pragma once

#include "harness/process.hpp"
#include "harness/real/facts.hpp"
#include "include/pccl.h"

#include <memory>
#include <optional>

namespace pccl::bridge {

class RealWorld final : public harness::ProcessWorld {
public:
    // `origin`: the value of the machine's clock at time 0 of the run.
    RealWorld(const pcclCommCreateParams_t& parameters, core::Instant origin, harness::FactsWriter& facts,
              harness::Shared& shared)
        : parameters_(parameters), origin_(origin), facts_(facts), shared_(shared) {}
    ~RealWorld() override;
    RealWorld(const RealWorld&) = delete;
    RealWorld& operator=(const RealWorld&) = delete;

    // Runs the program to its end. 8 bytes on standard input are a time until which the program makes no call. The end
    // of standard input tells the program to end. False if the facts cannot be written.
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
    bool joined_ = false;                                              // this communicator has been a member
    std::vector<std::unique_ptr<std::vector<std::uint8_t>>> buffers_;  // pointers, so that addresses stay valid
    std::optional<core::Command> command_;
    std::optional<Wake> wake_;
};

}  // namespace pccl::bridge
