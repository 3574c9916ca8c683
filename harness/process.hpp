// One application process: its calls as coroutines, its buffers, and the checks that only the process can make.
//
// The calls read like the C++ API of the library. Every call is recorded in the ledger. The oracles `restore` and
// `no-phantom` are checked here, because they compare buffers at the moment when a call returns.
#pragma once

#include "harness/canary.hpp"
#include "harness/collectives.hpp"
#include "harness/ledger.hpp"
#include "harness/process_world.hpp"
#include "harness/scenario.hpp"
#include "harness/sends.hpp"
#include "harness/task.hpp"
#include "net-sim/draw.hpp"

#include <algorithm>
#include <coroutine>
#include <utility>
#include <vector>

namespace pccl::harness {

struct Counters {
    std::uint64_t committed = 0, aborted = 0, refused = 0;
    std::uint64_t syncs = 0, syncs_failed = 0;
    std::uint64_t connects = 0, lost = 0, updates = 0, optimized = 0;
    std::uint64_t aborted_lives = 0, destroyed_lives = 0;  // by another thread, while the first one was at work
    std::uint64_t beside = 0;                              // updates of the topology while collectives run
    std::uint64_t queued = 0;                              // run-wide calls made while another one was open
    Counters& operator+=(const Counters& c) {
        committed += c.committed;
        aborted += c.aborted;
        refused += c.refused;
        syncs += c.syncs;
        syncs_failed += c.syncs_failed;
        connects += c.connects;
        lost += c.lost;
        updates += c.updates;
        optimized += c.optimized;
        aborted_lives += c.aborted_lives;
        destroyed_lives += c.destroyed_lives;
        beside += c.beside;
        queued += c.queued;
        return *this;
    }
};

// What all processes of one run share.
struct Shared {
    Ledger ledger;
    Counters counters;
    Agreements agreements;
    core::Ticket tickets = 0;
    bool stopping = false;    // applications are asked to end
    std::vector<bool> goals;  // per node: it still needs the success of a collective that began after the faults
    std::vector<bool> core;   // per node: it works until all goals are reached
    bool goal_open() const { return std::find(goals.begin(), goals.end(), true) != goals.end(); }
    void goal_reached(std::uint32_t node, core::Instant now) {
        const bool was_open = goal_open();
        goals[node] = false;
        if (was_open && !goal_open()) work_over(now);
    }
    void work_over(core::Instant now) { ledger.work_over_at = std::min(ledger.work_over_at, now); }
};

// What a node keeps on its disk from one process to the next.
struct Checkpoint {
    std::uint64_t revision = 0;
    std::vector<std::vector<std::uint8_t>> entries;
};

class Process {
public:
    Process(ProcessWorld& world, const Scenario& scenario, Shared& shared, std::uint32_t node, std::uint32_t number);

    void draw_from(std::uint64_t seed);  // all that it draws from now on
    void start();                        // starts the training program; finished() when it has ended
    void lie(Lie lie) { lie_ = lie; }
    void keep(Checkpoint* checkpoint) { checkpoint_ = checkpoint; }
    bool finished() const { return finished_; }
    bool starting() const { return main_.done() && !finished_; }
    std::uint32_t node() const { return node_; }
    // The program makes no call and looks at no answer until then.
    void hang(Instant until) { hangs_until_ = until; }
    // Records the end of the life: the process left or was killed.
    void life_ended() {
        if (connected_) ledger_.lives[life_].ended = true;
        if (connected_ || connecting_) ledger_.lives[life_].gone_at = now();
    }
    std::string waits_for() const;  // the calls that have not returned
    bool in_a_call() const;
    bool only_connects() const;  // it waits in connect and in no other call

