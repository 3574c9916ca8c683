// The master's search for better rings. When all members have voted to optimize, the master orders measurements of the
// edges whose bandwidth is not known, with each peer in one test at a time. Then it searches a ring for each group. A
// better ring is installed by a decision, like any other change of a ring.
//
// This part owns the bandwidths, the running survey and the searches. They are not journalled: after a restart of the
// master the members vote again and the survey begins anew. Other parts decide whether an edge is up.
//
// Invariants: a survey runs only while the ballot that asked for it is complete. Each peer takes part in at most one
// test. In one event, the search for a vote takes at most about Limits::search_steps steps.
#pragma once

#include "core/journal/decision_log.hpp"
#include "core/links/roster.hpp"
#include "core/topology/bandwidth.hpp"
#include "core/topology/edge_table.hpp"
#include "core/topology/tour.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace pccl::core {

class RingOptimizer {
public:
    RingOptimizer(Turn& turn, DecisionLog& decisions, BallotBox& ballots, const EdgeTable& edges, Roster& roster,
                  Agenda& agenda)
        : turn_(turn), decisions_(decisions), state_(decisions.state()), ballots_(ballots), edges_(edges),
          roster_(roster), agenda_(agenda) {}

    // Called before anything is examined: each event has its own budget of search steps.
    void begin_event();
    // Called when the ballot, or something that it waits for, has changed.
    void examine();
    void measured(const Uuid& from, const proto::Measured& measured);
    // Ends the tests of a member that is gone or has lost its link to the master: they will give no result.
    void abandon_tests(const Uuid& member, bool as_sender_only);
    void removed(const Uuid& member, GroupId group);
    void forget_run();
    // Called on ticks. Searches only while no survey runs. The next vote installs a ring that was found here.
    void search_in_background();
    void slept(Duration time);
    // How much each member of the group's ring should finish (shares.hpp), by position. `host_ends`: in a hierarchical
    // all-reduce, the only ones that finish something; else empty. Empty: equal parts. Changes only with the ring, with
    // the ends and at the end of a survey.
    const std::vector<std::uint32_t>& shares_of(GroupId group, const std::vector<std::uint32_t>& host_ends);

    // ---- for spectators and tests
    bool surveys() const { return survey_.has_value(); }
    // All who voted for the survey are gone. The next look at it ends it.
    bool outlives_its_ballot() const;
    std::size_t tests() const { return survey_ ? survey_->tests.size() : 0; }
    // When the search continues; never: it does not wait for a time.
    Instant next_piece() const { return survey_ ? survey_->next_piece : never; }
    const BandwidthTable& bandwidths() const { return bandwidths_; }
    bool searches() const { return !searches_.empty(); }
    std::size_t searches_of_no_group() const;
    std::size_t shares_of_no_group() const;

private:
    struct Survey {
        Survey() {}                                // else clang 14 cannot construct one before the class is complete
        using Seat = std::pair<const Uuid, bool>;  // true: the member is in no test
        struct Edge {
            Seat* from = nullptr;
            Seat* to = nullptr;
            bool tried = false;
        };
        struct Test {
            Edge* edge = nullptr;
            Instant began = 0;
        };
        Instant ends = 0;
        std::map<Uuid, bool> free;
        std::vector<Edge> todo;  // complete before the first test, because tests point into it
        std::size_t next = 0;    // all edges before this one were tried
        std::map<std::uint64_t, Test> tests;
        std::map<GroupId, std::uint64_t> searching;  // steps of the group's search before this vote
        Instant next_piece = never;
    };
    struct RingSearch {
        std::vector<Uuid> nodes;
        TourSearch tour;
    };

    struct Shares {
        std::vector<Uuid> ring;
        std::vector<std::uint32_t> host_ends;
        std::uint64_t survey = 0;
        std::vector<std::uint32_t> shares;
    };

    void begin_survey();
    void start_tests();
    void end_test(std::uint64_t id);
    RingSearch& search_of(GroupId id);
    bool search_rings();
    void adopt_rings();

    Turn& turn_;
    DecisionLog& decisions_;
    const RunState& state_;
    BallotBox& ballots_;
    const EdgeTable& edges_;
    Roster& roster_;
    Agenda& agenda_;
    BandwidthTable bandwidths_;
    std::optional<Survey> survey_;
    std::map<GroupId, RingSearch> searches_;
    std::map<GroupId, Shares> shares_;  // of the rings that asked last
    std::uint64_t surveys_ended_ = 0;
    std::uint64_t piece_left_ = 0;  // search steps that this event may still take
};

}  // namespace pccl::core
