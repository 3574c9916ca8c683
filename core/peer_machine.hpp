// The protocol of one peer: a state machine without sockets, threads, clocks or randomness of its own.
//
// See core/events.hpp for the contract between it and its driver.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/limits.hpp"
#include "core/base/secret.hpp"
#include "core/base/timeouts.hpp"
#include "core/events.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace pccl::core {

struct PeerConfig {
    std::uint64_t seed = 0;  // uuid and back-off jitter are drawn from it: unique per communicator
    Secret key{};            // the resume token comes from it: nobody else may know it
    Endpoint master;
    std::vector<Endpoint> other_masters;  // more addresses of the same master, tried in order where one does not answer
    GroupId group = 0;
    std::uint32_t stripes = 0;      // connections to the ring neighbour; 0: the default
    std::uint16_t listen_port = 0;  // advertised; the master adds the address it sees
    bool has_advertised = false;    // then `advertised` is told instead
    Endpoint advertised;
    Limits limits;
    Timeouts timeouts;
};

// What happened since the machine was made, over all memberships, and how things are now.
struct PeerStatistics {
    // happened
    std::uint64_t connects = 0;  // memberships gained
    std::uint64_t losses = 0;    // memberships lost other than by leaving
    std::uint64_t topology_updates = 0;
    std::uint64_t launches = 0;  // tags, each attempt
    std::uint64_t committed = 0;
    std::uint64_t aborted = 0;
    std::uint64_t refused = 0;       // the start was refused to all (shapes that differ, nobody left)
    std::uint64_t retried = 0;       // attempts that a call for many tags made on its own
    std::uint64_t payload_sent = 0;  // bytes of operations that came to an outcome
    std::uint64_t payload_received = 0;
    std::uint64_t refused_frames = 0;  // from strangers, or damaged
    std::uint64_t dead_frames = 0;     // of operations that were over
    std::uint64_t master_links_lost = 0;
    // now
    Attributes attributes;
    std::uint64_t epoch = 0;
    std::uint32_t tags_open = 0;  // launched and not awaited
    std::uint32_t operations_running = 0;
    std::uint32_t votes_open = 0;
    struct Edge {
        Uuid peer;
        std::uint32_t connections = 0;  // wanted
        std::uint32_t connections_open = 0;
    };
    std::vector<Edge> edges;  // to those that we send to
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
    // A hash of the whole state, for the determinism gate and the recorder.
    std::uint64_t state_hash() const;
    // The situation with counts put into a few classes, so that many runs come to the same one; for measuring what runs
    // reach. The low byte is the phase of the calls.
    std::uint64_t abstract_state() const;
    // One line of text for people: who waits for what (liveness reports, traces).
    std::string explain() const;
    // What it still keeps though nothing needs it any more, in words; empty: nothing. For tests: who keeps one entry of every
    // operation, link or newcomer is found in one run.
    std::string leftovers() const;
    const Uuid& uuid() const;
    // In force: the master's, once it has told it.
    Duration peer_timeout() const;
    PeerStatistics statistics() const;

private:
    std::unique_ptr<PeerCore> core_;
};

}  // namespace pccl::core
