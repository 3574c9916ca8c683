// The simulated world: virtual time, nodes with their processes, clocks and disks, and the network between them.
//
// Node 0 is the master, the others are peers. The world runs the items of the queue in order until it is stopped or
// finds a violation. Its Director (the harness) decides what applications do and which faults happen.
#pragma once

#include "core/master_machine.hpp"
#include "core/peer_machine.hpp"
#include "net-sim/describe.hpp"
#include "net-sim/driver.hpp"
#include "net-sim/event_queue.hpp"
#include "net-sim/forger.hpp"
#include "net-sim/network.hpp"
#include "net-sim/recorder.hpp"
#include "net-sim/status_watch.hpp"
#include "net-sim/trace.hpp"

#include <array>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace pccl::sim {

struct WorldParameters {
    NetworkParameters network;
    std::uint32_t drift_ppm = 0;  // clocks of nodes run at a rate of 1 +- this
    Duration timer_late_max = 0;  // some timers are late by up to this
    Duration compute_max = 0;     // 0: computes are answered at once
    Duration disk_low = 10 * core::microsecond, disk_high = core::millisecond;
    std::uint32_t allocation_fails_per_million = 0;  // a million: also when the faults have stopped
    Duration staging_max = 0;                        // longest allocation of a buffer that a file may back; 0: at once
    // Chunks of shared state that are sent with a wrong bit and a matching checksum. Lists of hashes get a wrong bit as
    // often.
    std::uint32_t wrong_chunks_per_million = 0;
    std::uint32_t long_texts_per_million = 0;  // messages whose text is padded to the longest that the receiver takes
    bool symbolic = false;                     // payload has lengths but no content (net-sim/buffers.hpp)
};

struct Violation {
    std::string oracle;
    std::string reason;
};

// A fault that ends a process between two effects of one event.
struct AimedCrash {
    std::size_t effect = 0;       // index into core::Effect
    std::uint64_t countdown = 0;  // 0: not armed
    bool with_reset = true;
    std::uint64_t token = 0;  // returned to the director
};

// A script item that is scheduled at the k-th effect of a kind on any node. That node's number plus one is put into the
// upper half of `b`.
struct Trigger {
    std::size_t effect = 0;
    std::uint64_t countdown = 0;
    Duration delay = 0;
    std::uint64_t a = 0, b = 0;
};

// A false observation of a machine or a journal. The world makes it on request, to prove that a check works.
enum class Untruth : std::uint8_t { none, kept_at_rest, record_lost, damage_borne, snapshot_lost };

// Called after each event that a machine has handled.
class MachineWatch {
public:
    virtual ~MachineWatch() = default;
    virtual void handled(std::uint32_t node, Instant now, const core::Event& event, const Machine& machine) = 0;
};

// Called for each message between machines, before it is sent. Set only if a fault waits for a message: it costs time.
class MessageWatch {
public:
    virtual ~MessageWatch() = default;
    // True: the node's process dies instead of sending it (an AimedCrash without a countdown was armed).
    virtual bool says(std::uint32_t node, std::uint32_t to, Talk talk, std::span<const std::uint8_t> body) = 0;
    // A chunk of shared state has arrived. Its receiver has not handled it yet.
    virtual void chunk_arrived(std::uint32_t node, std::uint32_t from) = 0;
};

class Director {
public:
    virtual ~Director() = default;
    virtual void completed(std::uint32_t node, core::Ticket ticket, const core::Completion& completion) = 0;
    // Called before completed(), with the command that is answered.
    virtual void told(std::uint32_t, const core::Command&, const core::Completion&) {}
    // A record that the master gives to its disk.
    virtual void recorded(const std::string&) {}
    // A log line of the master. Called after the event that caused the line.
    virtual void logged(const std::string&) {}
    virtual void attributes_set(std::uint32_t node, const core::Attributes& attributes) = 0;
    virtual void application_item(std::uint32_t node, std::uint64_t a, std::uint64_t b) = 0;
    virtual void script_item(std::uint64_t a, std::uint64_t b) = 0;
    virtual void aimed_crash(std::uint32_t node, std::uint64_t token) = 0;
    // The master stopped itself because its disk failed. Its process is gone.
    virtual void halted(std::uint32_t node) = 0;
};

