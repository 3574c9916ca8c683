// The calls of the application. Most of them cast a vote; the answer to the vote completes the ticket.
#include "core/base/overload.hpp"
#include "core/base/probe.hpp"
#include "core/peer_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

void PeerCore::on_command(const Command& command) {
    std::visit(Overload{
                   [&](const CommandConnect& c) { on_connect(c); },
                   [&](const CommandUpdateTopology& c) { on_run_wide(proto::VOTE_UPDATE_TOPOLOGY, c.ticket); },
                   [&](const CommandArePeersPending& c) { on_run_wide(proto::VOTE_PEERS_PENDING, c.ticket); },
                   [&](const CommandOptimizeTopology& c) { on_run_wide(proto::VOTE_OPTIMIZE_TOPOLOGY, c.ticket); },
                   [&](const CommandLaunch& c) { launches_.launch(c); },
                   [&](const CommandAwait& c) { launches_.await(c); },
                   [&](const CommandReduceMany& c) { launches_.reduce_many(c); },
                   [&](const CommandSync& c) { on_sync(c); },
                   [&](const CommandLeave& c) { on_leave(c); },
               },
               command);
}

void PeerCore::on_connect(const CommandConnect& command) {
    if (session_.in_run() || !leave_tickets_.empty() || waiting_connect_ != 0) {
        tickets_.fail(command.ticket, Result::invalid_usage, "the communicator is connected already");
        return;
    }
    if (!exchange_.reductions().empty() || sync_.running()) {
        // Wait until they are over: a late one could be mistaken for an operation of the next run with the same id.
        waiting_connect_ = command.ticket;
        return;
    }
    connect_ticket_ = command.ticket;
    next_tick_ = turn_.now;
    session_.begin();
}

void PeerCore::on_sync(const CommandSync& command) {
    const auto refuse = [&](Result result, const std::string& message) {
        tickets_.fail(command.ticket, result, message);
    };
    if (state() == State::lost) return refuse(Result::invalid_usage, session_.lost_text());
    if (state() != State::member) return refuse(Result::invalid_usage, not_connected_text);
    if (!launches_.empty()) {
        return refuse(Result::pending_async_ops,
                      "tag " + std::to_string(launches_.first()) + " was launched and not awaited; await it first");
    }
    if (sync_.running())
        return refuse(Result::invalid_usage, "another synchronization of this communicator is running");
    const std::uint32_t entries_max = std::min(config_.limits.entries_max, session_.entries_max());
    if (command.entries.size() > entries_max) {
        return refuse(Result::invalid_argument, "the shared state has " + std::to_string(command.entries.size()) +
                                                    " entries, more than the limit of " + std::to_string(entries_max));
    }
    if (command.revision > config_.limits.revision_max) {
        return refuse(Result::invalid_argument,
                      "the shared-state revision " + std::to_string(command.revision) +
                          " is beyond every count of synchronizations; was it decremented at 0?");
    }
    const std::uint32_t key_bytes_max = std::min(config_.limits.key_bytes_max, session_.key_bytes_max());
    if (const std::string why = sync_.begin(command, key_bytes_max); !why.empty())
        refuse(Result::invalid_argument, why);
}

void PeerCore::on_leave(const CommandLeave& command) {
    // finish_leaving() completes all these tickets, when this peer no longer uses the application's memory.
    leave_tickets_.push_back(command.ticket);
    if (leave_tickets_.size() > 1) {
        PROBE(left_while_leaving);
        return;
    }
    if (waiting_connect_ != 0) {
        tickets_.fail(std::exchange(waiting_connect_, 0), Result::master_connection_failed,
                      "the communicator was left while it connected");
    }
    if (command.abort && !session_.in_run()) return;
    if (!exchange_.reductions().empty()) PROBE(left_in_flight);
    session_.say_goodbye();
    if (command.abort)
        membership_over("it was aborted (pcclAbort)", session_.state_outside());
    else
        membership_over("the communicator left the run", State::fresh);
}

void PeerCore::on_run_wide(proto::VoteKind kind, Ticket ticket) {
    const bool changes_topology = kind != proto::VOTE_PEERS_PENDING;
    if (state() == State::lost) {
        PROBE(call_after_loss);
        tickets_.fail(ticket, RunWideCalls::failure_outside(kind), session_.lost_text());
        return;
    }
    if (state() != State::member) {
        tickets_.fail(ticket, Result::invalid_usage, not_connected_text);
        return;
    }
    if (kind == proto::VOTE_OPTIMIZE_TOPOLOGY && tickets_.attributes().global_world < 2) {
        PROBE(optimize_alone);
        tickets_.fail(ticket, Result::invalid_usage,
                      "this peer is alone in the run; wait until others have joined before optimizing");
        return;
    }
    if (changes_topology && !launches_.empty()) {
        tickets_.fail(ticket, Result::pending_async_ops,
                      "tag " + std::to_string(launches_.first()) + " was launched and not awaited; await it first");
        return;
    }
    run_wide_.begin(kind, ticket);
}

void PeerCore::answered(const proto::Answer& answer) {
    switch (answer.kind_case()) {
    case proto::Answer::kTopology: answer_topology(answer.topology()); break;
    case proto::Answer::kPending: answer_pending(answer.pending()); break;
    case proto::Answer::kStart: exchange_.start_answered(answer.start()); break;
    case proto::Answer::kOutcome:
        if (const char* why = exchange_.reductions().outcome_answered(answer.outcome()))
            membership_over(why, State::lost);
        break;
    case proto::Answer::kSync:
        session_.close_vote(answer.sync().serial());
        if (answer.sync().final() || answer.sync().again()) session_.close_end_votes(answer.sync().sync());
        sync_.answered(answer.sync());
        break;
    case proto::Answer::kOptimize: answer_optimize(answer.optimize()); break;
    default: break;
    }
}

void PeerCore::answer_topology(const proto::TopologyAnswer& answer) {
    Completion completion;
    read(answer.view(), completion);
    if (answer.serial() == 0) {
        if (state() != State::connecting) return;
        session_.admitted();
        ++counted_.connects;
        tickets_.complete(std::exchange(connect_ticket_, 0), completion);
        return;
    }
    session_.close_vote(answer.serial());
    completion.result = result_of(answer.result());
    completion.message = answer.reason();
    const bool success = completion.result == Result::success;
    if (run_wide_.answered(answer.serial(), std::move(completion)) && success) ++counted_.topology_updates;
}

void PeerCore::answer_pending(const proto::PendingAnswer& answer) {
    session_.close_vote(answer.serial());
    Completion completion;
    read(answer.view(), completion);
    completion.pending = answer.pending();
    completion.result = result_of(answer.result());
    completion.message = answer.reason();
    run_wide_.answered(answer.serial(), std::move(completion));
}

void PeerCore::answer_optimize(const proto::OptimizeAnswer& answer) {
    session_.close_vote(answer.serial());
    Completion completion;
    if (answer.result() != 0) completion = failure(result_of(answer.result()), answer.reason());
    read(answer.view(), completion);
    run_wide_.answered(answer.serial(), std::move(completion));
}

}  // namespace pccl::core
