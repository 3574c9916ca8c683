// All time-outs of the system.
//
// Fields are values that an operator may set. Functions are derived from the peer time-out, roughly in order of size,
// each with its reason. Nothing else in the core is a fraction or a multiple of the peer time-out.
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>

namespace pccl::core {

struct Timeouts {
    // Silence after which a link is dead and a member is removed. The master's value is valid for all peers.
    Duration peer = 10 * second;
    Duration master = 30 * second;    // how long a peer waits for a lost master; 0: not at all
    Duration handshake = 5 * second;  // from an opened link to its hello
    Duration dial = 3 * second;       // from OpenLink to LinkOpened
    Duration redial_min = 20 * millisecond;
    Duration redial_max = 1 * second;
    Duration vote_warn = 30 * second;
    Duration vote = 0;              // a vote that has not changed for so long is given up, see VotePatience; 0: never
    Duration journal = 0;           // a master whose journal was not written for so long stops itself; 0: never
    Duration test = 1 * second;     // bandwidth test of one edge, from its first byte
    Duration survey = 20 * second;  // all tests of one vote; edges not measured by then wait for the next one
    Duration edge_age = 3600 * second;  // a bandwidth that was measured longer ago is measured again

    // A connection without a hello keeps its place for this time, although others wait for one. Must exceed a round trip.
    Duration place() const { return handshake / 4; }

    // ---- derived from `peer`, roughly in order of size: a possible cause is found before its consequence is judged
    // The interval at which machines check their clocks.
    Duration tick() const { return std::clamp<Duration>(peer / 16, 10 * millisecond, 250 * millisecond); }
    // A flow word that may be lost is sent again after this time. The wait doubles with each repeat.
    Duration repeat() const { return peer / 16; }
    // Losses of a slice within this time count as one, because connections break together. If a slice takes longer, the
    // receiver reports that it moves.
    Duration together() const { return peer / 8; }
    // The interval of heartbeats. There are several in a peer time-out, because some may be late.
    Duration heartbeat() const { return peer / 5; }
    // A machine that did not run for longer has slept, so the apparent silence of all others is its own. Derived from
    // it: the patience with a ring that was connected and with a stripe, and the time between two requests for holders.
    Duration hiccup() const { return peer / 4; }
    // How long an edge of the ring that was connected may be down before the ring is routed around it.
    Duration edge_grace() const { return std::min(2 * second, hiccup()); }
    // The longest back-off. A peer must redial a few times before the peer time-out ends.
    Duration redial_longest() const { return std::max(redial_min, std::min(redial_max, hiccup())); }
    // After this time heartbeats are missing, or the acknowledgements in them. No other peer is judged by an edge to a
    // peer in this state.
    Duration quiet() const { return peer / 2; }
    // `peer` itself: a link that is silent for so long is dead, a member that is away for so long is removed.
    // Resent copies of a slice have got no more of it through for so long: the edge is stuck.
    Duration copies() const { return 3 * peer / 2; }
    // Something that was sent has had no answer for so long: an edge is stuck, or a vote cannot be on its way any more.
    Duration unanswered() const { return 2 * peer; }
    // A successor that received the start has not been ready for so long: the edge is stuck. Longer than `peer`,
    // because a link that loses the `ready` word is silent for one peer time-out before it is redialled.
    Duration unready() const { return 5 * peer / 2; }
    // A neighbour that lives and is not starved has sent nothing new for so long: it is to blame. Longer than all of
    // the above, so that a bad edge is named first.
    Duration starved() const { return 3 * peer; }
    // A member that is connected and lives, but has not finished its declarations for so long, is removed. Each vote
    // that it has declared so far gives it a tick more: a slow path carries such a vote within it.
    Duration undeclared(std::uint32_t declared = 0) const { return 4 * peer + declared * tick(); }
    // An operation that gets nothing new for so long fails, whoever is to blame.
    Duration starved_for_good() const { return 10 * peer; }
    // How long a restarted master waits for the members of its journal to resume: longer than any reconnect back-off of
    // a healthy member. Meanwhile it only aborts operations that a member has voted against.
    Duration grace() const { return std::max(peer, 3 * redial_max) + handshake; }
    // How long a receiver waits until it reaches any holder. The master may have to restart and be reconnected first.
    Duration without_holders() const { return 8 * peer + grace(); }
    // An edge that connects but carries no data is tried again after this time, and after longer with each failure.
    Duration stuck_mark() const { return 16 * peer; }
    // The longest comparison of shared-state keys. It serves only an error text, so it must not take longer.
    Duration comparison() const { return 30 * peer; }
    // If no ring is left, edges that an earlier ring gave up are tried again, but not more often than this.
    Duration rarely() const { return 64 * peer; }
    // A member whose vote is awaited may hash or copy, and say so, for so long: far longer than any content takes, but a
    // member that lies says it for ever.
    Duration works_for_good() const { return 20 * vote; }
    // Direct edges that no collective has used for so long are closed. They cost little, and a collective that finds
    // none goes around the ring. Longer than the time between two outer steps of a training that communicates rarely.
    Duration direct_idle() const { return 360 * peer; }
};

}  // namespace pccl::core