class World final : public Receiver {
public:
    // Nodes from `strangers_from` on run foreign programs, which may send any bytes.
    World(std::uint32_t nodes, std::uint32_t strangers_from, const WorldParameters& parameters, std::uint64_t seed,
          Director& director);

    // Runs until the director stops it, a violation is found, the queue is empty, the horizon is reached, or too many
    // items ran.
    void run(Instant horizon, std::uint64_t items_max);
    void stop() { stopped_ = true; }
    // Reseeds all further draws of networks, disks and clocks. Values drawn once per node or path stay.
    void draw_from(std::uint64_t seed);

    // --- processes ---------------------------------------------------------------------------------------------------
    void start_peer(std::uint32_t node, const core::PeerConfig& config);
    void start_master(const core::MasterConfig& config);
    // Starts any machine in place of a peer or the master, such as a toy machine in a test.
    void start_machine(std::uint32_t node, std::unique_ptr<Machine> machine, const core::Limits& limits);
    // Ends the process. Must not be called while its effects are carried out. `torn`: the journal then ends with a
    // damaged part of the first record that was not durable.
    void end_process(std::uint32_t node, bool with_reset, bool torn = false);
    // Stops the master on purpose: it notifies all peers. The caller ends its process once its links have sent that.
    void shut_down_master();
    // The operator tells the master to revoke the certificate of this peer. From now on every master refuses connections
    // of a process with that name, before its machine sees them.
    void revoke(const core::Uuid& peer);
    void authenticate_all() { all_authenticated_ = true; }
    void pause(std::uint32_t node, Duration duration);
    // Moves the node's clock forward at once, as after a sleep of its host or a step of the clock.
    void jump_clock(std::uint32_t node, Duration by);
    void set_compute_factor(std::uint32_t node, std::uint32_t factor) { nodes_[node].compute_factor = factor; }

    // --- the master's journal --------------------------------------------------------------------------------------------
    std::uint32_t master() const { return master_; }
    // Removes the last `count` records, or all. Returns when the first of them was written: 0 if none is left, never if
    // none was lost.
    Instant forget_records(std::size_t count);
    void fail_disk(bool fails) { nodes_[master_].disk_failed = fails; }
    void slow_disk(Duration extra_max) { disk_extra_ = extra_max; }
    // From now on the disk holds its answers back, also those to a restarted master. free_disk() delivers them in
    // order.
    void hang_disk() { nodes_[master_].disk.hangs = true; }
    void free_disk();
    // Moves the journal and the master's name to another node. From now on, records of the former holder fail.
    void hand_over_journal(std::uint32_t node);
    bool stranger(std::uint32_t node) const { return node >= strangers_from_; }
    // True for the node that is the master, and for a former master after a hand-over.
    bool is_master(std::uint32_t node) const { return node == 0 || nodes_[node].played_master; }
    void arm(std::uint32_t node, const AimedCrash& crash) { nodes_[node].aimed.push_back(crash); }
    void arm(const Trigger& trigger) { triggers_.push_back(trigger); }
    void disarm() {
        message_watch_ = nullptr;
        triggers_.clear();
        for (Node& node : nodes_) node.aimed.clear();
    }
    bool alive(std::uint32_t node) const { return nodes_[node].driver != nullptr; }
    Driver* driver(std::uint32_t node) { return nodes_[node].driver.get(); }
    // The machine of the master's current process; null while none runs.
    const core::MasterMachine* master_machine() const { return master_machine_; }

    void command(std::uint32_t node, core::Command command);
    void schedule_application(std::uint32_t node, Duration after, std::uint64_t a, std::uint64_t b);
    void schedule_script(Instant at, std::uint64_t a, std::uint64_t b);

