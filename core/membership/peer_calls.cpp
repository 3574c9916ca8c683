// The calls of the application: each becomes a vote, and its ticket is completed by the answer.
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"
#include "core/numeric/quantize.hpp"
#include "core/wire/convert.hpp"

#include <utility>

namespace pccl::core {

void PeerCore::on_command(const Command& command) {
    if (const auto* c = std::get_if<CommandConnect>(&command))
        on_connect(*c);
    else if (const auto* c = std::get_if<CommandUpdateTopology>(&command))
        on_run_wide(proto::VOTE_UPDATE_TOPOLOGY, c->ticket);
    else if (const auto* c = std::get_if<CommandArePeersPending>(&command))
        on_run_wide(proto::VOTE_PEERS_PENDING, c->ticket);
    else if (const auto* c = std::get_if<CommandLaunch>(&command))
        on_launch(*c);
    else if (const auto* c = std::get_if<CommandAwait>(&command))
        on_await(*c);
    else if (const auto* c = std::get_if<CommandSync>(&command))
        on_sync(*c);
    else if (const auto* c = std::get_if<CommandLeave>(&command))
        on_leave(*c);
    else if (const auto* c = std::get_if<CommandReduceMany>(&command))
        on_reduce_many(*c);
    else if (const auto* c = std::get_if<CommandOptimizeTopology>(&command))
        on_run_wide(proto::VOTE_OPTIMIZE_TOPOLOGY, c->ticket);
}

void PeerCore::on_connect(const CommandConnect& command) {
    if (session_.in_run() || !leave_tickets_.empty() || waiting_connect_ != 0) {
        complete(command.ticket, failure(Result::invalid_usage, "the communicator is connected already"));
        return;
    }
    if (!ops_.empty() || sync_.running()) {
        // What ends late must not meet an operation of the next run with the same number.
        waiting_connect_ = command.ticket;
        return;
    }
    connect_ticket_ = command.ticket;
    next_tick_ = turn_.now;
    session_.begin();
}

void PeerCore::on_sync(const CommandSync& command) {
    const auto refuse = [&](Result result, const std::string& message) {
        complete(command.ticket, failure(result, message));
    };
    if (state() == State::lost) return refuse(Result::invalid_usage, lost_text());
    if (state() != State::member)
        return refuse(Result::invalid_usage, "the communicator is not connected; call pcclConnect first");
    if (!launches_.empty()) {
        return refuse(Result::pending_async_ops, "tag " + std::to_string(launches_.begin()->first) +
                                                     " was launched and not awaited; await it first");
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
    // Each waits until nothing of this peer uses its memory any more.
    leave_tickets_.push_back(command.ticket);
    if (leave_tickets_.size() > 1) {
        PROBE(left_while_leaving);
        return;
    }
    if (waiting_connect_ != 0) {
        complete(std::exchange(waiting_connect_, 0),
                 failure(Result::master_connection_failed, "the communicator was left while it connected"));
    }
    if (command.abort && !session_.in_run()) return;
    if (!ops_.empty()) PROBE(left_in_flight);
    session_.say_goodbye();
    if (command.abort)
        membership_over("it was aborted (pcclAbort)", session_.state_outside());
    else
        membership_over("the communicator left the run", State::fresh);
}

// What a run-wide call fails with once this peer is outside of the run.
Result PeerCore::run_wide_failure(proto::VoteKind kind) {
    switch (kind) {
    case proto::VOTE_UPDATE_TOPOLOGY: return Result::update_topology_failed;
    case proto::VOTE_OPTIMIZE_TOPOLOGY: return Result::topology_optimization_failed;
    default: return Result::invalid_usage;
    }
}

void PeerCore::on_run_wide(proto::VoteKind kind, Ticket ticket) {
    const bool changes_topology = kind != proto::VOTE_PEERS_PENDING;
    if (state() == State::lost) {
        PROBE(call_after_loss);
        complete(ticket, failure(run_wide_failure(kind), lost_text()));
        return;
    }
    if (state() != State::member) {
        complete(ticket, failure(Result::invalid_usage, "the communicator is not connected; call pcclConnect first"));
        return;
    }
    if (kind == proto::VOTE_OPTIMIZE_TOPOLOGY && view_.attributes.global_world < 2) {
        PROBE(optimize_alone);
        complete(ticket, failure(Result::invalid_usage,
                                 "this peer is alone in the run; wait until others have joined before optimizing"));
        return;
    }
    if (changes_topology && !launches_.empty()) {
        complete(ticket, failure(Result::pending_async_ops, "tag " + std::to_string(launches_.begin()->first) +
                                                                " was launched and not awaited; await it first"));
        return;
    }
    run_wide_.push_back(RunWide{kind, ticket, 0});
    if (run_wide_.size() == 1) cast_next_run_wide();
}

// Run-wide votes of one peer go one after the other: a second thread's call waits here for the first.
void PeerCore::cast_next_run_wide() {
    if (run_wide_.empty() || state() != State::member) return;
    RunWide& call = run_wide_.front();
    ASSERT(call.serial == 0);
    proto::Vote vote;
    vote.set_kind(call.kind);
    call.serial = session_.cast(vote);
}

void PeerCore::answered(const proto::Answer& answer) {
    switch (answer.kind_case()) {
    case proto::Answer::kTopology: answer_topology(answer.topology()); break;
    case proto::Answer::kPending: answer_pending(answer.pending()); break;
    case proto::Answer::kStart: answer_start(answer.start()); break;
    case proto::Answer::kOutcome: answer_outcome(answer.outcome()); break;
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
        const Ticket ticket = connect_ticket_;
        connect_ticket_ = 0;
        complete(ticket, completion);
        return;
    }
    session_.close_vote(answer.serial());
    if (run_wide_.empty() || run_wide_.front().serial != answer.serial()) return;
    const Ticket ticket = run_wide_.front().ticket;
    run_wide_.pop_front();
    completion.result = result_of(answer.result());
    completion.message = answer.reason();
    if (completion.result == Result::success) ++counted_.topology_updates;
    complete(ticket, completion);
    cast_next_run_wide();
}

void PeerCore::answer_pending(const proto::PendingAnswer& answer) {
    session_.close_vote(answer.serial());
    if (run_wide_.empty() || run_wide_.front().serial != answer.serial()) return;
    const Ticket ticket = run_wide_.front().ticket;
    run_wide_.pop_front();
    Completion completion;
    read(answer.view(), completion);
    completion.pending = answer.pending();
    completion.result = result_of(answer.result());
    completion.message = answer.reason();
    complete(ticket, completion);
    cast_next_run_wide();
}

void PeerCore::answer_optimize(const proto::OptimizeAnswer& answer) {
    session_.close_vote(answer.serial());
    if (run_wide_.empty() || run_wide_.front().serial != answer.serial()) return;
    const Ticket ticket = run_wide_.front().ticket;
    run_wide_.pop_front();
    Completion completion;
    if (answer.result() != 0) completion = failure(result_of(answer.result()), answer.reason());
    read(answer.view(), completion);
    complete(ticket, completion);
    cast_next_run_wide();
}

void PeerCore::on_launch(const CommandLaunch& command) {
    if (const char* why = numeric::why_not_quantizable(command.shape.quantization, command.shape.type)) {
        complete(command.ticket, failure(Result::invalid_argument, why));
        return;
    }
    if (state() == State::fresh || state() == State::connecting) {
        complete(command.ticket,
                 failure(Result::invalid_usage, "the communicator is not connected; call pcclConnect first"));
        return;
    }
    if (launches_.contains(command.tag)) {
        PROBE(tag_twice);
        complete(command.ticket,
                 failure(Result::invalid_argument,
                         "tag " + std::to_string(command.tag) + " is launched already; await it or use another tag"));
        return;
    }
    if (launches_.size() >= config_.limits.tags_max) {
        complete(command.ticket, failure(Result::invalid_usage, "too many tags are launched and not awaited"));
        return;
    }
    if (state() == State::lost || view_.attributes.group_world < 2) {
        PROBE(launch_alone);
        complete(command.ticket,
                 failure(Result::too_few_peers,
                         state() == State::lost ? lost_text() : "the peer group has fewer than two members"));
        return;
    }
    Launch& launch = launches_[command.tag];
    launch.shape = command.shape;
    launch.send = command.send;
    launch.receive = command.receive;
    cast_start(command.tag, launch);
    complete(command.ticket, Completion{});
}

void PeerCore::cast_start(Tag tag, Launch& launch) {
    ++counted_.launches;
    proto::Vote vote;
    vote.set_kind(proto::VOTE_START);
    vote.set_id(tag);
    vote.set_count(launch.shape.count);
    vote.set_type(static_cast<std::uint32_t>(launch.shape.type));
    vote.set_op(static_cast<std::uint32_t>(launch.shape.op));
    vote.set_slice_bytes(config_.limits.slice_bytes);
    if (const Quantization& how = launch.shape.quantization; how.algorithm != QuantizationAlgorithm::none) {
        vote.set_quantization(static_cast<std::uint32_t>(how.algorithm));
        vote.set_quantized_type(static_cast<std::uint32_t>(how.type));
        vote.set_distribution_hint(static_cast<std::uint32_t>(how.hint));
    }
    if (launch.batch != 0) {
        vote.set_batch(launch.batch);
        vote.set_window(batches_.at(launch.batch).window);
        vote.set_refused(given_up_tag(launch));
    }
    launch.op = 0;
    launch.serial = session_.cast(vote);
    launch_by_serial_[launch.serial] = tag;
}

void PeerCore::on_await(const CommandAwait& command) {
    const auto it = launches_.find(command.tag);
    if (it == launches_.end() || it->second.await != 0 || it->second.batch != 0) {
        complete(command.ticket,
                 failure(Result::rank_connection_lost,
                         "tag " + std::to_string(command.tag) + " is not launched, or it is awaited already"));
        return;
    }
    if (it->second.outcome) {
        PROBE(awaited_late);
        Completion completion = std::move(*it->second.outcome);
        launches_.erase(it);
        complete(command.ticket, std::move(completion));
        return;
    }
    it->second.await = command.ticket;
}

void PeerCore::conclude_launch(Tag tag, Serial serial, Completion completion) {
    const auto it = launches_.find(tag);
    ASSERT(it != launches_.end() && it->second.serial == serial && !it->second.outcome);
    const bool was_started = it->second.op != 0;
    // One that waited to be tried again was counted when it failed.
    if (serial != 0)
        ++(completion.result == Result::success ? counted_.committed
           : was_started                        ? counted_.aborted
                                                : counted_.refused);
    counted_.payload_sent += completion.sent_bytes;
    counted_.payload_received += completion.received_bytes;
    if (it->second.batch != 0) return batch_concluded(tag, completion);
    if (it->second.await == 0) {
        it->second.outcome = std::move(completion);
        return;
    }
    const Ticket ticket = it->second.await;
    launches_.erase(it);
    complete(ticket, std::move(completion));
}

void PeerCore::answer_start(const proto::StartAnswer& answer) {
    session_.close_vote(answer.serial());
    const auto by_serial = launch_by_serial_.find(answer.serial());
    const bool live = by_serial != launch_by_serial_.end();
    const auto launch = live ? launches_.find(by_serial->second) : launches_.end();
    if (live) launch_by_serial_.erase(by_serial);
    if (answer.op() == 0) {
        if (!live) return;
        Completion completion = failure(failure_of(answer.result()), answer.reason());
        read(answer.view(), completion);
        batch_told(launch->second, completion);
        conclude_launch(launch->first, launch->second.serial, std::move(completion));
        return;
    }
    highest_op_ = std::max(highest_op_, answer.op());
    settled_ops_ = std::max(settled_ops_, answer.op());
    if (!live || answer.world() < 2 || answer.position() >= answer.world()) {
        // Started for a launch that is not ours any more: the others must not wait for us.
        proto::Vote vote;
        vote.set_kind(proto::VOTE_END);
        vote.set_id(answer.op());
        vote.set_reason("the collective was not launched here");
        session_.cast(vote);
        return;
    }
    batch_started(launch->second);
    begin_operation(answer, launch->second, launch->first);
    forget_dead_early();
}

void PeerCore::answer_outcome(const proto::OutcomeAnswer& answer) {
    session_.close_end_votes(answer.op());
    const auto op = ops_.find(answer.op());
    if (op == ops_.end() || op->second->decided) return;
    if (answer.commit() && op->second->finals != op->second->slices()) {
        membership_over("the master committed a collective that this peer has not finished", State::lost);
        return;
    }
    Completion completion;
    if (!answer.commit()) completion = failure(failure_of(answer.result()), answer.reason());
    read(answer.view(), completion);
    batch_told(launches_.at(op->second->id.tag), completion);
    decide(*op->second, answer.commit(), std::move(completion));
}

}  // namespace pccl::core
