// Calls that all members of the run make together: update the topology, ask for pending peers, optimize the topology. A
// peer makes one such call at a time: the call of a second thread is queued here behind the first.
#pragma once

#include "core/links/master_line.hpp"
#include "core/voting/tickets.hpp"

#include <deque>
#include <string>

namespace pccl::core {

class RunWideCalls {
public:
    RunWideCalls(MasterLine& master, Tickets& tickets) : master_(master), tickets_(tickets) {}

    // The result of such a call if this peer is not in the run (any more).
    static Result failure_outside(proto::VoteKind kind) {
        switch (kind) {
        case proto::VOTE_UPDATE_TOPOLOGY: return Result::update_topology_failed;
        case proto::VOTE_OPTIMIZE_TOPOLOGY: return Result::topology_optimization_failed;
        default: return Result::invalid_usage;
        }
    }
    void begin(proto::VoteKind kind, Ticket ticket) {
        calls_.push_back({kind, ticket, 0});
        if (calls_.size() == 1) cast_next();
    }
    // Completes the call that voted with this serial, then begins the next one. False: that call is over already.
    bool answered(Serial serial, Completion completion) {
        if (calls_.empty() || calls_.front().serial != serial) return false;
        const Ticket ticket = calls_.front().ticket;
        calls_.pop_front();
        tickets_.complete(ticket, std::move(completion));
        if (!calls_.empty()) cast_next();
        return true;
    }
    void run_lost(const Cause& cause) {
        for (const Call& call : calls_) tickets_.fail(call.ticket, failure_outside(call.kind), cause);
        calls_.clear();
    }
    std::size_t size() const { return calls_.size(); }
    // One call is cast, those behind it are not.
    void check() const {
        for (const Call& call : calls_) ASSERT((call.serial != 0) == (&call == &calls_.front()));
    }

private:
    struct Call {
        proto::VoteKind kind = proto::VOTE_UPDATE_TOPOLOGY;
        Ticket ticket = 0;
        Serial serial = 0;  // 0: it waits for the call before it
    };
    void cast_next() {
        Call& call = calls_.front();
        ASSERT(call.serial == 0);
        proto::Vote vote;
        vote.set_kind(call.kind);
        call.serial = master_.cast(vote);
    }

    MasterLine& master_;
    Tickets& tickets_;
    std::deque<Call> calls_;
};

}  // namespace pccl::core
