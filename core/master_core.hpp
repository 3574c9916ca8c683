// The protocol of the master. MasterCore owns the parts, routes each event to its part, advances the clocks of all
// parts, and examines what an event has changed until no further decision follows.
//
// Parts: the log of decisions (core/journal), connections with peers, members, hellos, votes and patience
// (core/membership), rings, newcomers, dial plans and better rings (core/topology), operations (core/all_reduce),
// synchronizations (core/state_sync).
// Files: master_core.cpp (events, clocks, ballots), master_observe.cpp (for spectators and tests). What the parts report
// to each other is in master_reports.hpp.
// Invariants: the decision of a ballot is appended exactly when the ballot is taken out of the box. During a grace, the
// only decision on a ballot is to abort an operation that a member voted against.
#pragma once

#include "core/all_reduce/operations.hpp"
#include "core/all_reduce/unfinished.hpp"
#include "core/base/secret.hpp"
#include "core/events.hpp"
#include "core/journal/decision_log.hpp"
#include "core/master_machine.hpp"
#include "core/master_reports.hpp"
#include "core/master_status.hpp"
#include "core/membership/admissions.hpp"
#include "core/membership/control_links.hpp"
#include "core/membership/examinations.hpp"
#include "core/membership/reception.hpp"
#include "core/membership/registry.hpp"
#include "core/membership/tallies.hpp"
#include "core/membership/vote_check.hpp"
#include "core/membership/vote_patience.hpp"
#include "core/state_sync/sync_rounds.hpp"
#include "core/topology/dial_plans.hpp"
#include "core/topology/direct_edges.hpp"
#include "core/topology/holder_edges.hpp"
#include "core/topology/hosts.hpp"
#include "core/topology/joiners.hpp"
#include "core/topology/ring_optimizer.hpp"
#include "core/topology/rings.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <map>
#include <optional>
#include <span>
#include <string>

namespace pccl::core {

class MasterCore {
public:
    explicit MasterCore(const MasterConfig& config);
    bool start(Instant now, std::span<const std::string> journal, Effects& out);
    Status handle(Instant now, const Event& event, Effects& out);
    Instant next_deadline() const;
    void shut_down(Instant now, Effects& out);
    // master_observe.cpp
    std::uint64_t state_hash() const;
    std::uint64_t abstract_state() const;
    std::string promised() const { return state_.promised(); }
    std::string explain() const;
    std::string leftovers() const;
    void check() const;
    MasterStatus status() const;

private:
    using Link = ControlLinks::Link;

    // events and clocks
    bool dispatch(const Event& event);
    void accepted(const LinkAccepted& event);
    void revoked(const Uuid& peer);
    void control_arrived(const ControlArrived& event);
    void frame_refused(const FrameRefused& event);
    void from_peer(LinkId id, const proto::PeerMessage& message);
    void asked_for_holders(const Uuid& member, OpId sync);
    void from_member(LinkId id, const Uuid& member, const proto::PeerMessage& message);
    void written(std::uint64_t sequence);
    void stop(const Cause& cause);
    bool timer_runs() const;
    void tick();
    void slept(Duration time);
    void missed_a_moment(Duration time);
    void warn_of_disk(const std::string& text);

    // ballots
    void settle();
    void abort_refused();
    void look_at_topology();
    void examine_everything();
    void examine(const BallotKey& key);
    void decide_update(const Ballot& update);

    // for spectators (master_observe.cpp)
    std::optional<Tag> tag_of(const BallotKey& key) const;
    void add_peers(MasterStatus& status) const;
    void add_gangs(MasterStatus& status) const;
    void add_votes(MasterStatus& status) const;
    MasterStatus::Group status_of(GroupId id, const GroupState& group) const;

    MasterConfig config_;
    Turn turn_;
    MasterReports reports_;
    SecretSource secrets_;
    Agenda agenda_;
    BallotBox ballots_;
    DecisionLog decisions_;
    const RunState& state_;
    Tallies tallies_;
    ControlLinks links_;
    Rings rings_;
    HolderEdges holder_edges_;
    Joiners joiners_;
    DirectEdges direct_;
    Hosts hosts_;
    DialPlans plans_;
    Registry registry_;
    Reception reception_;
    Examinations examinations_;
    VoteCheck check_;
    VotePatience patience_;
    Admissions admissions_;
    RingOptimizer optimizer_;
    SyncRounds rounds_;
    Operations operations_;
    Unfinished unfinished_;

    Instant began_ = 0;
    Instant last_event_ = 0;
    Instant next_tick_ = never;
    bool tick_put_off_ = false;        // the next tick was postponed once already
    Instant clocks_anew_at_ = -never;  // when a sleep last restarted all clocks, plus the time slept since
    bool stopped_ = false;
};

}  // namespace pccl::core
