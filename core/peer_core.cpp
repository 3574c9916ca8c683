#include "core/peer_core.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/overload.hpp"
#include "core/base/probe.hpp"
#include "core/numeric/quantize.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

PeerCore::PeerCore(const PeerConfig& config)
    : config_(config), turn_(config_.limits, config_.timeouts, config.seed), computes_(turn_), memory_(turn_),
      links_(turn_, who_, *this), session_(turn_, config_, links_, who_, *this), tickets_(turn_),
      run_wide_(session_, tickets_), launches_(turn_, who_, session_, tickets_, counted_, *this),
      probe_(turn_, links_, memory_, who_, session_),
      exchange_({turn_, config_, who_, computes_, memory_, links_, session_, launches_, probe_, sync_}),
      sync_(turn_, links_, computes_, memory_, exchange_.stripes(), session_, tickets_, who_, *this) {
    ASSERT(impossible(config_.limits) == nullptr);
    ASSERT(config_.limits.slice_bytes >= 8 && config_.limits.slice_bytes <= config_.limits.payload_bytes_max);
    ASSERT(config_.limits.payload_bytes_max >= numeric::quantized_bytes_least);
    ASSERT(config_.limits.control_bytes_max >= control_bytes_least);
    ASSERT(config_.limits.chunk_bytes >= 1 && config_.limits.chunk_bytes <= config_.limits.payload_bytes_max);
}

Status PeerCore::handle(Instant now, const Event& event, Effects& out) {
    if (now < turn_.now) return Status::misuse;
    turn_.begin(now, out);
    const bool active = session_.in_run();
    // While the peer is in a run a tick is always due, so in a longer gap this machine did not run. The clocks leave
    // that time out. They do not restart: otherwise a machine that is late again and again would never detect a
    // time-out.
    const Duration slept = now - last_event_ - config_.timeouts.tick();
    if (active && slept > config_.timeouts.hiccup()) {
        // All other ends look silent only because this machine slept.
        PROBE(peer_slept);
        links_.slept(slept);
        session_.slept(slept);
        sync_.slept(slept);
        exchange_.leave_out(slept);
        turn_.log(LogLevel::warn,
                  formatted("this peer did not run for {} ms, which count as nobody's silence", slept / millisecond));
    }
    last_event_ = now;
    const bool ours = dispatch(event);
    if (!ours) {
        turn_.end();
        return Status::misuse;
    }
    if (waiting_connect_ != 0 && exchange_.reductions().empty() && !sync_.running())
        on_connect(CommandConnect{std::exchange(waiting_connect_, 0), waiting_identity_});
    if (turn_.now >= next_tick_) tick();
    if (turn_.now >= exchange_.next_dial()) exchange_.dial();
    if (turn_.now >= session_.next_dial()) session_.dial();
    if (turn_.now >= exchange_.next_hedge()) exchange_.hedge();
    finish_leaving();
    turn_.end();
    return Status::ok;
}

