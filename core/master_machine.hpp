// The protocol of the master: membership, ballots, outcomes and their journal, as a state machine without sockets,
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
    std::uint64_t seed = 0;  // run id
    Secret key{};            // resume tokens and passes of data links come from it: nobody else may know it
    Limits limits;
    Timeouts timeouts;  // `peer` is told to the peers
};

class MasterCore;

class MasterMachine {
public:
    explicit MasterMachine(const MasterConfig& config);
    ~MasterMachine();
    MasterMachine(const MasterMachine&) = delete;
    MasterMachine& operator=(const MasterMachine&) = delete;

    // Must be called once before the first event: the records of the journal in order (empty for a new run).
    // The machine issues its first Persist effects (run, incarnation) into `out`. False: the records are not a journal of
    // this program (Halt was issued).
    bool start(Instant now, std::span<const std::string> journal, Effects& out);
    Status handle(Instant now, const Event& event, Effects& out);
    Instant next_deadline() const;
    std::uint64_t state_hash() const;
    // The situation with counts put into a few classes, so that many runs come to the same one; for measuring what runs
    // reach. The low byte is the phase of the operations.
    std::uint64_t abstract_state() const;
    // What the journal has to give again: the same text from the machine that wrote it and from one that has read it.
    std::string promised() const;
    std::string explain() const;
    // What it still keeps though nothing needs it any more, in words; empty: nothing. For tests: who keeps one entry of every
    // operation, link or newcomer is found in one run.
    std::string leftovers() const;
    // For spectators: as of the last event. Not small for a large run, and not for every event.
    MasterStatus status() const;
    // Tells every peer that the master stops for good (clean stop); close the driver when the links are flushed.
    void shut_down(Instant now, Effects& out);

private:
    std::unique_ptr<MasterCore> core_;
};

}  // namespace pccl::core