    void lie(Untruth untruth) { untruth_ = untruth; }
    void violate(std::string oracle, std::string reason);
    bool violated() const { return !violation_.oracle.empty(); }
    const Violation& violation() const { return violation_; }

    Instant now() const { return now_; }
    Network& network() { return network_; }
    Trace& trace() { return trace_; }
    void attach(Recorder* recorder) { recorder_ = recorder; }  // call it before the first process starts
    void watch(StatusWatch* status) { status_watch_ = status; }
    void watch(MachineWatch* machines) { machine_watch_ = machines; }
    void watch(MessageWatch* messages) { message_watch_ = messages; }
    void set(Forger* forger) { forger_ = forger; }
    bool lies(std::uint32_t node) const { return forger_ != nullptr && forger_->lies(node); }
    bool lied(std::uint32_t node) const { return forger_ != nullptr && forger_->lied(node); }
    // The node whose machine runs now, and the node at the far end of the link that the event came from (no_node:
    // none).
    std::pair<std::uint32_t, std::uint32_t> acting() const;
    // Whether the process of that node has a name whose certificate was revoked.
    bool revoked(std::uint32_t node) const;
    void stop_faults() {
        network_.stop_faults();
        if (parameters_.allocation_fails_per_million < 1'000'000) parameters_.allocation_fails_per_million = 0;
        parameters_.staging_max = 0;
        parameters_.wrong_chunks_per_million = 0;
        parameters_.timer_late_max = 0;
        disk_extra_ = 0;
        free_disk();
    }
    // Headers of the last payload frames sent to the node, newest last.
    const std::deque<core::wire::BulkHeader>& payloads_to(std::uint32_t node) const { return nodes_[node].payloads; }
    std::uint64_t items() const { return items_; }
    std::string explain();            // one line per live machine
    std::uint64_t situation() const;  // a hash of the abstract states of all live machines
    // Replays the journal and compares what it promises with what the running master promises (oracle `replay`). Does
    // nothing while records are on their way to the disk.
    void check_replay(const core::MasterConfig& config);
    const std::array<std::uint64_t, effect_kinds>& effects_counted() const { return effects_counted_; }
    // When a chunk of shared state last arrived at a receiver.
    Instant chunk_landed() const { return chunk_landed_; }
    std::uint64_t machine_bytes_most() const { return machine_bytes_most_; }

    // --- Receiver ----------------------------------------------------------------------------------------------------
    Reach reach(std::uint32_t node, std::uint16_t port) override;
    std::uint64_t incarnation(std::uint32_t node) override { return nodes_[node].incarnation; }
    bool paused(std::uint32_t node) override { return now_ < nodes_[node].paused_until; }
    void defer(std::uint32_t node, const Item& item) override { nodes_[node].deferred.push_back(item); }
    LinkId next_accepted_link(std::uint32_t node) override { return nodes_[node].driver->next_accepted_link(); }
    void dial_met(std::uint32_t node, LinkId link, std::uint32_t connection) override {
        nodes_[node].driver->dial_met(link, connection);
    }
    void bytes_arrived(std::uint32_t node, LinkId link, std::span<const Piece> pieces) override;
    void link_ended(std::uint32_t node, LinkId link, const char* reason) override;
    void room_made(std::uint32_t node, LinkId link) override;

private:
    friend class Driver;
    using Record = core::Persist;
    // The disk of a master's journal, and how long it has been silent. Times are those of the node's own clock.
    struct Disk {
        bool hangs = false;
        std::deque<Item> kept_back;  // answers, held back while it hangs
        Instant silent_since =
            core::never;  // an answer is due since then; restarts after a sleep that the master must notice
        Instant silent_awake = core::never;  // the same, but restarts after any sleep
        bool said = false;                   // the master has logged that the disk does not answer
        Duration limit = 0, tick = 0;        // of the master's settings
        Instant paused_at = 0;
    };
    struct Node {
        std::unique_ptr<Driver> driver;
        std::uint64_t incarnation = 0;
        std::int64_t drift_ppm = 0;
        Instant clock_base = 0;
        Instant paused_until = 0;
        Instant timer_at = core::never;   // the earliest timer item in the queue
        Instant timer_for = core::never;  // the machine's deadline for which that item was made
        std::uint32_t idle_timers = 0;
        Instant last_timer = -1;
        std::uint32_t compute_factor = 1;
        bool plays_peer = false;
        std::uint32_t looks = 0;  // counts calls of after(), for its check of leftovers()
        bool disk_failed = false;
        bool played_master = false;
        bool silent = false;  // the host of the dead process does not answer either
        std::deque<Item> deferred;
        std::deque<core::wire::BulkHeader> payloads;
        std::vector<AimedCrash> aimed;
        std::deque<Record> writing;
        Instant disk_free = 0;
        Disk disk;
    };