    // --- from the world ----------------------------------------------------------------------------------------------
    void completed(core::Ticket ticket, const core::Completion& completion);
    void attributes_set(const core::Attributes& attributes);
    void frozen(Instant until);  // its machine does not run, so this is no idle time of the program
    void resume(core::Ticket ticket);

private:
    // A call in progress. It lives in the frame of the coroutine that awaits it.
    struct Call {
        Process& process;
        core::Command command;
        CallKind kind;
        core::Ticket ticket = 0;
        Instant begin = 0;
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> awaiter);
        core::Completion await_resume() { return process.take(ticket); }
    };
    struct Sleep {
        Process& process;
        Duration duration;
        core::Ticket ticket = 0;
        bool await_ready() const { return duration <= 0; }
        void await_suspend(std::coroutine_handle<> awaiter);
        void await_resume();
    };
    // A thread waits until another thread of the program notifies the signal. At most one thread waits for a signal.
    struct Signal {
        core::Ticket waiting = 0;
    };
    struct Wait {
        Process& process;
        Signal& signal;
        core::Ticket ticket = 0;
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> awaiter);
        void await_resume() { process.take(ticket); }
    };
    struct Slot {
        core::Ticket ticket = 0;
        CallKind kind = CallKind::connect;
        bool sleeping = false;
        bool answered = false;
        Instant begin = 0;
        Instant answered_at = 0;
        Instant idle_before = core::never;  // idle_since_ just before this call
        std::coroutine_handle<> awaiter;
        core::Completion completion;
    };
    struct Tensor {  // the buffers of one tag
        core::Tag tag = 0;
        core::ReduceShape shape;
        core::BufferId send = 0, receive = 0;
        bool in_place = true;
        bool untouched_since = false;  // no write is allowed since kept_* were copied
        std::vector<std::uint8_t> kept_send, kept_receive;
        std::vector<std::uint8_t> receive_before;  // the launch, of another collective than an all-reduce
        std::size_t launch = 0;                    // in the ledger
        bool launched = false;
        bool waiting = false;
    };

    struct Parcel {  // the array of one end of a send
        core::BufferId buffer = 0;
        core::Tag name = 0;      // of the launch
        std::size_t launch = 0;  // in the ledger
    };

    core::Completion take(core::Ticket ticket);
    void was_member(std::uint32_t life, Instant begin);
    void note_idle();
    void note_answered(const Slot& slot);
    Call call(CallKind kind, core::Command command) { return Call{*this, std::move(command), kind, 0, 0}; }
    Sleep sleep(Duration duration) { return Sleep{*this, duration, 0}; }
    core::Ticket suspend(std::coroutine_handle<> awaiter);
    Wait wait(Signal& signal) { return Wait{*this, signal, 0}; }
    void notify(Signal& signal);
    Instant now() const { return world_.now(); }
    bool stopping() const { return shared_.stopping; }
    bool has_goal() const { return shared_.core[node_] && shared_.goal_open(); }

    // --- the library's calls, with bookkeeping -----------------------------------------------------------------------
    Task<bool> connect();
    Task<core::Completion> vote(CallKind kind);
    Task<core::Completion> launch(std::size_t tensor, bool mismatched);
    core::CommandLaunch prepare_launch(std::size_t tensor, bool mismatched);
    void returned(std::size_t tensor, const core::Completion& completion);
    void mismatch(core::ReduceShape& shape);
    // Other collectives than an all-reduce (collectives.cpp).
    void choose_collective(Tensor& tensor, core::CommandLaunch& command, bool mismatched);
    void become(core::CollectiveKind kind, Tensor& tensor, core::CommandLaunch& command);
    void differ(Tensor& tensor, core::CommandLaunch& command);
    bool leaves_input_out(const LaunchFact& fact);
    void check_rest(const Tensor& tensor, const LaunchFact& fact);
    std::uint64_t piece_most(const Tensor& tensor) const;
    std::uint64_t room_of(const Tensor& tensor) const;
    void begin_round() { round_ = sim::mix(epoch_seen_, revision_) | 1; }
    Agreements::Key agreement_of(const Tensor& tensor) const;
    core::Uuid own_peer() const;
    // Sends (sends.cpp).
    const LaunchFact* names_members(Instant since) const;
    Parcel& parcel(std::size_t index);
    Task<bool> launch_send(std::size_t index, Message message, bool gives, core::Uuid other);
    Task<core::Completion> await_send(std::size_t index);
    void send_returned(std::size_t index, const core::Completion& completion);
    Task<bool> exchange(Instant since);
    Task<core::Completion> await(std::size_t tensor);
    Task<core::Completion> sync();
    // After a failure. If the world is 1, asks the library whether this is still a member (alone) or lost.
    Task<bool> still_member(const core::Completion& failed);

    // --- the training program ----------------------------------------------------------------------------------------
    Task<void> main();
    Task<bool> membership(bool first_turn);
    Task<bool> renew();
    Task<bool> optimize();
    Task<bool> reduce_all();
    Task<bool> reduce_many();
    bool given_up(const core::Completion& completion) const;
    Task<bool> leave_in_flight();
    Task<bool> leave();
    Task<void> leave_the_run();

    // --- more threads (threads.cpp) ----------------------------------------------------------------------------------
    Task<bool> membership_beside();
    Task<bool> renew_beside();
    Task<void> ask_beside(core::Duration later);
    Task<void> collectives();
    Task<void> chain(std::size_t tensor);
    Task<void> synchronize_beside();
    Task<void> end_collectives();
    void may_be_interrupted(CallKind kind);
    Task<void> interrupt(Duration delay, bool abort);
    Task<void> leave_again();
    Task<void> watch_gang();
    // True if another thread ended this membership at that time or before.
    bool interrupted_by(Instant time) const { return interrupted_at_ <= time; }
    // If true, calls fail as on a communicator that was never connected.
    bool destroyed() const { return destroyed_; }

    bool raises_all_the_same();
    core::SyncStrategy strategy();
    void make_state();
    void load_checkpoint();
    void save_checkpoint();
    void apply();
    void prepare_tensors();
    void refill(Tensor& tensor);
    void check_geometry(const Tensor& tensor, const LaunchFact& fact);
    void check_untouched(Tensor& tensor, const char* moment);
    using Schema = std::vector<core::StateEntry>;
    std::vector<std::uint8_t> state_bytes(const Schema& schema, bool may_differ);
    std::uint64_t changed_bytes(const Schema& schema, const SyncFact& fact) const;
    std::uint32_t odd_schema(Schema& schema);
    Task<void> call_beside_a_launch();
    std::vector<std::uint8_t>& memory(core::BufferId id);
    template <class T>
    void shuffle(std::vector<T>& items) {
        for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[draw_.below(i)]);
    }

    ProcessWorld& world_;
    const Scenario& scenario_;
    Shared& shared_;
    Ledger& ledger_;
    Counters& counters_;
    std::uint32_t node_;
    std::uint32_t number_;
    PeerPlan plan_;
    sim::Draw draw_;
    core::Attributes attributes_;
    Instant attributes_set_ = 0;
    Instant answered_at_ = 0;  // of the call that has just returned
    std::vector<Slot> slots_;
    std::vector<Tensor> tensors_;
    std::vector<Parcel> parcels_;
    std::uint64_t sends_begun_ = 0;
    std::vector<core::StateEntry> entries_;
    std::uint64_t revision_ = 0;
    std::uint32_t life_ = 0;
    std::uint32_t refusals_ = 0;
    Instant hangs_until_ = 0;
    Instant idle_since_ = core::never;  // never: in a call
    Instant frozen_until_ = 0;
    bool connected_ = false;
    bool connecting_ = false;  // until the application has seen the answer
    bool finished_ = false;
    bool renewed_ = false;  // this turn began with an update of the topology, or with the connect
    bool waited_ = false;   // the turn was spent waiting for others: it does not count
    Lie lie_ = Lie::none;
    Checkpoint* checkpoint_ = nullptr;
    std::uint64_t epoch_seen_ = 0;     // of this membership
    std::uint64_t round_ = 0;          // of collectives: members that call them together have the same number
    std::uint64_t epoch_updated_ = 0;  // as of the last update of the topology
    std::uint64_t epoch_synced_ = 0;   // as of the last synchronization of this membership; 0: none yet
    bool sync_failed_ = false;         // the last one failed; the next one enforces
    sim::Draw strategies_;
    bool hasty_ = false;       // the revision was raised after a failure
    bool odd_schema_ = false;  // the next sync has another schema than the others
    // Another thread that aborts or destroys the communicator.
    sim::Draw interrupts_;
    Instant interrupted_at_ = core::never;  // of this membership
    bool destroyed_ = false;                // left or destroyed, not aborted; the next connect makes a new communicator
    bool interrupting_ = false;             // its leave has not returned
    sim::Draw gang_draw_;
    Instant waits_until_ = core::never;  // with a gang: when it gives up the connect
    Signal interrupt_returned_;
    // Collectives that run beside updates of the topology. They wait at `gate_` between two rounds until an update is
    // called.
    bool gate_wanted_ = false, at_gate_ = false, collectives_end_ = false, collectives_ended_ = true;
    Signal gate_, gate_reached_, chains_done_, ask_returned_, collectives_returned_;
    std::size_t chains_open_ = 0;
    std::uint32_t asking_ = 0;  // calls of are_peers_pending on threads of their own
    core::Completion asked_;
    std::vector<Task<void>> chains_;
    Task<void> collectives_, ask_, ask_again_, interrupt_, leave_again_, gang_watch_;
    Task<void> main_;
};

}  // namespace pccl::harness
