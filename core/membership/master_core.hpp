// The master's protocol: sessions with peers, open ballots and reported edges on one side, RunState (what is promised) on
// the other. Everything the master says that rests on a record is held until that record is durable.
//
// Files: master_core.cpp (events, sending, journal), master_session.cpp (hello, resume, removal), master_votes.cpp
// (ballots become decisions), master_patience.cpp (votes that wait long), master_topology.cpp (rings, joiners, dial plans),
// master_optimize.cpp (bandwidths, better rings), master_sync.cpp (shared state), master_keys.cpp (in what key lists
// differ), master_status.cpp (for spectators).
// Invariants: one current link per member; a decision is appended exactly when its ballot is taken out of the box; no
// ballot is decided while journalled members may still resume after a restart.
#pragma once

#include "core/base/random.hpp"
#include "core/base/secret.hpp"
#include "core/events.hpp"
#include "core/master_machine.hpp"
#include "core/master_status.hpp"
#include "core/membership/run_state.hpp"
#include "core/state_sync/election.hpp"
#include "core/state_sync/state_digest.hpp"
#include "core/topology/bandwidth.hpp"
#include "core/topology/edge_table.hpp"
#include "core/topology/ring_search.hpp"
#include "core/topology/tour.hpp"
#include "core/voting/ballot.hpp"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pccl::core {

// Connections that closed within this time of each other look like a death.
inline constexpr Duration witness_fresh = 1 * second;

class MasterCore {
public:
    explicit MasterCore(const MasterConfig& config);
    bool start(Instant now, std::span<const std::string> journal, Effects& out);
    Status handle(Instant now, const Event& event, Effects& out);
    Instant next_deadline() const;
    std::uint64_t state_hash() const;
    std::uint64_t abstract_state() const;
    std::string promised() const { return state_.promised(); }
    std::string explain() const;
    std::string leftovers() const;
    MasterStatus status() const;
    void shut_down(Instant now, Effects& out);

private:
    // Peers that a dial plan names; true: as a caller, false: as a target.
    using PlanNames = std::set<std::pair<bool, std::string>>;
    struct Link {
        // closing: a refusal is held for it until a record is durable; nothing is read from it any more.
        enum class Stage : std::uint8_t { fresh, registered, member, closing };
        Stage stage = Stage::fresh;
        Uuid uuid;
        Endpoint remote;
        bool known = false;  // when it was accepted, a member was at its address
        Instant opened = 0;
        Instant last_received = 0;
        Instant last_sent = 0;
        std::uint32_t control_bytes = control_bytes_least;  // what may be sent to it in one frame
        std::uint32_t plans_held = 0;                       // pages of the one that waits for a record
        Instant plan_held_since = 0;
        PlanNames unnamed;        // by it, and meanwhile not
        bool welcomed = false;    // the welcome has left
        std::uint64_t said = 0;   // messages that have left on it
        std::uint64_t heard = 0;  // of them, what its heartbeats acknowledge
        // Since when some have left and no further one was acknowledged; never: all were.
        Instant unheard_since = never;
    };
    // The live side of a member; RunState has the promised side.
    struct Session {
        LinkId link = 0;  // 0: absent
        std::uint64_t generation = 0;
        bool resumed = false;    // everything unanswered was declared on the current link
        OpId resumed_after = 0;  // last_id() then; the starts of all later operations were sent on the current link
        // Something that it was told since its resume has arrived, or nothing was left to tell: the link carries both ways.
        bool settled = true;
        bool closed_seen = false;   // its control link closed in this incarnation
        Instant closed_at = never;  // when it closed last; no sleep of the master moves it
        // The clock of its absence. Each loss of its link starts it anew, but only `resumes_in_vain_max` times in a row
        // without a completed resume between them: links that break for ever must not keep the seat for ever.
        Instant absent_since = 0;
        std::uint32_t resumes_in_vain = 0;  // links lost in a row before everything unanswered was declared
        // Since when its application could make the next call: its last answer has arrived, and neither this master nor the
        // member's link was away since. Clock of expire_votes.
        Instant free_since = 0;
        std::uint64_t answer_said = 0;  // which message on its link that answer was; 0: it is acknowledged
        // What left on its link when its time to make the next call was over, and when that was: a call that it made in time
        // comes before the acknowledgement. 0: nothing yet.
        std::uint64_t checked_said = 0;
        // When its current link began to resume: every call that it made before is declared when `resumed` is set.
        Instant came_back = 0;
        Instant checked_at = 0;
        std::optional<std::string> plan;   // encoded dial plan that was sent last on this link
        Secret link_key{};                 // this peer's; passes of those that may dial it are derived from it
        std::uint32_t newcomer_links = 0;  // connections with peers that wait which it can hold
        Instant since = 0;                 // accepted, or taken up from the journal; for spectators
    };
    struct Joiner {
        LinkId link = 0;
        std::uint64_t generation = 0;
        std::uint64_t order = 0;  // of registration
        GroupId group = 0;
        Endpoint endpoint;
        std::uint64_t token = 0;
        std::uint32_t concurrent_ops = 1;
        std::optional<std::string> plan;
        Secret link_key{};
        std::uint32_t newcomer_links = 0;
        bool told_unreachable = false;  // until it is reached
        bool behind = false;            // comes after those that can be reached; only if told so
        Instant moved = 0;              // behind, or back to its place
        Instant placed = never;         // among those that members connect with; never: it is not
        Uuid reached_from, reaches;     // members between which it waited; zero: none yet
        Instant anchored = 0;           // since when
        std::uint32_t reports = 0;      // of edges, since the last tick
        Instant since = 0;              // registered; for spectators
    };
    struct Held {
        std::uint64_t sequence = 0;
        LinkId link = 0;
        std::string body;
        bool close = false;
        bool answer = false;  // to a call
        bool plan = false;    // whom to dial
        bool welcome = false;
        Instant since = 0;
    };
    // Members whose schemas differ from the winner's are told in what. Their key lists and the winner's are read side by
    // side, a page of each at a time, up to the first difference.
    struct KeyComparison {
        struct List {
            Uuid uuid;
            Serial serial = 0;
            std::uint32_t total = 0;
            std::deque<EntryKey> keys;  // from `first` on, as far as they are here
            std::string last;           // the name of the last one that came
            bool asked = false;
            std::string difference;  // from the winner's list; empty: none was found yet
        };
        std::uint32_t first = 0;  // all keys before it are the same on those whose difference is open
        std::vector<List> lists;  // the winner's, then the others'
        Instant progress = 0;     // when a page last came
        Instant began = 0;
    };

