// Calls that all members of the run make together: the update of the topology, the question for pending peers, the optimization.
// Those of one peer go one after the other: a second thread's call waits here for the first.
#pragma once

#include "core/links/master_line.hpp"
#include "core/voting/tickets.hpp"

#include <deque>
#include <string>

namespace pccl::core {

class RunWideCalls {
public:
    RunWideCalls(MasterLine& master, Tickets& tickets) : master_(master), tickets_(tickets) {}

    // What such a call fails with once this peer is outside of the run.
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
    // The call that voted with this serial. False: it is over. The next one begins when it is completed.
    bool answered(Serial serial, Completion completion) {
        if (calls_.empty() || calls_.front().serial != serial) return false;
        const Ticket ticket = calls_.front().ticket;
        calls_.pop_front();
        tickets_.complete(ticket, std::move(completion));
        if (!calls_.empty()) cast_next();
        return true;
    }
    void run_lost(const std::string& reason) {
        for (const Call& call : calls_) tickets_.fail(call.ticket, failure_outside(call.kind), reason);
        calls_.clear();
    }
    std::size_t size() const { return calls_.size(); }

private:
    struct Call {
        proto::VoteKind kind = proto::VOTE_UPDATE_TOPOLOGY;
        Ticket ticket = 0;
        Serial serial = 0;  // 0: waits for the one before it
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
