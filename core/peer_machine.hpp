// The protocol of one peer: a state machine without sockets, threads, clocks or randomness of its own.
//
// See core/events.hpp for the contract between it and its driver.
#pragma once

#include "core/base/gang.hpp"
#include "core/base/ids.hpp"
#include "core/base/limits.hpp"
#include "core/base/secret.hpp"
#include "core/base/timeouts.hpp"
#include "core/events.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace pccl::core {

struct PeerConfig {
    std::uint64_t seed = 0;  // uuid and back-off jitter are drawn from it: must be unique per communicator
    Secret key{};            // the first resume token is derived from it: keep it secret
    Endpoint master;
    std::vector<Endpoint> other_masters;  // more addresses of the same master, tried in order if one does not answer
    GroupId group = 0;
    Gang gang;                      // with which it joins and leaves; none: alone
    Duration gang_patience = 0;     // how long it waits for missing places of its gang, in ms; 0: without limit
    std::uint64_t host = 0;         // equal at peers that share the memory of a host; 0: not known
    std::uint32_t stripes = 0;      // connections to the ring neighbour; 0: the default
    std::uint16_t listen_port = 0;  // advertised; the master adds the address it sees
    bool has_advertised = false;    // true: `advertised` is sent instead
    Endpoint advertised;
    Limits limits;
    Timeouts timeouts;
};

// Counters since the machine was made, over all memberships, and the present state.
struct PeerStatistics {
    // counters
    std::uint64_t connects = 0;  // memberships gained
    std::uint64_t losses = 0;    // memberships lost other than by leaving
    std::uint64_t topology_updates = 0;
    std::uint64_t launches = 0;  // tags, each attempt
    std::uint64_t committed = 0;
    std::uint64_t aborted = 0;
    std::uint64_t refused = 0;       // launches whose start was refused for all members (shapes differ, no other left)
    std::uint64_t retried = 0;       // tags launched again by a call for many tags
    std::uint64_t payload_sent = 0;  // bytes, counted when a launch is concluded
    std::uint64_t payload_received = 0;
    std::uint64_t refused_frames = 0;  // from strangers, or damaged
    std::uint64_t dead_frames = 0;     // frames of operations that were over
    std::uint64_t master_links_lost = 0;
    // now
    Attributes attributes;
    std::uint64_t epoch = 0;
    std::uint32_t tags_open = 0;  // launched and not awaited
    std::uint32_t operations_running = 0;  // started
    std::uint32_t votes_open = 0;
    struct Edge {
        Uuid peer;
        std::uint32_t connections = 0;  // wanted
        std::uint32_t connections_open = 0;
    };
    std::vector<Edge> edges;  // to the peers that this peer dials
};

class PeerCore;

class PeerMachine {
public:
    explicit PeerMachine(const PeerConfig& config);
    ~PeerMachine();
    PeerMachine(const PeerMachine&) = delete;
    PeerMachine& operator=(const PeerMachine&) = delete;

    // The only way in. Effects are appended to `out`. `now` never goes back.
    Status handle(Instant now, const Event& event, Effects& out);
    // Call handle(Timer) at this instant at the latest; `never` when nothing is in flight.
    Instant next_deadline() const;
    // A hash over a selection of the state, for the determinism gate and the recorder.
    std::uint64_t state_hash() const;
    // A coarse description of the state: counts are put into a few classes, so that many runs reach the same value. The
    // simulator measures coverage with it. The low byte is the phase of the calls.
    std::uint64_t abstract_state() const;
    // One line of text for people: what this peer waits for (liveness reports, traces).
    std::string explain() const;
    // Names data that the machine still keeps although nothing needs it; empty: none. For tests: a leak of one entry
    // for each operation, link or newcomer shows up in a single run.
    std::string leftovers() const;
    // Asserts the invariants of every part. Slow: it looks at everything.
    void check() const;
    // For a driver that has carried out every Compute and handles no more events. The running operations fail, or are
    // committed, and `carry_out` is called for the copies that are left. Afterwards each array of the application holds
    // its result or, if it is an input, what it held.
    void copy_rest(const std::function<void(const Compute&)>& carry_out);
    const Uuid& uuid() const;
    bool in_run() const;  // joining, or a member
    // The peer time-out in force: the master's, once its welcome has arrived.
    Duration peer_timeout() const;
    PeerStatistics statistics() const;

private:
    std::unique_ptr<PeerCore> core_;
};

}  // namespace pccl::core
