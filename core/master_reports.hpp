// What the parts of a master report: it passes each report to the parts that it concerns.
//
// A part knows only its own Owner, and no other part hears of what happens in it but through here. So this is the list
// of all effects that parts have on each other beside the calls that MasterCore makes.
//
// It owns nothing and decides one thing: the outcome of a ballot that is given up for lack of patience.
#pragma once

#include "core/all_reduce/operations.hpp"
#include "core/all_reduce/unfinished.hpp"
#include "core/journal/decision_log.hpp"
#include "core/membership/control_links.hpp"
#include "core/membership/registry.hpp"
#include "core/membership/tallies.hpp"
#include "core/membership/vote_patience.hpp"
#include "core/state_sync/sync_rounds.hpp"
#include "core/topology/direct_edges.hpp"
#include "core/topology/holder_edges.hpp"
#include "core/topology/hosts.hpp"
#include "core/topology/ring_optimizer.hpp"
#include "core/topology/rings.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

namespace pccl::core {

class MasterReports final : public DecisionLog::Owner,
                            public ControlLinks::Owner,
                            public Registry::Owner,
                            public Rings::Owner,
                            public VotePatience::Owner {
public:
    // All of them outlive it. They may be made after it: it uses none before the first report.
    struct Parts {
        const Turn& turn;
        Agenda& agenda;
        BallotBox& ballots;
        DecisionLog& decisions;
        Tallies& tallies;
        Rings& rings;
        HolderEdges& holder_edges;
        DirectEdges& direct;
        Hosts& hosts;
        Registry& registry;
        VotePatience& patience;
        RingOptimizer& optimizer;
        SyncRounds& rounds;
        Operations& operations;
        Unfinished& unfinished;
    };
    explicit MasterReports(const Parts& parts) : to_(parts) {}

    // ---- the log of decisions
    void recording(const proto::Record& record) override { to_.tallies.recording(record); }
    void decided(const proto::Decision& decision) override;
    // ---- connections
    void link_lost(LinkId id, const ControlLinks::Link& link) override { to_.registry.link_lost(id, link); }
    void answer_leaves(const Uuid& peer, std::uint64_t message) override { to_.patience.answer_leaves(peer, message); }
    void acknowledged(const Uuid& peer, std::uint64_t messages) override { to_.patience.acknowledged(peer, messages); }
    void held_welcome_leaves(const Uuid& peer, Duration waited) override;
    void held_plan_leaves(const Uuid& peer, Duration waited) override;
    void heard_again(const Uuid& peer) override { to_.rings.heard_again(peer); }
    // ---- members
    void member_admitted(const Uuid& member) override { to_.patience.admitted(member); }
    void member_taken_up(const Uuid& member) override { to_.patience.taken_up(member); }
    void member_away(const Uuid& member) override { to_.optimizer.abandon_tests(member, true); }
    void member_resumes(const Uuid& member) override;
    void member_removed(const Uuid& member, GroupId group) override;
    void grace_over() override { to_.patience.restart_clocks(); }
    void run_over() override;
    // ---- rings and votes
    void edge_of_operation_failed(OpId id, const Cause& cause) override;
    void give_up(const BallotKey& key, const Cause& cause) override;

private:
    Parts to_;
};

}  // namespace pccl::core