    // Used by Driver.
    Instant local_time(const Node& node) const;
    Instant global_time(const Node& node, Instant local) const;
    void push(const Item& item) { queue_.push(item); }
    void handled(std::uint32_t node, const core::Event& event);
    void look_at_status(std::uint32_t node);
    void payload_begins(std::uint32_t to, const core::wire::BulkHeader& header);
    bool count_effect(std::uint32_t node, std::size_t kind);
    void persist(std::uint32_t node, core::Persist record);
    void make_durable(Node& node);  // writes the first waiting record
    void records_written(std::uint32_t node, std::uint64_t sequence);
    void count_record(const core::Persist& record);
    // Oracle `bounded`: a snapshot is due when the journal has so many records, and as many bytes as the last one.
    void check_growth();
    void disk_answered(Node& node);
    void woke_before_its_disk(Node& node);
    bool may_give_up_disk(std::uint32_t node) const;
    std::uint32_t disk_is_named(std::uint32_t node);  // returns how many members must be notified
    void check_patience_with_disk(std::uint32_t node);

    void dispatch(const Item& item);
    void dispatch_node(const Item& item);
    void wake(std::uint32_t node);
    void after(std::uint32_t node);  // handles deaths, halts and timers once a machine was called
    void poll_timer(std::uint32_t node);

    EventQueue queue_;
    Instant now_ = 0;
    WorldParameters parameters_;
    bool checks_parts_;  // this run asserts the invariants of every part after each event
    Director& director_;
    Network network_;
    Zeros zeros_;  // for symbolic payload; declared before the nodes that use it
    Trace trace_;
    Recorder* recorder_ = nullptr;
    StatusWatch* status_watch_ = nullptr;
    MachineWatch* machine_watch_ = nullptr;
    MessageWatch* message_watch_ = nullptr;
    Forger* forger_ = nullptr;
    std::set<core::Uuid> revoked_;
    bool all_authenticated_ = false;
    std::uint32_t acting_ = no_node;
    std::deque<Node> nodes_;
    std::vector<Trigger> triggers_;
    std::vector<std::string> journal_;  // durable
    std::vector<Instant> written_;      // when each record of journal_ became durable
    // Of the running master's journal since its last snapshot, and the length of that.
    struct Growth {
        std::uint64_t records = 0, bytes = 0, snapshot = 0;
        std::uint32_t records_max = 0;  // Limits::journal_records
        std::uint32_t events_too_long = 0;
    };
    Growth growth_;
    std::uint32_t master_ = 0;
    core::MasterMachine* master_machine_ = nullptr;  // owned by the driver of master_
    std::uint32_t strangers_from_;
    Duration disk_extra_ = 0;
    Duration timer_late_most_ = 0;  // timers set before stop_faults() may still be late by this
    Violation violation_;
    bool stopped_ = false;
    std::uint64_t items_ = 0;
    std::uint64_t machine_bytes_most_ = 0;
    std::array<std::uint64_t, effect_kinds> effects_counted_{};
    Instant chunk_landed_ = 0;
    Untruth untruth_ = Untruth::none;
    Draw clocks_{0}, disks_{0}, computes_{0}, memory_{0}, compactions_{0}, lies_{0}, lists_{0}, texts_{0};
};

}  // namespace pccl::sim
