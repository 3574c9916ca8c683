// Every time-out of the system in one place.
//
// What an operator may set are fields. What follows from the peer time-out are functions, in order of size, each with its
// reason: nothing else in the core is a fraction or a multiple of it.
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>

namespace pccl::core {

struct Timeouts {
    Duration peer =
        10 * second;  // silence after which a link is dead and a member is removed (the master's value rules)
    Duration master = 30 * second;    // how long a lost master is waited for; 0: not at all
    Duration handshake = 5 * second;  // from an opened link to its hello
    Duration dial = 3 * second;       // from OpenLink to LinkOpened
    Duration redial_min = 20 * millisecond;
    Duration redial_max = 1 * second;
    Duration vote_warn = 30 * second;
    Duration vote = 0;           // after which a vote that did not change is given up, see VotePatience; 0: never
    Duration journal = 0;        // of the master, after which one whose journal is not written stops itself; 0: never
    Duration test = 1 * second;  // bandwidth test of one edge, from its first byte
    Duration survey = 20 * second;      // all tests of one vote; what is not measured by then waits for the next
    Duration edge_age = 3600 * second;  // a bandwidth that was measured longer ago is measured again

    // How long a connection without a hello keeps its place while others wait for one: longer than a round trip.
    Duration place() const { return handshake / 4; }

    // ---- derived from `peer`, in order of size: what may be the cause is found out before its consequence is judged
    // Machines look at their clocks this often.
    Duration tick() const { return std::clamp<Duration>(peer / 16, 10 * millisecond, 250 * millisecond); }
    // A word that may be lost is said again after this, then after twice as long, and so on.
    Duration repeat() const { return peer / 16; }
    // Losses of a slice that come closer together are one: connections break together. A slice that takes longer is reported.
    Duration together() const { return peer / 8; }
    // Of the heartbeats in a peer time-out some may be late.
    Duration heartbeat() const { return peer / 5; }
    // A machine that did not run for longer has slept: what looks like everybody's silence is its own. A ring that was
    // connected, a stripe that moves and a holder that is asked get as long.
    Duration hiccup() const { return peer / 4; }
    // How long an edge of the ring that was connected may be down before the ring is led around it.
    Duration edge_grace() const { return std::min(2 * second, hiccup()); }
    // Who dials again does so a few times within the time-out after which it is given up.
    Duration redial_longest() const { return std::max(redial_min, std::min(redial_max, hiccup())); }
    // Heartbeats are missing, or what they acknowledge: nobody else is judged by such an end.
    Duration quiet() const { return peer / 2; }
    // `peer` itself: a link that is silent for so long is dead, a member that is away for so long is removed.
    // Copies of a slice that are sent again get nothing more of it through.
    Duration copies() const { return 3 * peer / 2; }
    // What was sent and taken has no answer: an edge is stuck, a vote is not on its way any more.
    Duration unanswered() const { return 2 * peer; }
    // A successor that was told its operation is not ready for it. A link that swallows its word is silent for one time-out
    // before it is dialled again.
    Duration unready() const { return 5 * peer / 2; }
    // Who lives and does not wait itself gives nothing new. Longer than all of the above, so that an edge is named first.
    Duration starved() const { return 3 * peer; }
    // A member that is connected, lives and does not come to the end of what it declares.
    Duration undeclared() const { return 4 * peer; }
    // Whoever is to blame: an operation to which nothing new comes fails.
    Duration starved_for_good() const { return 10 * peer; }
    // How long a master that was started again waits for the members of its journal to come back: longer than any
    // reconnect back-off of a healthy one. Nothing is decided meanwhile.
    Duration grace() const { return std::max(peer, 3 * redial_max) + handshake; }
    // A receiver waits for any holder at all while the master may restart and be connected again.
    Duration without_holders() const { return 8 * peer + grace(); }
    // An edge that takes connections and carries nothing is tried again after this, each time after longer.
    Duration stuck_mark() const { return 16 * peer; }
    // The keys of a shared state are compared for a text alone.
    Duration comparison() const { return 30 * peer; }
    // Edges that an earlier ring gave up are tried again where no ring is left, not more often than this.
    Duration rarely() const { return 64 * peer; }
};

}  // namespace pccl::core
