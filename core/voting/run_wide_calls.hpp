// Calls that all members of the run make together: update the topology, ask for pending peers, optimize the topology. A
// peer makes one call of each kind at a time: the same call of a second thread is queued here behind the first. Calls of
// different kinds are cast at once. So two threads that make them in another order than those of another member do not
// wait for each other. The master decides what one of them changes for the other (MasterCore::decide_update).
//
// Invariant: of each kind, the first call is cast, and those behind it are not.
#pragma once

#include "core/links/master_line.hpp"
#include "core/voting/tickets.hpp"

#include <deque>
#include <map>
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
        std::deque<Call>& calls = calls_[kind];
        calls.push_back({ticket, 0});
        if (calls.size() == 1) cast_next(kind);
    }
    // Completes the call that voted with this serial, then begins the next one of its kind. False: that call is over
    // already.
    bool answered(Serial serial, Completion completion) {
        for (auto& [kind, calls] : calls_) {
            if (calls.empty() || calls.front().serial != serial) continue;
            const Ticket ticket = calls.front().ticket;
            calls.pop_front();
            tickets_.complete(ticket, std::move(completion));
            if (!calls.empty()) cast_next(kind);
            return true;
        }
        return false;
    }
    void run_lost(const Cause& cause) {
        for (const auto& [kind, calls] : calls_) {
            for (const Call& call : calls) tickets_.fail(call.ticket, failure_outside(kind), cause);
        }
        calls_.clear();
    }
    std::size_t size() const {
        std::size_t sum = 0;
        for (const auto& [kind, calls] : calls_) sum += calls.size();
        return sum;
    }
    // One call of each kind is cast, those behind it are not.
    void check() const {
        for (const auto& [kind, calls] : calls_) {
            for (const Call& call : calls) ASSERT((call.serial != 0) == (&call == &calls.front()));
        }
    }

private:
    struct Call {
        Ticket ticket = 0;
        Serial serial = 0;  // 0: it waits for the call before it
    };
    void cast_next(proto::VoteKind kind) {
        Call& call = calls_.at(kind).front();
        ASSERT(call.serial == 0);
        proto::Vote vote;
        vote.set_kind(kind);
        call.serial = master_.cast(vote);
    }

    MasterLine& master_;
    Tickets& tickets_;
    std::map<proto::VoteKind, std::deque<Call>> calls_;
};

}  // namespace pccl::core