    // An optimisation that everybody has voted for, until it is decided.
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
    // Counted for spectators since this process began.
    struct Tallies {
        struct Begun {
            Instant at = 0;
            std::uint64_t bytes = 0;
        };
        Instant began = 0;
        std::uint64_t admitted = 0;
        std::uint64_t removed = 0;
        std::map<GroupId, MasterStatus::Tally> groups;
        std::map<OpId, Begun> operations;  // that run
        std::deque<MasterStatus::Removal> removals;
    };

    // events
    void on_accepted(const LinkAccepted& event);
    void on_closed(LinkId id);
    void on_control(const ControlArrived& event);
    void on_refused(const FrameRefused& event);
    void heard(Link& link);
    void forget_order_of_events();
    void tick();
    bool timer_runs() const;
    void slept(Duration time);

    // sending and journal
    // The texts of `message` are cut to what the other end takes. say() holds it until the last record is durable;
    // say_at_once() is for what promises nothing.
    void say(LinkId link, proto::MasterMessage message);
    void say_at_once(LinkId id, Link& link, proto::MasterMessage message);
    void say_heartbeat(LinkId id, Link& link);
    void keep_held(Held held);
    void say_and_close(LinkId link, proto::MasterMessage message, bool hold);
    static std::string encode_for(const Link& link, proto::MasterMessage& message);
    void detach(LinkId id, const Link& link);
    bool waits_for_disk(const Session& session) const;
    void begin_absence(Session& session);
    bool absent_too_long(const Session& session) const;
    void answer_left(Link& link);
    static constexpr std::size_t starts_max = 65'536;  // open votes of one member, as many as it may launch
    void remove_hoarders();
    bool deaf(const Link& link) const;
    void hears(Link& link, std::uint64_t heard);
    void welcome_leaves(Link& link);
    void leaves(LinkId id, Link& link, std::string body);
    void acknowledge(Link& link, std::uint64_t seen);
    void refuse(LinkId link, proto::RefusalCode code, const std::string& text);
    void close_link(LinkId link, const std::string& why);
    void persist(const proto::Record& record);
    void compact_if_due();
    OpId next_id();
    // The one that next_id() returned last.
    OpId last_id() const { return (static_cast<OpId>(state_.incarnation) << 32) | op_counter_; }
    void remove_unheeding();
    void release_held();
    void append(proto::Decision& decision);
    void log(LogLevel level, std::string text);
    void notice_all(const std::string& text);

