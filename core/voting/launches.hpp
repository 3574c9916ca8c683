// All-reduces as calls of the application: a launch by a tag with its await, and calls that reduce many tags.
//
// It casts the vote for each start, holds what was said of a tag until it is awaited, and launches again what a call for many
// tags has to try once more. What happens between the start and the end of an operation is not its matter.
//
// Members come to an end together although each may use another window and another order: whether a tag is tried again is
// settled when its result is told, and results are told to all members in the order of the master's decisions. When the
// operation has come to rest here, which is a matter of each member alone, is of no account.
// Windows are kept by the master, which starts complete ballots in one order (Operations): what runs needs
// nothing but its members' data, so a place gets free, and the next one starts at all members or at none.
//
// Invariants: a tag is launched at most once at a time. Each launch is concluded once, by its answer, its operation or the loss
// of the run. A call for many tags ends when all of its launches are concluded.
#pragma once

#include "core/links/master_line.hpp"
#include "core/peer_machine.hpp"
#include "core/voting/tickets.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pccl::core {

class Launches {
public:
    // A launch as the operation that starts for it needs it.
    struct Start {
        Tag tag = 0;
        Serial serial = 0;
        ReduceShape shape;
        BufferId send = 0;
        BufferId receive = 0;
    };

    Launches(Turn& turn, MasterLine& master, Tickets& tickets, PeerStatistics& counted)
        : turn_(turn), master_(master), tickets_(tickets), counted_(counted) {}

    // ---- calls
    void launch(const CommandLaunch& command);
    void reduce_many(const CommandReduceMany& command);
    void await(const CommandAwait& command);

    // ---- what becomes of them
    // The master started an operation, or refused to. None: it was refused, or is for no launch of this peer.
    std::optional<Start> answered(const proto::StartAnswer& answer);
    void begun(Tag tag, OpId op);
    // In the order of decisions: the outcome of a started one.
    void told(Tag tag, const Completion& result);
    // The operation has come to rest, or never began.
    void concluded(Tag tag, Serial serial, Completion completion);
    void launch_delayed();
    // The run is lost: nothing is tried again, and what the epochs of that run said is of no account.
    void run_lost(const std::string& reason);
    void conclude_unstarted(const std::string& reason);
    // What was concluded and never awaited goes with the run.
    void clear() { launches_.clear(); }

    bool empty() const { return launches_.empty(); }
    std::size_t size() const { return launches_.size(); }
    Tag first() const { return launches_.begin()->first; }
    std::size_t unstarted() const { return by_serial_.size(); }
    bool many() const { return !batches_.empty(); }

private:
    struct Launch {
        Serial serial = 0;
        ReduceShape shape;
        BufferId send = 0;
        BufferId receive = 0;
        OpId op = 0;
        Ticket await = 0;
        std::optional<Completion> outcome;
        // One of many (batch != 0): no await of its own.
        std::uint64_t batch = 0;
        std::size_t index = 0;
        std::uint32_t failures = 0;
        bool again = false;  // its result, told already, is one to try again
        // Failures in a row without progress of the call, since when, and what was said of the last one.
        std::uint32_t failures_in_vain = 0;
        Instant failing_since = 0;
        std::uint32_t failing_world = 0;
        std::size_t failing_reduced = 0;
        std::string last_failure;
    };
    // A call that reduces many tags.
    struct Batch {
        Ticket ticket = 0;
        std::uint32_t window = 1;
        std::size_t open = 0;      // launches that are not concluded
        std::size_t running = 0;   // started, and their outcome was not told
        std::size_t reduced = 0;   // tags that succeeded
        std::vector<Tag> delayed;  // launched again at the next tick
        Completion outcome;        // not success: nothing is tried again
    };

    void cast_start(Tag tag, Launch& launch);
    void told(Launch& launch, const Completion& result);
    void concluded_of_many(Tag tag, const Completion& completion);
    std::string given_up(const Launch& launch) const;

    Turn& turn_;
    MasterLine& master_;
    Tickets& tickets_;
    PeerStatistics& counted_;
    std::map<Tag, Launch> launches_;
    std::map<std::uint64_t, Batch> batches_;
    std::uint64_t last_batch_ = 0;
    std::map<Serial, Tag> by_serial_;  // those that wait for their start
};

}  // namespace pccl::core
