// Collectives as calls of the application: the launch of a tag with its await, and calls for many tags.
//
// This part casts the vote for each start and keeps the result of a tag until it is awaited. For a call for many tags
// it also retries failed tags. Other parts handle what happens between the start and the end of an operation.
//
// All members finish a call for many tags together, although each may use another window and another order. A retry is
// settled when the result of the tag is told, and the master tells results to all members in the order of its
// decisions. It does not matter when this member finishes draining; members differ in that.
// The master enforces the windows and starts complete ballots in one order (Operations). A running operation needs
// nothing but its members' data, so its place becomes free, and the next operation starts at all members or at none.
//
// A send is known here by a name that this peer chose (CommandLaunch::tag). Its vote carries the tag of both ends.
//
// Invariants: a tag, and a send of one pair with one tag, is launched once at a time. Each launch is concluded once: by
// its answer, its operation or the loss of the run. A call for many tags ends when all of its launches are concluded.
// Votes without an answer carry at most Limits::vote_inputs_open_bytes.
#pragma once

#include "core/identity.hpp"
#include "core/links/master_line.hpp"
#include "core/peer_machine.hpp"
#include "core/voting/tickets.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace pccl::core {

class Launches {
public:
    // The parts of a launch that its operation needs.
    struct Start {
        Tag tag = 0;
        Serial serial = 0;
        ReduceShape shape;
        BufferId send = 0;
        BufferId receive = 0;
        Collective collective = {};
    };

    class Owner {
    public:
        // The vote for a start was cast. It carries no input.
        virtual void start_cast(const Start& launch) = 0;
        virtual bool successor_is_near() const = 0;  // proto::Vote::near

    protected:
        ~Owner() = default;
    };

    Launches(Turn& turn, const Identity& who, MasterLine& master, Tickets& tickets, PeerStatistics& counted,
             Owner& owner)
        : turn_(turn), who_(who), master_(master), tickets_(tickets), counted_(counted), owner_(owner) {}

    // ---- calls
    void launch(const CommandLaunch& command);
    void reduce_many(const CommandReduceMany& command);
    void await(const CommandAwait& command);

    // ---- what becomes of them
    // The master started an operation, or refused to. Returns nothing if it refused, or if the answer fits no launch of
    // this peer.
    std::optional<Start> answered(const proto::Answer& answer);
    void begun(Tag tag, OpId op);
    // The start was the outcome, too: the votes carried the inputs. It never ran, so it took no place in a window.
    void reduced_in_vote(Tag tag, OpId op, Completion result);
    // The outcome of a started operation. Called in the order of the master's decisions.
    void told(Tag tag, const Completion& result);
    // Bytes left ahead of a start that did not come, or named another ring. They count as sent.
    void sent_in_vain(Tag tag, std::uint64_t bytes) {
        if (const auto launch = launches_.find(tag); launch != launches_.end()) launch->second.sent_in_vain += bytes;
    }
    // A send of others went through this peer.
    void forwarded(const Completion& outcome) {
        counted_.payload_sent += outcome.sent_bytes;
        counted_.payload_received += outcome.received_bytes;
    }
    // The operation has drained, or never began.
    void concluded(Tag tag, Serial serial, Completion completion);
    void launch_delayed();
    // The run is lost. Nothing is retried, and the world sizes of that run no longer count.
    void run_lost(const Cause& cause);
    void conclude_unstarted(const Cause& cause);
    // Called when this peer has left: drops results that were never awaited.
    void clear() {
        launches_.clear();
        sends_.clear();
    }

    // Asserts the invariants above.
    void check() const;
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
        std::string input;          // what its vote carries; empty: nothing
        std::uint64_t carried = 0;  // bytes of it in a vote that has no answer yet
        Collective collective;
        OpId op = 0;
        std::uint64_t sent_in_vain = 0;
        Ticket await = 0;
        std::optional<Completion> outcome;
        // Part of a batch (batch != 0): it has no await of its own.
        std::uint64_t batch = 0;
        std::size_t index = 0;
        std::uint32_t failures = 0;
        bool again = false;  // its failure was told, and it will be retried
        // Failures in a row without progress of the call: their number, the time of the first, and world size, reduced
        // tags and message at the last one.
        std::uint32_t failures_in_vain = 0;
        Instant failing_since = 0;
        std::uint32_t failing_world = 0;
        std::size_t failing_reduced = 0;
        Cause last_failure;
    };
    // A call that reduces many tags.
    struct Batch {
        Ticket ticket = 0;
        std::uint32_t window = 1;
        std::size_t open = 0;      // launches that are not concluded yet
        std::size_t running = 0;   // started launches whose outcome was not told yet
        std::size_t reduced = 0;   // tags that succeeded
        std::vector<Tag> delayed;  // retried at the next tick
        Completion outcome;        // once it is not success, nothing is retried
    };

    // A send among those that are open here: receiver or sender, which is not this peer, and the tag of the pair.
    using SendName = std::tuple<Uuid, Uuid, Tag>;
    static SendName send_name(const Collective& send) { return {send.root, send.target, send.pair_tag}; }
    void take(Launch& launch, const CommandLaunch& command);
    std::map<Tag, Launch>::iterator erase(std::map<Tag, Launch>::iterator launch);
    static Start start_of(Tag tag, const Launch& launch) {
        return Start{tag, launch.serial, launch.shape, launch.send, launch.receive, launch.collective};
    }
    bool may_carry(std::uint64_t bytes) const {
        return by_serial_.size() < turn_.limits.vote_inputs_launched &&
               inputs_open_ + bytes <= turn_.limits.vote_inputs_open_bytes;
    }
    void cast_start(Tag tag, Launch& launch);
    void describe(const Launch& launch, proto::Vote& vote) const;
    void told(Launch& launch, const Completion& result);
    void concluded_of_many(Tag tag, const Completion& completion);
    Cause given_up(const Launch& launch) const;

    Turn& turn_;
    const Identity& who_;
    MasterLine& master_;
    Tickets& tickets_;
    PeerStatistics& counted_;
    Owner& owner_;
    std::map<Tag, Launch> launches_;
    std::set<SendName> sends_;  // of the launches
    std::map<std::uint64_t, Batch> batches_;
    std::uint64_t last_batch_ = 0;
    std::map<Serial, Tag> by_serial_;  // launches that wait for their start
    std::uint64_t inputs_open_ = 0;    // bytes that their votes carry
};

}  // namespace pccl::core