    // sessions
    void on_hello(LinkId id, const proto::Hello& hello);
    void end_run_of_older_journal(LinkId id, const Uuid& uuid);
    void resume(LinkId id, const proto::Hello& hello, const Uuid& uuid);
    bool leaves_side(const Uuid& uuid, const Endpoint& endpoint) const;
    void tell_limits(proto::Welcome& welcome) const;
    void register_joiner(LinkId id, const proto::Hello& hello, const Uuid& uuid);
    void on_member_message(LinkId id, const proto::PeerMessage& message);
    void on_edge(const Uuid& from, const proto::EdgeReport& report);
    bool neighbour_lost(const Uuid& uuid) const;
    void remove(const Uuid& uuid, const std::string& reason);
    void begin_new_run();
    bool in_grace() const { return grace_until_ != never; }
    void end_grace_if_due();
    bool silent_since(const Link& link) const;

    // ballots
    void on_vote(const Uuid& uuid, const proto::Vote& vote);
    void settle();
    void abort_refused();
    void examine(const BallotKey& key);
    void examine_everything();
    std::vector<Uuid> electors_of(const BallotKey& key) const;
    void decide_topology(Ballot ballot);
    void answer_early_updates();
    void decide_pending(Ballot ballot);
    static void add_seats(const Ballot& ballot, google::protobuf::RepeatedPtrField<proto::Seat>& seats);
    void start_waiting(GroupId group);
    void refuse_start(const BallotKey& key, Result result, const std::string& reason);
    void examine_op(OpId id);
    // success, rank_connection_lost, or invalid_usage when a member can never do it.
    void decide_op(OpId id, Result result, const std::string& reason);
    bool window_full(const GroupState& group, const Ballot& ballot) const;

    // patience with votes (master_patience.cpp)
    void warn_waiting();
    void warn_unwritten();
    void stop_unwritten();
    Duration disk_patience() const;
    void expire_votes(const std::optional<Uuid>& only = {});
    void restart_vote_clocks();
    void shift_vote_clocks(Duration time);
    void give_up(const BallotKey& key, const std::string& reason);
    using Places = std::map<Uuid, std::string>;
    const std::string& whereabouts(const Uuid& uuid, Places& places) const;
    std::string whereabouts(const Uuid& uuid) const;

    // topology
    void maintain_topology();
    bool looked_just_now() const;
    void maintain_edges_of_operations();
    std::string failed_edge(const RunningOp& op);  // one that is in no ring any more; empty: none
    proto::DialPlan dial_plan(const Uuid& uuid, const std::vector<Uuid>& callers, const PlanNames& but) const;
    void say_plan(LinkId link, const proto::DialPlan& plan);
    void maintain_ring(GroupId id);
    bool ring_usable(const GroupState& group) const;
    std::string edge_text(const std::pair<Uuid, Uuid>& edge) const;
    void on_stuck(OpId id, const RunningOp& op, const Uuid& from, const Uuid& to);
    bool plan_held(const Uuid& uuid) const;
    bool edge_failed_long(const Uuid& from, const Uuid& to, Duration grace);
    void plan_joiners();
    void comes_last(Joiner& joiner);
    void take_turns(GroupId group, const std::vector<std::pair<std::uint64_t, Uuid>>& list);
    std::vector<Uuid> admissible(GroupId group, std::vector<Uuid>& ring) const;
    bool any_admissible() const;
    void send_plans();
    void admit_orphans();
    void add_admissions(proto::TopologyDecision& topology, bool all);
    std::optional<Endpoint> endpoint_of(const Uuid& uuid) const;
    std::optional<Secret> link_key_of(const Uuid& uuid) const;
    std::size_t newcomers_at_a_time(const std::vector<Uuid>& ring) const;
    template <class Target>
    void add_pass(const Uuid& from, Target& target) const;
    void tell(LinkId link, const Uuid& uuid, proto::Answer answer);
    bool present(const Uuid& uuid) const;

