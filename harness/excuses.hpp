// Reasons for which an oracle forgives what it saw. Each excuse names the fault, the node and the time that justify it.
//
// The injector and the network record here what faults did: closed links, nodes kept apart, processes that did not run.
// An oracle that sees something unusual asks for an excuse for that node and that time. This class decides, and counts
// the excuses used; `sim-run --stats` prints the counts. No other code forgives anything because a fault happened.
#pragma once

#include "harness/scenario.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pccl::harness {

enum class Excuse : std::uint8_t {
    // A membership ended although its application did not leave.
    silence,       // nothing came from the node for about the peer time-out, or its control link stayed closed so long
    both_links,    // its control link and a data link to it were closed at the same time
    no_ring,       // it and another peer could not connect for the peer time-out
    master_gone,   // it reached no master for as long as it waits for one
    narrow_path,   // messages by which two peers connect, and report it, were late by most of the peer time-out
    revision,      // its application submitted a revision other than the next one
    late_vote,     // its application made no call for as long as the limit on votes
    copied_token,  // another process used its token, or two masters hold different ones
    lost_journal,  // the master lost records of its journal
    master_stopped,  // the master was stopped on purpose, and told the member or could not
    stranger,        // it had to connect with a stranger that had asked to be a member
    gang,            // another member of its gang had left or was lost
    revoked,         // the operator had revoked its certificate
    other_loss,      // Excuses::touch, for faults without a rule of their own
    // Content won a synchronization that, by what is known, should not win.
    unknown_voter,  // a member took part, or may have, that had given up or died while the master kept its seat
    // Members of one operation got different outcomes.
    departed,   // the member that failed had left the run, or was lost, before it could get the outcome
    forgotten,  // the journal lost the record of the outcome, or of a removal, before all members got it
    // An update of the topology returned something else than those of the other members.
    early_update,  // a newcomer's first call, which the master answered alone: the others were in another call
    // An operation failed and its error blames a peer or an edge.
    starved,      // "lives and sends nothing": computes, memory, an edge or the master delayed a member
    stuck_edge,   // "does not get through": something delayed the bytes of an edge without closing the connection
    unreachable,  // no holder "could be reached": members were apart, or the data that a holder serves was damaged
    // A member lied: an operation failed for it, a value is false that nobody can check, or an edge to it is down.
    liar,
    count
};
inline constexpr std::size_t excuse_kinds = static_cast<std::size_t>(Excuse::count);
const char* to_text(Excuse excuse);
using ExcuseCounts = std::array<std::uint64_t, excuse_kinds>;

inline constexpr std::size_t no_fault = ~std::size_t{0};  // caused by the network or by a setting of the scenario
inline constexpr std::uint32_t every_peer = ~0u;

class Excuses {
public:
    explicit Excuses(const Scenario& scenario);

    // --- what faults did, recorded when they begin. `fault`: index in Scenario::faults -------------------------------
    // For that time no byte gets from one node to the other, in at least one direction. `gives_up`: the time after
    // which connections between them end by themselves; `never` if they do not. The master is node 0.
    void apart(std::size_t fault, std::uint32_t a, std::uint32_t b, Instant from, Instant until, Duration gives_up);
    // A connection between the two ended, or is about to. Both ends notice at once.
    void closed(std::size_t fault, std::uint32_t a, std::uint32_t b, Instant at);
    // A connection between the two lost its bytes, and at least one end does not notice.
    void half_open(std::size_t fault, std::uint32_t a, std::uint32_t b, Instant at);
    // The process of a peer did not run.
    void asleep(std::size_t fault, std::uint32_t node, Instant from, Instant until);
    // The master did not run. It comes back with everything that it promised.
    void master_away(std::size_t fault, Instant from, Instant until);
    // The master moves to another address. From now on a peer that looks for it tries each of its addresses once.
    void master_moves() { master_moved_ = true; }
    // Records of the master took longer. A peer that comes back gets its welcome later by as much.
    void slow_records(std::size_t fault, Instant from, Instant until);
    // The network refused or swallowed a dial, or the listener closed the connection at once.
    void dial_failed(std::uint32_t from, std::uint32_t to, Instant at, bool swallowed);
    // What one node sent to the other in that time was late by `longest` at most: a window, an uplink or a downlink was
    // full.
    void late(std::uint32_t from, std::uint32_t to, Instant since, Instant until, Duration longest);
    // Nothing arrived in that time, although something was sent: it travelled that long.
    void silent(std::uint32_t from, std::uint32_t to, Instant since, Instant until);
    // A dial was not answered in that time.
    void dial_late(std::uint32_t from, std::uint32_t to, Instant since, Instant until);
    // All machines of the run stood still at the same time. No member may be lost for it, but the clock of the world
    // went on.
    void standstill(Instant from, Instant until) { standstills_.push_back({from, until}); }
    // The master's clock went forward. Unless it takes the jump for a sleep, it counts it as silence of its peers.
    void master_clock_jump(Instant at, Duration by) { jumps_.push_back({at, by}); }
    // The master comes back without the records that it wrote since `written`.
    void records_lost(Instant written, Instant at) { records_lost_.push_back({written, at}); }
    // The master told all members that the run has ended. From then on that run does not exist any more.
    void master_stopped(std::size_t fault, Instant at, Instant until) { stops_.push_back({fault, at, until, false}); }
    // The master's process ended before it had told everybody.
    void stop_was_cut_short() { stops_.back().cut_short = true; }
    // The time that a message takes from one node to the other on an idle path.
    void path(std::uint32_t from, std::uint32_t to, Duration latency);
    // Excuses any loss of the node (or of every_peer) within that time.
    void touch(Excuse excuse, std::size_t fault, std::uint32_t node, Instant from, Instant until);