// False: a peer never gets such an event.
bool PeerCore::dispatch(const Event& event) {
    const auto on_link = [&](LinkId id, const auto& then) {
        if (const auto link = links_.find(id); link != links_.end()) then(link->second);
        return true;
    };
    return std::visit(Overload{
                          [&](const ControlArrived& e) {
                              return on_link(e.link, [&](Link& link) {
                                  link.last_received = turn_.now;
                                  if (link.purpose == Purpose::master)
                                      session_.message_arrived(e);
                                  else if (link.purpose == Purpose::test_out)
                                      probe_.message_arrived(e.link, e);
                                  else
                                      exchange_.on_link_message(e.link, e);
                              });
                          },
                          [&](const LinkActivity& e) {
                              return on_link(e.link, [&](Link& link) {
                                  link.last_received = turn_.now;
                                  exchange_.payload_moved(e.link, link, e.payload);
                              });
                          },
                          [&](const LinkOpened& e) {
                              return on_link(e.link, [&](Link& link) {
                                  const Duration round_trip = turn_.now - link.opened;
                                  link.last_received = link.last_beat = link.opened = turn_.now;
                                  link.stage = Stage::greeting;
                                  if (link.purpose == Purpose::master)
                                      session_.opened(e.local, round_trip);
                                  else if (link.purpose == Purpose::test_out)
                                      probe_.opened(e.link);
                                  else
                                      exchange_.opened(e.link, link);
                              });
                          },
                          [&](const FlowArrived& e) { return exchange_.on_flow(e), true; },
                          [&](const BulkArrived& e) { return exchange_.on_bulk(e), true; },
                          [&](const PayloadLanded& e) { return exchange_.on_landed(e), true; },
                          [&](const PayloadSent& e) { return exchange_.on_sent(e), true; },
                          [&](const ComputeDone& e) { return on_compute(e), true; },
                          [&](const LinkRefused& e) { return links_.lost(e.link, e.reason, false), true; },
                          [&](const LinkClosed& e) { return links_.lost(e.link, e.reason, true), true; },
                          [&](const LinkAccepted& e) { return accepted(e), true; },
                          [&](const FrameRefused& e) { return frame_refused(e), true; },
                          [&](const BufferAllocated& e) { return on_memory(e), true; },
                          [&](const Command& e) { return on_command(e), true; },
                          [&](const Timer&) { return true; },
                          [&](const RecordPersisted&) { return false; },
                          [&](const RecordFailed&) { return false; },
                          [&](const PeerRevoked&) { return false; },
                      },
                      event);
}

void PeerCore::accepted(const LinkAccepted& event) {
    if (!session_.in_run()) {
        PROBE(stranger_at_a_closed_door);
        links_.count_refused();
        turn_.add(CloseLink{event.link, false});
        return;
    }
    links_.accept(event, exchange_.knows_host(event.remote));
}

void PeerCore::frame_refused(const FrameRefused& event) {
    links_.count_refused();
    if (!links_.contains(event.link)) return;
    std::string why = wire::to_text(event.error);
    if (event.error == wire::WireError::bad_version) {
        why += formatted(": version {} there, {} here", event.version, +wire::protocol_version);
    }
    turn_.log(LogLevel::warn, "closed a connection: " + why);
    links_.drop(event.link, why);
}

Instant PeerCore::next_deadline() const {
    if (!session_.in_run()) return never;
    return std::min({next_tick_, exchange_.next_hedge(), exchange_.next_dial(), session_.next_dial()});
}

void PeerCore::tick() {
    if (!session_.in_run()) {
        next_tick_ = never;
        return;
    }
    next_tick_ = turn_.now + config_.timeouts.tick();
    exchange_.forget_predecessors();
    const proto::LinkMessage heartbeat = exchange_.heartbeat();
    const auto dead = links_.examine(session_.dial_longest(), [&](LinkId id, const Link& link) {
        if (link.purpose == Purpose::master)
            session_.beat(id);
        else
            links_.send(id, heartbeat);
    });
    for (const auto& [id, why] : dead) links_.drop(id, why);
    if (!session_.in_run() || session_.gave_up()) return;
    exchange_.tick();
    launches_.launch_delayed();
    sync_.tick();
    probe_.tick();
}

void PeerCore::link_lost(LinkId id, const Link& link, const std::string& reason, bool by_remote) {
    if (link.purpose == Purpose::master) return session_.lost(id, reason, by_remote);
    if (link.purpose == Purpose::test_out || link.purpose == Purpose::test_in) return probe_.lost(id, link);
    exchange_.link_lost(id, link, reason);
    sync_.link_lost(id, link.remote);
}

// ---- the master ----------------------------------------------------------------------------------------------------

void PeerCore::welcomed(const proto::Welcome& welcome, const Secret& link_key) {
    exchange_.welcomed(link_key);
    if (welcome.peer_timeout_ms() > 0)
        config_.timeouts.peer = static_cast<Duration>(welcome.peer_timeout_ms()) * millisecond;
}

