// Why an oracle may forgive what it saw. Each excuse names the fault, the node and the time that justify it.
//
// Injector and network record here what faults did: which links they closed, whom they kept apart, who slept. An oracle that
// sees something unusual asks for an excuse for that node and that time. This class decides and counts; `sim-run --stats`
// prints the counts. Nothing else forgives anything because a fault happened.
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
    silence,  // nothing came from the node for about the peer time-out, or its control link stayed closed for that time
    both_links,      // its control link and a data link to it were closed at the same time
    no_ring,         // it and another peer could not connect for the peer time-out
    master_gone,     // it did not reach a master for the time that it waits for one
    narrow_path,     // what two peers have to say to connect, and to report it, came late by most of the peer time-out
    revision,        // the rule of revisions: its application submitted a revision that is not the next one
    late_vote,       // its application made no call for the limit on votes
    vote_held_up,    // its vote could not travel, or was not ready: a fault touched one of its links, or its computes
    copied_token,    // somebody else used its token, or two masters know different ones
    lost_journal,    // the master forgot its records
    master_stopped,  // the master was stopped on purpose and told it, or could not tell it
    stranger,        // it was to connect with somebody who had asked to be a member and is no peer of the scenario
    other_loss,      // Excuses::touch, for faults with no rule of their own
    // A content won a synchronization that should not win by what is known.
    unknown_voter,  // somebody took part, or may have, whose seat was kept after it had given up or died
    // Members that took part in the same operation were told different outcomes.
    departed,   // the one that failed had left the run, or was lost, before it could learn the outcome
    forgotten,  // the record of the outcome, or of a removal, was lost with the journal before all had learned it
    // An update of the topology counted or told something else than those of the others.
    early_update,  // the first call of a newcomer, answered alone because the others were in another call
    // An operation failed and its error blames somebody.
    starved,      // "lives and sends nothing": computes, memory, an edge or the master held a member up
    stuck_edge,   // "does not get through": something held up the bytes of an edge without ending the connection
    unreachable,  // no holder of a state "could be reached": members were apart, or what one serves was damaged
    count
};
inline constexpr std::size_t excuse_kinds = static_cast<std::size_t>(Excuse::count);
const char* to_text(Excuse excuse);
using ExcuseCounts = std::array<std::uint64_t, excuse_kinds>;

inline constexpr std::size_t no_fault = ~std::size_t{0};  // drawn by the network itself, or a setting of the scenario
inline constexpr std::uint32_t every_peer = ~0u;

class Excuses {
public:
    explicit Excuses(const Scenario& scenario);

    // --- what faults did, recorded when they begin. `fault`: index in Scenario::faults ---------------------------------
    // Nothing gets from one node to the other, or back, for that time. `gives_up`: after how long connections between them
    // end by themselves; never: they do not. The master is node 0.
    void apart(std::size_t fault, std::uint32_t a, std::uint32_t b, Instant from, Instant until, Duration gives_up);
    // A connection between the two ended, or is going to: both ends notice at once.
    void closed(std::size_t fault, std::uint32_t a, std::uint32_t b, Instant at);
    // A connection between the two lost its bytes, and at least one end does not notice.
    void half_open(std::size_t fault, std::uint32_t a, std::uint32_t b, Instant at);
    // The process of a peer did not run.
    void asleep(std::size_t fault, std::uint32_t node, Instant from, Instant until);
    // The master did not run; it comes back with all that it promised.
    void master_away(std::size_t fault, Instant from, Instant until);
    // From now on it is not where it was: who looks for it goes once round its addresses.
    void master_moves() { master_moved_ = true; }
    // Records of the master took longer: who comes back is welcomed as much later.
    void slow_records(std::size_t fault, Instant from, Instant until);
    // The network refused or swallowed a dial, or the listener closed the connection at once.
    void dial_failed(std::uint32_t from, std::uint32_t to, Instant at, bool swallowed);
    // What one node sent to the other in that time came late by `longest` at most: a window, an uplink or a downlink was full.
    void late(std::uint32_t from, std::uint32_t to, Instant since, Instant until, Duration longest);
    // Nothing came in that time, though it was sent: something travelled that long.
    void silent(std::uint32_t from, std::uint32_t to, Instant since, Instant until);
    // A dial was not answered in that time.
    void dial_late(std::uint32_t from, std::uint32_t to, Instant since, Instant until);
    // Computes of the node took longer for a fault. What a vote needs was not ready before.
    void computed_slowly(std::uint32_t node, Instant since, Instant until) {
        computes_.push_back({node, since, until});
    }
    // No machine of the run stood still alone: nobody may be lost for it, but the clock of the world went on.
    void standstill(Instant from, Instant until) { standstills_.push_back({from, until}); }
    // The master comes back without the records that it wrote from `written` on.
    void records_lost(Instant written, Instant at) { records_lost_.push_back({written, at}); }
    // The master told everybody that the run has ended, and nobody knows of that run any more from then on.
    void master_stopped(std::size_t fault, Instant at, Instant until) { stops_.push_back({fault, at, until, false}); }
    // It died while it did so.
    void stop_was_cut_short() { stops_.back().cut_short = true; }
    // How long a message takes from one node to the other on an idle path.
    void path(std::uint32_t from, std::uint32_t to, Duration latency);
    // Any loss of the node (or of every_peer) within that time.
    void touch(Excuse excuse, std::size_t fault, std::uint32_t node, Instant from, Instant until);

    // It holds up operations of the node (or of every_peer) within that time, in the way that `excuse` names.
    void hardship(Excuse excuse, std::size_t fault, std::uint32_t node, Instant from, Instant until);

