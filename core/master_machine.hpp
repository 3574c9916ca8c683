// The protocol of the master: membership, ballots, outcomes and their journal. It is a state machine without sockets,
// threads, clocks or randomness of its own. Payload never passes through it.
//
// See core/events.hpp for the contract between it and its driver.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/limits.hpp"
#include "core/base/secret.hpp"
#include "core/base/timeouts.hpp"
#include "core/events.hpp"
#include "core/master_status.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace pccl::core {

struct MasterConfig {
    std::uint64_t seed = 0;  // the run id is drawn from it
    Secret key{};            // resume tokens and passes of data links are derived from it: keep it secret
    Limits limits;
    Timeouts timeouts;  // the welcome sends `peer` to each peer
};

class MasterCore;

class MasterMachine {
public:
    explicit MasterMachine(const MasterConfig& config);
    ~MasterMachine();
    MasterMachine(const MasterMachine&) = delete;
    MasterMachine& operator=(const MasterMachine&) = delete;

    // Call once, before the first event, with the records of the journal in order (empty for a new run). Issues the
    // first Persist effects (run, incarnation) into `out`. False: the records are damaged or not a journal of this
    // program, and Halt was issued.
    bool start(Instant now, std::span<const std::string> journal, Effects& out);
    Status handle(Instant now, const Event& event, Effects& out);
    Instant next_deadline() const;
    std::uint64_t state_hash() const;
    // A coarse description of the state: counts are put into a few classes, so that many runs reach the same value. The
    // simulator measures coverage with it. The low byte is the phase of the operations.
    std::uint64_t abstract_state() const;
    // The state that a replay of the journal must restore. The machine that wrote the journal and a machine that has
    // read it return the same text.
    std::string promised() const;
    std::string explain() const;
    // Names data that the machine still keeps although nothing needs it; empty: none. For tests: a leak of one entry
    // for each operation, link or newcomer shows up in a single run.
    std::string leftovers() const;
    // Asserts the invariants of every part. Slow: it looks at everything.
    void check() const;
    // For spectators: the state after the last event. Large for a large run, so do not call it for every event.
    MasterStatus status() const;
    // Clean stop: tells every peer that the master stops for good. Close the driver when the links are flushed.
    void shut_down(Instant now, Effects& out);

private:
    std::unique_ptr<MasterCore> core_;
};

}  // namespace pccl::core