    // better rings
    void begin_survey();
    void end_test(std::uint64_t id);
    void abandon_tests(const Uuid& uuid, bool as_sender_only);
    void start_tests();
    void on_measured(const Uuid& uuid, const proto::Measured& measured);
    RingSearch& search_of(GroupId id);
    bool search_rings();
    void search_in_background();
    void adopt_rings();
    void examine_optimize(const BallotKey& key);

    // state sync
    void on_page(const Uuid& uuid, const proto::SyncPage& page);
    void examine_sync(const BallotKey& key);
    std::vector<Candidate> candidates_of(const Ballot& ballot, const std::vector<Uuid>& electors) const;
    bool compare_keys(const BallotKey& key, const Election& election);
    bool ask_for_keys(KeyComparison& comparison);
    void end_late_comparisons();
    void decide_sync(const BallotKey& key, const std::vector<Uuid>& electors);
    void examine_sync_end(GroupId group);
    void finish_sync(GroupId group, bool commit, const std::string& reason);
    void repeat_sync(GroupId group);
    std::vector<RunningSync::Holder> living_holders(GroupId group);
    void on_holders_request(const Uuid& uuid, OpId sync);

    // for spectators (master_status.cpp)
    void tally(const proto::Record& record);
    void tally_start(OpId id, const Ballot& ballot);
    std::map<Uuid, MasterStatus::Call> calls() const;
    std::optional<Tag> tag_of(const BallotKey& key) const;
    void add_peers(MasterStatus& status) const;
    void add_votes(MasterStatus& status) const;
    MasterStatus::Group status_of(GroupId id, const GroupState& group) const;

    MasterConfig config_;
    Random random_;
    SecretSource secrets_;
    RunState state_;
    BallotBox ballots_;
    EdgeTable edges_;
    std::map<LinkId, Link> links_;
    std::map<Uuid, Session> sessions_;
    std::map<Uuid, Joiner> joiners_;
    std::map<GroupId, KeyComparison> key_comparisons_;
    std::map<GroupId, std::map<std::uint64_t, Tag>> waiting_starts_;  // completed order → tag
    std::map<Uuid, std::set<Uuid>> wanted_;                           // edges that somebody is asked to dial
    BandwidthTable bandwidths_;
    std::optional<Survey> survey_;
    std::map<GroupId, RingSearch> searches_;
    std::uint64_t piece_left_ = 0;  // steps of searches that this event may still do
    std::deque<Held> held_;
    std::size_t held_kept_ = 0;  // when those of lost links were last dropped
    std::uint64_t last_sequence_ = 0;
    std::uint64_t durable_sequence_ = 0;
    Instant unwritten_since_ = never;  // since when no record became durable although one waits; never: none waits
    bool unwritten_told_ = false;
    // Of the journal behind its last snapshot, and of that one.
    std::uint64_t journal_records_ = 0;
    std::uint64_t journal_bytes_ = 0;
    std::uint64_t snapshot_bytes_ = 0;
    std::uint64_t completed_order_ = 0;
    std::uint64_t registration_order_ = 0;
    std::uint32_t op_counter_ = 0;  // of this incarnation: ids of operations, synchronizations and tests (next_id)
    Instant grace_until_ = never;
    Instant clocks_anew_at_ = -never;  // when a sleep last started all clocks anew, plus the time that was slept since
    Instant sees_again_at_ = 0;        // until then the order of what happened while it did not run is not known
    Instant now_ = 0;
    Instant last_event_ = 0;
    Instant next_tick_ = never;
    bool tick_put_off_ = false;  // since the last one
    bool topology_dirty_ = true;
    Instant looked_at_ = 0;           // at the topology
    std::size_t admission_turn_ = 0;  // which newcomers a ring is searched for first
    bool examine_all_ = false;
    std::vector<BallotKey> dirty_;
    bool stopped_ = false;
    std::uint64_t refused_frames_ = 0;
    Tallies tallies_;
    Effects* out_ = nullptr;
};

}  // namespace pccl::core