void PeerCore::master_message(const proto::MasterMessage& message, std::uint32_t bytes_most) {
    switch (message.kind_case()) {
    case proto::MasterMessage::kPlan: exchange_.on_plan(message.plan()); break;
    case proto::MasterMessage::kPageRequest:
        sync_.send_keys(message.page_request().serial(), message.page_request().first(), bytes_most);
        break;
    case proto::MasterMessage::kTest: probe_.begin(message.test()); break;
    case proto::MasterMessage::kSyncHolders: sync_.holders_named(message.sync_holders()); break;
    case proto::MasterMessage::kRevoked:
        if (Uuid peer; read(message.revoked(), peer) && peer != uuid()) links_.revoke(peer);
        break;
    case proto::MasterMessage::kUnfinished: exchange_.successor_unfinished(message.unfinished()); break;
    default: ASSERT(false);
    }
}

void PeerCore::master_back(Duration away) {
    exchange_.leave_out(away);
    sync_.slept(away);
}

// Ends the membership, whatever the reason. Closes all links, then fails every waiting call and leaves its inputs as
// they were.
void PeerCore::membership_over(const Cause& cause, State next) {
    if (next == State::lost) {
        // Info for an abort, because the application asked for it. A warning for any other loss.
        turn_.log(!leave_tickets_.empty() ? LogLevel::info : LogLevel::warn, "left the run: " + to_text(cause), true);
        // Count lost memberships only: a failed connect is no second loss.
        if (state() == State::member) ++counted_.losses;
    }
    session_.end(next, cause);
    probe_.forget();
    for (const auto& [id, link] : links_) turn_.add(CloseLink{id, next == State::fresh || !leave_tickets_.empty()});
    exchange_.membership_over(links_.take_all());
    tickets_.forget_sizes();

    if (connect_ticket_ != 0) {
        PROBE(lost_in_connect);
        // The master is there. Another attempt would end in the same way.
        const Result result =
            cause.has(CauseKind::no_way_through) ? Result::rank_connection_failed : Result::master_connection_failed;
        tickets_.fail(std::exchange(connect_ticket_, 0), result, cause);
    }
    run_wide_.run_lost(cause);
    launches_.run_lost(cause);
    exchange_.reductions().fail_all(cause);
    launches_.conclude_unstarted(cause);
    sync_.run_lost(cause);
}

void PeerCore::finish_leaving() {
    if (leave_tickets_.empty() || !exchange_.reductions().empty() || sync_.running()) return;
    const std::vector<Ticket> tickets = std::move(leave_tickets_);
    leave_tickets_.clear();
    launches_.clear();
    for (const Ticket ticket : tickets) tickets_.complete(ticket, Completion{});
}

void PeerCore::on_compute(const ComputeDone& event) {
    session_.computed();
    std::visit(Overload{
                   [&](const EntryHash& part) { sync_.done(part, event); },
                   [&](const ChunkCheck& check) { sync_.done(check, event); },
                   [&](const StateCopy& copy) { sync_.done(copy, event); },
                   [&](const auto& slice) { exchange_.reductions().done(slice, event); },
               },
               computes_.answered(event.id));
}

void PeerCore::on_memory(const BufferAllocated& event) {
    std::visit(Overload{
                   [&](const StagingMemory&) { sync_.memory_came(event); },
                   [&](const TestMemory&) { probe_.memory_came(event); },
                   [&](const auto& owner) { exchange_.memory_came(owner, event); },
               },
               memory_.answered(event.buffer));
}

// --- calls of the application; the answer to a vote completes the ticket -----------------------------------------------

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
        tickets_.fail(command.ticket, Result::invalid_usage, make_cause<CauseKind::connected_already>());
        return;
    }
    if (!exchange_.reductions().empty() || sync_.running()) {
        // Wait until they are over: a late one could be mistaken for an operation of the next run with the same id.
        waiting_connect_ = command.ticket;
        waiting_identity_ = command.identity;
        return;
    }
    connect_ticket_ = command.ticket;
    next_tick_ = turn_.now;
    links_.forget_revoked();
    session_.begin(command.identity);
}

