// The master's search for better rings. Once everybody has voted to optimize, edges whose bandwidth is not known are measured,
// each peer in one test at a time; then a ring is sought for each group and, where it is better, adopted by a decision like any
// other change of a ring.
//
// It owns the bandwidths, the survey that runs and the searches. They live in memory alone: after a restart of the master the
// votes come again, and it begins anew. Whether an edge is up is not its matter.
//
// Invariants: a survey runs only while the ballot that asked for it is complete. Each peer takes part in at most one test. An
// event does at most Limits::search_steps of the search.
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

    // Before anything is examined: an event has its own piece of the search.
    void begin_event();
    // The ballot changed, or what it waits for.
    void examine();
    void measured(const Uuid& from, const proto::Measured& measured);
    // Tests that a member takes part in will bring nothing: it is gone, or its link to the master is.
    void abandon_tests(const Uuid& member, bool as_sender_only);
    void removed(const Uuid& member, GroupId group);
    void forget_run();
    // On ticks, while nobody waits: what it finds is adopted at the next vote.
    void search_in_background();
    void slept(Duration time);

    // ---- for spectators and tests
    bool surveys() const { return survey_.has_value(); }
    std::size_t tests() const { return survey_ ? survey_->tests.size() : 0; }
    // When the search wants to go on; never: it does not wait for time.
    Instant next_piece() const { return survey_ ? survey_->next_piece : never; }
    const BandwidthTable& bandwidths() const { return bandwidths_; }
    bool searches() const { return !searches_.empty(); }
    std::size_t searches_of_no_group() const;

private:
    struct Survey {
        Survey() {}                                // clang 14 cannot make one before the class is whole otherwise
        using Seat = std::pair<const Uuid, bool>;  // whether the member is in no test
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
        std::vector<Edge> todo;  // complete before the first test
        std::size_t next = 0;    // all before it were tried
        std::map<std::uint64_t, Test> tests;
        std::map<GroupId, std::uint64_t> searching;  // steps of its search before this vote
        Instant next_piece = never;
    };
    struct RingSearch {
        std::vector<Uuid> nodes;
        TourSearch tour;
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
    std::uint64_t piece_left_ = 0;  // steps of searches that this event may still do
};

}  // namespace pccl::core
