// Judges what the master says about votes that wait: it warns once of each, and names members that have not voted.
#pragma once

#include "harness/ledger.hpp"
#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

#include <array>
#include <string>

namespace pccl::harness {

class VoteWarnings {
public:
    VoteWarnings(sim::World& world, const Scenario& scenario, const Ledger& ledger);
    void master_began() { warned_.fill(core::never); }
    // A log line of the master. `disturbed_at`: the first fault.
    void logged(const std::string& text, Instant disturbed_at);
    // Judges each call, however short it is.
    void lie() { unseen_ = 0; }

private:
    void look_at_named(const std::string& text, CallKind kind);

    sim::World& world_;
    const Ledger& ledger_;
    bool listens_ = true;
    Duration unseen_ = 0;                // a vote may travel that long
    std::array<Instant, 3> warned_{};  // by kind
};

}  // namespace pccl::harness