    // --- decisions -----------------------------------------------------------------------------------------------------
    // A membership of the node that was good at `member_until` had ended at `lost_at`. `unconnected`: because it and another
    // peer did not connect.
    bool loss(std::uint32_t node, Instant member_until, Instant lost_at, bool unconnected);
    // The same, of one that did not come back to a master within `limit`: it was looking for a master that had moved.
    bool sought(Instant member_until, Instant lost_at, Duration limit);
    // Its program was in no call for `idle`, and faults that touched the node, its links or its computes made up for the rest
    // of the limit on votes. What happened to the master alone does not count.
    bool hindered(std::uint32_t node, Duration idle, Instant from, Instant until);
    // Two members were told different outcomes of what began at `from`, at these two times, and the master lost the earlier
    // outcome with its journal before it told the later one. `answered`: when the member that knows the earlier outcome
    // last began a call that succeeded. A master without the record of what that member knows never answers it again.
    bool forgotten(Instant from, Instant earlier, Instant later, Instant answered);
    // The node may have been removed in that time, and did not know that it had been admitted: its control link was away.
    bool cut_off(std::uint32_t node, Instant from, Instant until);
    // Whether something held up one of these nodes, or a link between two of them, in that time.
    bool hard_for(Excuse excuse, const std::vector<std::uint32_t>& nodes, Instant from, Instant until);
    // Whether two of these nodes may have been without a good connection for as long as an edge of the ring may be down: they
    // were apart, or what they say about it came late.
    bool edge_down(const std::vector<std::uint32_t>& nodes, Instant from, Instant until);
    // Until when the master may count somebody that was gone at that time and did not say so.
    Instant counted_until(Instant gone) const;
    // Whether a recorded Excuses::touch (of that kind) covers it; not counted. A node that was out of reach then learns it
    // afterwards.
    bool touched(std::uint32_t node, Instant member_until, Instant lost_at,
                 std::optional<Excuse> kind = std::nullopt) const;
    // Whether a master was stopped after the node had asked to be a member. `told`: the node says that the master told it; else
    // something must have happened to its control link then.
    bool run_ended(std::uint32_t node, Instant asked_at, Instant lost_at, bool told);
    // For how long the master counts a member that has given up by itself.
    Duration seat_kept() const { return timeouts_.peer + timeouts_.grace() + beat_; }
    // For rules that the oracle checks itself: false if it has to do without.
    bool use(Excuse excuse) {
        if (excuse == refused_) return false;
        ++used_[static_cast<std::size_t>(excuse)];
        return true;
    }
    bool refuses(Excuse excuse) const { return excuse == refused_; }
    // Does not forgive anything for that one, to see whether it is needed.
    void refuse(Excuse excuse) { refused_ = excuse; }
    const ExcuseCounts& used() const { return used_; }

    // The longest time that a message takes on a path that no fault touches and that is not full.
    Duration slow() const { return slow_; }
    // The latest that anything came after that time, between any two nodes.
    Duration latest_of_all(Instant since) const;
    // What is known about the node around that time, for the report of a loss.
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
        bool extends = false;  // only makes what overlaps with it longer
    };
    struct Period {
        Instant from = 0;
        Instant until = 0;
    };
    struct Stop {
        std::size_t fault = no_fault;
        Instant at = 0;
        Instant until = 0;
        bool cut_short = false;
    };
    struct Computes {
        std::uint32_t node = 0;
        Instant from = 0;
        Instant until = 0;
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

    // The latest that anything came from the one to the other within that time, without a fault between them.
    Duration latest(std::uint32_t from, std::uint32_t to, Instant since, Instant until) const;
    // How long the two take on idle paths from a new plan to the report that they are connected.
    Duration connects(std::uint32_t from, std::uint32_t to) const;
    // How long after its end a hardship may still show.
    Duration aftermath() const { return 2 * timeouts_.peer + timeouts_.grace(); }
    void record(std::uint32_t a, std::uint32_t b, const Span& span);
    std::vector<Span>& between(std::uint32_t a, std::uint32_t b);
    std::vector<Span> merged(std::vector<Span> spans, Duration gap) const;
    std::vector<Span> control_of(std::uint32_t node, bool with_master) const;
    std::vector<Span> data_of(std::uint32_t node, std::uint32_t other) const;
    bool ends_links(Duration silence) const { return silence >= timeouts_.peer - beat_; }

    core::Timeouts timeouts_;
    std::uint32_t nodes_;
    Duration slow_ = 0;
    Duration heartbeat_ = 0;  // from one heartbeat to the next, where they leave
    Duration beat_ = 0;       // the longest silence of a healthy link
    std::uint32_t jitter_per_mille_ = 0;
    Duration reconnect_ = 0;  // from a reset to the new connection
    Duration round_ = 0;      // of all addresses that a member has for the master
    bool master_moved_ = false;
    std::vector<Period> searches_;            // for a master that had moved
    Duration redial_ = 0;                     // from the end of a blockade to the new connection
    std::vector<std::vector<Span>> control_;  // of each node with the master; of node 0: of the master with everybody
    std::vector<std::vector<Span>> data_;     // of each pair of peers
    std::vector<Computes> computes_;
    std::vector<Touch> touches_;
    std::vector<Touch> hardships_;
    std::vector<std::vector<Late>> late_;  // of each pair of nodes, in that direction
    std::vector<Duration> path_;           // of each pair of nodes, in that direction
    std::vector<Period> standstills_;
    std::vector<Stop> stops_;
    std::vector<Period> records_lost_;  // written in that time, and lost at its end
    ExcuseCounts used_{};
    Excuse refused_ = Excuse::count;  // none
};

}  // namespace pccl::harness