    // The fault delays operations of the node (or of every_peer) within that time, in the way that `excuse` names.
    void hardship(Excuse excuse, std::size_t fault, std::uint32_t node, Instant from, Instant until);

    // --- decisions ---------------------------------------------------------------------------------------------------
    // Whether faults explain the loss of a membership that was good at `member_until` and had ended at `lost_at`.
    // `unconnected`: the reason was that the node and another peer did not connect.
    bool loss(std::uint32_t node, Instant member_until, Instant lost_at, bool unconnected);
    // Whether faults closed its control link again and again, each time before it had resumed, for as long as `limit`.
    bool kept_away(std::uint32_t node, Instant member_until, Instant lost_at, Duration limit);
    // Whether a fault closed its control link then.
    bool control_closed(std::uint32_t node, Instant member_until, Instant lost_at);
    // As loss(), for a member that did not come back to a master within `limit`, because it was looking for a master
    // that had moved.
    bool sought(Instant member_until, Instant lost_at, Duration limit);
    // Two members got different outcomes of what began at `from`, one at `earlier` and one at `later`. True if the
    // master lost the earlier outcome with its journal before it sent the later one. `answered`: when the member with
    // the earlier outcome last began a call that succeeded. A master without the record of that outcome never answers
    // that member again.
    bool forgotten(Instant from, Instant earlier, Instant later, Instant answered);
    // Whether the node may have been removed in that time before it learned of its admission, because its control link
    // was down.
    bool cut_off(std::uint32_t node, Instant from, Instant until);
    // Whether a full path kept messages between the node and the master for two peer time-outs. The master does not wait
    // longer for the acknowledgement that no vote of the node is on its way.
    bool vote_on_its_way(std::uint32_t node, Instant from, Instant until);
    // Whether something delayed one of these nodes, or a link between two of them, in that time.
    bool hard_for(Excuse excuse, const std::vector<std::uint32_t>& nodes, Instant from, Instant until);
    // Whether two of these nodes may have been without a good connection for as long as an edge of the ring may be
    // down: they were apart, or their reports about it were late.
    bool edge_down(const std::vector<std::uint32_t>& nodes, Instant from, Instant until);
    // Until when the master may count a peer that was gone at `gone` and did not report it.
    Instant counted_until(Instant gone) const;
    // Until when the master may receive what a peer that was gone at `gone` had sent before.
    Instant heard_until(std::uint32_t node, Instant gone) const;
    // Whether a recorded Excuses::touch (of that kind) covers the loss; not counted as a use. A node that was out of
    // reach then may learn of the loss afterwards.
    bool touched(std::uint32_t node, Instant member_until, Instant lost_at,
                 std::optional<Excuse> kind = std::nullopt) const;
    // When something first happened after that time to the node, the master, or what they send to each other. Not
    // lateness that breaks no connection.
    Instant first_disturbed(std::uint32_t node, Instant since) const;
    // Whether a master was stopped after the node had asked to be a member. `told`: the node reports that the master
    // told it. Otherwise the stop was cut short, or something must have happened to its control link at that time.
    bool run_ended(std::uint32_t node, Instant asked_at, Instant lost_at, bool told);
    // How long the master counts a member that has given up by itself.
    Duration seat_kept() const { return timeouts_.peer + timeouts_.grace() + beat_; }
    // For rules that the oracle checks itself. Counts a use; false if this excuse is refused.
    bool use(Excuse excuse) {
        if (excuse == refused_) return false;
        ++used_[static_cast<std::size_t>(excuse)];
        return true;
    }
    bool refuses(Excuse excuse) const { return excuse == refused_; }
    // Refuses this excuse from now on, to see whether it is needed.
    void refuse(Excuse excuse) { refused_ = excuse; }
    const ExcuseCounts& used() const { return used_; }