void PeerCore::on_sync(const CommandSync& command) {
    const auto refuse = [&](Result result, const Cause& cause) { tickets_.fail(command.ticket, result, cause); };
    if (state() == State::lost) return refuse(Result::invalid_usage, session_.lost_cause());
    if (state() != State::member) return refuse(Result::invalid_usage, make_cause<CauseKind::not_connected>());
    if (!launches_.empty()) {
        return refuse(Result::pending_async_ops, make_cause<CauseKind::tag_open>(launches_.first()));
    }
    if (sync_.running()) return refuse(Result::invalid_usage, make_cause<CauseKind::sync_runs_already>());
    const std::uint32_t entries_max = std::min(config_.limits.entries_max, session_.entries_max());
    if (command.entries.size() > entries_max) {
        return refuse(Result::invalid_argument,
                      make_cause<CauseKind::too_many_entries>(command.entries.size(), entries_max));
    }
    if (command.revision > config_.limits.revision_max) {
        return refuse(Result::invalid_argument, make_cause<CauseKind::revision_too_large>(command.revision));
    }
    const std::uint32_t key_bytes_max = std::min(config_.limits.key_bytes_max, session_.key_bytes_max());
    if (const Cause why = sync_.begin(command, key_bytes_max); !why.empty()) refuse(Result::invalid_argument, why);
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
                      make_cause<CauseKind::left_while_connecting>());
    }
    if (command.abort && !session_.in_run()) return;
    if (!exchange_.reductions().empty()) PROBE(left_in_flight);
    session_.say_goodbye();
    if (command.abort)
        membership_over(make_cause<CauseKind::aborted>(), session_.state_outside());
    else
        membership_over(make_cause<CauseKind::left_on_purpose>(), State::fresh);
}

void PeerCore::on_run_wide(proto::VoteKind kind, Ticket ticket) {
    const bool changes_topology = kind != proto::VOTE_PEERS_PENDING;
    if (state() == State::lost) {
        PROBE(call_after_loss);
        tickets_.fail(ticket, RunWideCalls::failure_outside(kind), session_.lost_cause());
        return;
    }
    if (state() != State::member) {
        tickets_.fail(ticket, Result::invalid_usage, make_cause<CauseKind::not_connected>());
        return;
    }
    if (kind == proto::VOTE_OPTIMIZE_TOPOLOGY && tickets_.attributes().global_world < 2) {
        PROBE(optimize_alone);
        tickets_.fail(ticket, Result::invalid_usage, make_cause<CauseKind::alone_in_run>());
        return;
    }
    if (changes_topology && !launches_.empty()) {
        tickets_.fail(ticket, Result::pending_async_ops, make_cause<CauseKind::tag_open>(launches_.first()));
        return;
    }
    run_wide_.begin(kind, ticket);
}

void PeerCore::answered(const proto::Answer& answer) {
    switch (answer.kind_case()) {
    case proto::Answer::kTopology:
        if (answer.serial() == 0) return admitted(answer);
        [[fallthrough]];
    case proto::Answer::kPending:
    case proto::Answer::kOptimize: return answered_run_wide(answer);
    case proto::Answer::kStart:
        if (const Cause why = exchange_.start_answered(answer); !why.empty()) membership_over(why, State::lost);
        return;
    case proto::Answer::kOutcome:
        if (const Cause why = exchange_.reductions().outcome_answered(answer); !why.empty())
            membership_over(why, State::lost);
        return;
    case proto::Answer::kSync:
        session_.close_vote(answer.serial());
        if (answer.sync().final() || answer.sync().again()) session_.close_end_votes(answer.sync().sync());
        return sync_.answered(answer);
    default: return;
    }
}

void PeerCore::admitted(const proto::Answer& answer) {
    if (state() != State::connecting) return;
    session_.admitted();
    ++counted_.connects;
    tickets_.complete(std::exchange(connect_ticket_, 0), completion_of(answer));
}

void PeerCore::answered_run_wide(const proto::Answer& answer) {
    session_.close_vote(answer.serial());
    exchange_.reductions().forget_place_if_changed(answer.view().epoch());
    if (answer.kind_case() == proto::Answer::kOptimize) exchange_.reductions().forget_place();
    Completion completion = completion_of(answer);
    completion.pending = answer.pending();
    const bool updated = answer.kind_case() == proto::Answer::kTopology && completion.result == Result::success;
    if (run_wide_.answered(answer.serial(), std::move(completion)) && updated) ++counted_.topology_updates;
}

}  // namespace pccl::core
