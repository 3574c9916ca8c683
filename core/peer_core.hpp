// The protocol of a peer. PeerCore owns the parts, routes each event to its part, and advances the clocks of all parts.
//
// Parts: the session with the master (core/membership/session.hpp), calls that wait (core/voting), connections
// (core/links), the exchange of slices (core/all_reduce/exchange.hpp), the shared state (core/state_sync/transfer.hpp),
// bandwidth tests (core/topology/bandwidth_probe.hpp).
// Files: peer_core.cpp (events, clocks, calls, the end of the membership), peer_observe.cpp (figures and descriptions).
// Invariant: every ticket is completed exactly once.
#pragma once

#include "core/all_reduce/exchange.hpp"
#include "core/events.hpp"
#include "core/links/link_table.hpp"
#include "core/membership/session.hpp"
#include "core/peer_machine.hpp"
#include "core/requests.hpp"
#include "core/state_sync/transfer.hpp"
#include "core/topology/bandwidth_probe.hpp"
#include "core/turn.hpp"
#include "core/voting/launches.hpp"
#include "core/voting/run_wide_calls.hpp"
#include "core/voting/tickets.hpp"
#include "core/wire/control.pb.h"
#include "core/wire/convert.hpp"

#include <functional>
#include <string>
#include <vector>

namespace pccl::core {

class PeerCore final : private LinkOwner, private Session::Owner, private SyncTransfer::Owner, private Launches::Owner {
public:
    explicit PeerCore(const PeerConfig& config);
    Status handle(Instant now, const Event& event, Effects& out);
    Instant next_deadline() const;
    std::uint64_t state_hash() const;
    std::uint64_t abstract_state() const;
    std::string explain() const;
    std::string leftovers() const;
    void check() const;
    void copy_rest(const std::function<void(const Compute&)>& carry_out) {
        exchange_.reductions().copy_rest(carry_out);
    }
    const Uuid& uuid() const { return who_.uuid; }
    bool in_run() const { return session_.in_run(); }
    Duration peer_timeout() const { return config_.timeouts.peer; }
    PeerStatistics statistics() const;

private:
    using State = Session::State;
    using Purpose = Link::Purpose;
    using Stage = Link::Stage;

    // events and clocks (peer_core.cpp)
    bool dispatch(const Event& event);
    void accepted(const LinkAccepted& event);
    void frame_refused(const FrameRefused& event);
    void tick();
    void link_lost(LinkId id, const Link& link, const std::string& reason, bool by_remote) override;
    void membership_over(const Cause& cause, State next) override;
    State state() const { return session_.state(); }
    void finish_leaving();
    void on_compute(const ComputeDone& event);
    void on_memory(const BufferAllocated& event);

    // messages of the master
    void welcomed(const proto::Welcome& welcome, const Secret& link_key) override;
    void master_message(const proto::MasterMessage& message, std::uint32_t bytes_most) override;
    void answered(const proto::Answer& answer) override;
    void master_away() override { probe_.end(); }  // the master no longer waits for the result of the test
    void master_back(Duration away) override;
    void declare_edges() override { exchange_.stripes().declare(); }
    void start_cast(const Launches::Start& launch) override { exchange_.launched(launch); }
    bool successor_is_near() const override { return exchange_.successor_is_near(); }

    // calls
    void on_command(const Command& command);
    void on_connect(const CommandConnect& command);
    void on_leave(const CommandLeave& command);
    void on_sync(const CommandSync& command);
    void run_contradicts(const Cause& cause) override { membership_over(cause, State::lost); }
    void on_run_wide(proto::VoteKind kind, Ticket ticket);
    void admitted(const proto::Answer& answer);
    void answered_run_wide(const proto::Answer& answer);

    PeerConfig config_;
    Turn turn_;
    PeerStatistics counted_;
    Identity who_;

    Computes computes_;
    Memory memory_;
    LinkTable links_;
    Session session_;
    Tickets tickets_;
    RunWideCalls run_wide_;
    Launches launches_;
    BandwidthProbe probe_;
    Exchange exchange_;
    SyncTransfer sync_;

    Ticket connect_ticket_ = 0;
    Ticket waiting_connect_ = 0;  // a connect that waits until the former membership's calls are over; 0: none
    Uuid waiting_identity_;       // of that connect
    std::vector<Ticket> leave_tickets_;

    Instant last_event_ = 0;
    Instant next_tick_ = never;
};

}  // namespace pccl::core