    // The longest time that a message takes on a path without faults that is not full.
    Duration slow() const { return slow_; }
    // Until a machine notices something: at its next tick, and the longest one takes a quarter of a second.
    Duration notice() const { return slow_ + 250 * core::millisecond; }
    // The most by which anything was late after that time, between any two nodes.
    Duration latest_of_all(Instant since) const;
    // What is recorded about the node around that time, as text for the report of a loss.
    std::string explain(std::uint32_t node, Instant from, Instant until) const;

private:
    // A time in which something between two nodes was wrong.
    struct Span {
        std::size_t fault = no_fault;
        Instant from = 0;
        Instant until = 0;
        bool silent = false;   // nothing got through
        bool closes = false;   // connections ended
        bool blocked = false;  // dials do not get through either
        bool extends = false;  // only makes overlapping spans longer
    };
    struct Period {
        Instant from = 0;
        Instant until = 0;
    };
    struct Jump {
        Instant at = 0;
        Duration by = 0;
    };
    struct Stop {
        std::size_t fault = no_fault;
        Instant at = 0;
        Instant until = 0;
        bool cut_short = false;
    };
    struct Touch {
        Excuse excuse = Excuse::other_loss;
        std::size_t fault = no_fault;
        std::uint32_t node = 0;
        Instant from = 0;
        Instant until = 0;
    };

    struct Late {
        Instant from = 0;
        Instant until = 0;
        Duration longest = 0;
    };

    // The most by which anything from one node to the other was late within that time, without a fault between them.
    Duration latest(std::uint32_t from, std::uint32_t to, Instant since, Instant until) const;
    // The time on idle paths from a new plan to the report that the two are connected.
    Duration connects(std::uint32_t from, std::uint32_t to) const;
    // How long after its end a hardship may still have effects.
    Duration aftermath() const { return 2 * timeouts_.peer + timeouts_.grace(); }
    void record(std::uint32_t a, std::uint32_t b, const Span& span);
    std::vector<Span>& between(std::uint32_t a, std::uint32_t b);
    std::vector<Span> merged(std::vector<Span> spans, Duration gap) const;
    std::vector<Span> control_of(std::uint32_t node, bool with_master) const;
    std::vector<Span> data_of(std::uint32_t node, std::uint32_t other) const;
    Duration jumps_counted(Instant from, Instant until) const;
    bool ends_links(Duration silence) const { return silence >= timeouts_.peer - beat_; }

    core::Timeouts timeouts_;
    std::uint32_t nodes_;
    Duration slow_ = 0;
    Duration heartbeat_ = 0;  // the longest interval between heartbeats at their sender
    Duration beat_ = 0;       // the longest silence of a healthy link
    std::uint32_t jitter_per_mille_ = 0;
    Duration reconnect_ = 0;  // from a reset to the new connection
    Duration round_ = 0;      // the time to try once all addresses that a member has for the master
    bool master_moved_ = false;
    std::vector<Period> searches_;            // times in which members look for a master that has moved
    Duration redial_ = 0;                     // from the end of a blockade to the new connection
    std::vector<std::vector<Span>> control_;  // of each node with the master; at 0: of the master with all nodes
    std::vector<std::vector<Span>> data_;     // of each pair of peers
    std::vector<Touch> touches_;
    std::vector<Touch> hardships_;
    std::vector<std::vector<Late>> late_;  // of each pair of nodes, in that direction
    std::vector<Duration> path_;           // of each pair of nodes, in that direction
    std::vector<Period> standstills_;
    std::vector<Jump> jumps_;
    std::vector<Stop> stops_;
    std::vector<Period> records_lost_;  // written in that time, and lost at its end
    ExcuseCounts used_{};
    Excuse refused_ = Excuse::count;  // none
};

}  // namespace pccl::harness
