// The simulated world: virtual time, nodes with their processes, clocks and disks, and the network between them.
//
// Node 0 is the master, the others are peers. The world runs items of the queue in order until it is told to stop or a
// violation was found. What applications do and which faults happen is decided by its Director (the harness).
#pragma once

#include "core/master_machine.hpp"
#include "core/peer_machine.hpp"
#include "net-sim/describe.hpp"
#include "net-sim/driver.hpp"
#include "net-sim/event_queue.hpp"
#include "net-sim/network.hpp"
#include "net-sim/recorder.hpp"
#include "net-sim/status_watch.hpp"
#include "net-sim/trace.hpp"

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace pccl::sim {

struct WorldParameters {
    NetworkParameters network;
    std::uint32_t drift_ppm = 0;  // clocks of nodes run at 1 +- this
    Duration timer_late_max = 0;  // timers come late by up to this, now and then
    Duration compute_max = 0;     // 0: computes are answered at once
    Duration disk_low = 10 * core::microsecond, disk_high = core::millisecond;
    std::uint32_t allocation_fails_per_million = 0;
    Duration staging_max = 0;  // buffers that a file may back are there after up to this; 0: at once
    // Of shared state: sent with a wrong bit and a checksum that fits it; lists of hashes as often, with a wrong bit too.
    std::uint32_t wrong_chunks_per_million = 0;
    std::uint32_t long_texts_per_million = 0;  // messages with a text: it is as long as the receiver takes
    bool symbolic = false;                     // payload has lengths and no content (net-sim/buffers.hpp)
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
    std::uint64_t token = 0;  // handed back to the director
};

// A script item that is scheduled when the k-th effect of a kind happens anywhere. The node where it did, plus one, is put
// into the upper half of `b`.
struct Trigger {
    std::size_t effect = 0;
    std::uint64_t countdown = 0;
    Duration delay = 0;
    std::uint64_t a = 0, b = 0;
};

// What the world may claim to see in a machine or a journal, to show that a check of it is alive.
enum class Untruth : std::uint8_t { none, kept_at_rest, record_lost };

// Sees each machine behind each event that it has handled.
class MachineWatch {
public:
    virtual ~MachineWatch() = default;
    virtual void handled(std::uint32_t node, Instant now, const core::Event& event, const Machine& machine) = 0;
};

// Hears what machines say to each other, before they have said it. Only where a fault waits for it: it costs time.
class MessageWatch {
public:
    virtual ~MessageWatch() = default;
    // True: the process of the node dies in place of saying it (an AimedCrash without a countdown was armed).
    virtual bool says(std::uint32_t node, std::uint32_t to, Talk talk, std::span<const std::uint8_t> body) = 0;
    // A chunk of shared state has arrived, and its receiver does not know yet.
    virtual void chunk_arrived(std::uint32_t node, std::uint32_t from) = 0;
};

class Director {
public:
    virtual ~Director() = default;
    virtual void completed(std::uint32_t node, core::Ticket ticket, const core::Completion& completion) = 0;
    // Before completed(): which command it answers.
    virtual void told(std::uint32_t, const core::Command&, const core::Completion&) {}
    // By the master, behind the event that it speaks of.
    virtual void logged(const std::string&) {}
    virtual void attributes_set(std::uint32_t node, const core::Attributes& attributes) = 0;
    virtual void application_item(std::uint32_t node, std::uint64_t a, std::uint64_t b) = 0;
    virtual void script_item(std::uint64_t a, std::uint64_t b) = 0;
    virtual void aimed_crash(std::uint32_t node, std::uint64_t token) = 0;
    // The master stopped itself because its disk failed; its process is gone.
    virtual void halted(std::uint32_t node) = 0;
};

class World final : public Receiver {
public:
    // Nodes from `strangers_from` on run no machine of ours: what they send may be anything.
    World(std::uint32_t nodes, std::uint32_t strangers_from, const WorldParameters& parameters, std::uint64_t seed,
          Director& director);

    // Runs until the director stops it, a violation, no items, the horizon, or too many items.
    void run(Instant horizon, std::uint64_t items_max);
    void stop() { stopped_ = true; }
    // What is drawn from now on: networks, disks, clocks. What nodes and paths were drawn once stays.
    void draw_from(std::uint64_t seed);

    // --- processes ---------------------------------------------------------------------------------------------------
    void start_peer(std::uint32_t node, const core::PeerConfig& config);
    void start_master(const core::MasterConfig& config);
    // Any machine in the place of a peer or the master: toys in tests.
    void start_machine(std::uint32_t node, std::unique_ptr<Machine> machine, const core::Limits& limits);
    // Ends the process. Not from inside its own effects. `torn`: a part of the first record that was not written is there.
    void end_process(std::uint32_t node, bool with_reset, bool torn = false);
    // The master is stopped on purpose: it says so to all. Its process is to be ended when its links have handed that over.
    void shut_down_master();
    void pause(std::uint32_t node, Duration duration);
    // The node's clock goes forward at once, as after a sleep of its host or a step of the clock.
    void jump_clock(std::uint32_t node, Duration by);
    void set_compute_factor(std::uint32_t node, std::uint32_t factor) { nodes_[node].compute_factor = factor; }
    // When a factor made computes of the node slow; no two of these times overlap.
    const std::vector<std::pair<Instant, Instant>>& slow_computes(std::uint32_t node) const {
        return nodes_[node].slow_computes;
    }
    // --- the master's journal --------------------------------------------------------------------------------------------
    std::uint32_t master() const { return master_; }
    // The last ones, or all there are. Returns when the first of them was written: 0 if none is left, never if none was lost.
    Instant forget_records(std::size_t count);
    void fail_disk(bool fails) { nodes_[master_].disk_failed = fails; }
    void slow_disk(Duration extra_max) { disk_extra_ = extra_max; }
    // From now on the disk keeps its answers back, also from a master that is started anew; then they come in order.
    void hang_disk() { nodes_[master_].disk.hangs = true; }
    void free_disk();
    // From now on the journal and the master's name belong to another node; records of the former holder fail.
    void hand_over_journal(std::uint32_t node);
    bool stranger(std::uint32_t node) const { return node >= strangers_from_; }
    // Plays the master, now or before the journal was handed over.
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
    // Of the process that is the master now; none while it does not run.
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
    void attach(Recorder* recorder) { recorder_ = recorder; }  // before the first process starts
    void watch(StatusWatch* status) { status_watch_ = status; }
    void watch(MachineWatch* machines) { machine_watch_ = machines; }
    void watch(MessageWatch* messages) { message_watch_ = messages; }
    // Whose machine runs right now, and who is at the other end of the link that the event came from (no_node: none).
    std::pair<std::uint32_t, std::uint32_t> acting() const;
    void stop_faults() {
        network_.stop_faults();
        parameters_.allocation_fails_per_million = 0;
        parameters_.staging_max = 0;
        parameters_.wrong_chunks_per_million = 0;
        parameters_.timer_late_max = 0;
        disk_extra_ = 0;
        free_disk();
    }
    // The last frames of payload that were sent to the node, the latest behind.
    const std::deque<core::wire::BulkHeader>& payloads_to(std::uint32_t node) const { return nodes_[node].payloads; }
    std::uint64_t items() const { return items_; }
    std::string explain();            // one line per live machine
    std::uint64_t situation() const;  // a hash of the abstract states of all live machines
    // Replays the journal beside the master that wrote it, when nothing is on its way to the disk: both have to promise the
    // same (oracle `replay`).
    void check_replay(const core::MasterConfig& config);
    const std::array<std::uint64_t, effect_kinds>& effects_counted() const { return effects_counted_; }
    // When a receiver last got a chunk of shared state.
    Instant chunk_landed() const { return chunk_landed_; }
    std::uint64_t machine_bytes_most() const { return machine_bytes_most_; }

    // --- Receiver ----------------------------------------------------------------------------------------------------
    Reach reach(std::uint32_t node, std::uint16_t port) override;
    std::uint64_t incarnation(std::uint32_t node) override { return nodes_[node].incarnation; }
    bool paused(std::uint32_t node) override { return now_ < nodes_[node].paused_until; }
    void defer(std::uint32_t node, const Item& item) override { nodes_[node].deferred.push_back(item); }
    LinkId next_accepted_link(std::uint32_t node) override { return nodes_[node].driver->next_accepted_link(); }
    void bytes_arrived(std::uint32_t node, LinkId link, std::span<const Piece> pieces) override;
    void link_ended(std::uint32_t node, LinkId link, const char* reason) override;
    void room_made(std::uint32_t node, LinkId link) override;

private:
    friend class Driver;
    using Record = core::Persist;
    // The disk of a master's journal, and what the master may conclude from its silence. Times are those of its own clock.
    struct Disk {
        bool hangs = false;
        std::deque<Item> kept_back;  // answers, while it hangs
        Instant silent_since =
            core::never;  // it owes an answer since then; a sleep that the master must notice is left out
        Instant silent_awake = core::never;  // the same, begun anew after any sleep
        bool said = false;                   // the master has said that it does not answer
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
        Instant timer_for = core::never;  // the deadline of the machine that it was made for
        std::uint32_t idle_timers = 0;
        Instant last_timer = -1;
        std::uint32_t compute_factor = 1;
        std::vector<std::pair<Instant, Instant>> slow_computes;
        bool plays_peer = false;
        std::uint32_t looks = 0;  // at what its machine keeps
        bool disk_failed = false;
        bool played_master = false;
        bool silent = false;  // the machine under the dead process does not answer either
        std::deque<Item> deferred;
        std::deque<core::wire::BulkHeader> payloads;
        std::vector<AimedCrash> aimed;
        std::deque<Record> writing;
        Instant disk_free = 0;
        Disk disk;
    };

    // What the driver needs.
    Instant local_time(const Node& node) const;
    Instant global_time(const Node& node, Instant local) const;
    void push(const Item& item) { queue_.push(item); }
    void handled(std::uint32_t node, const core::Event& event);
    void look_at_status(std::uint32_t node);
    void payload_begins(std::uint32_t to, const core::wire::BulkHeader& header);
    bool count_effect(std::uint32_t node, std::size_t kind);
    void persist(std::uint32_t node, core::Persist record);
    void make_durable(Node& node);  // the first record that waits
    void records_written(std::uint32_t node, std::uint64_t sequence);
    void disk_answered(Node& node);
    void woke_before_its_disk(Node& node);
    bool may_give_up_disk(std::uint32_t node) const;
    std::uint32_t disk_is_named(std::uint32_t node);  // to how many members it is said
    void check_patience_with_disk(std::uint32_t node);

    void dispatch(const Item& item);
    void dispatch_node(const Item& item);
    void wake(std::uint32_t node);
    void after(std::uint32_t node);  // timers, deaths and pending director work once a machine has been called
    void poll_timer(std::uint32_t node);

    EventQueue queue_;
    Instant now_ = 0;
    WorldParameters parameters_;
    Director& director_;
    Network network_;
    Zeros zeros_;  // of symbolic payload, before the nodes that use it
    Trace trace_;
    Recorder* recorder_ = nullptr;
    StatusWatch* status_watch_ = nullptr;
    MachineWatch* machine_watch_ = nullptr;
    MessageWatch* message_watch_ = nullptr;
    std::uint32_t acting_ = no_node;
    std::deque<Node> nodes_;
    std::vector<Trigger> triggers_;
    std::vector<std::string> journal_;  // durable
    std::vector<Instant> written_;      // when each record of journal_ became durable
    std::uint32_t master_ = 0;
    core::MasterMachine* master_machine_ = nullptr;  // in the driver of master_
    std::uint32_t strangers_from_;
    Duration disk_extra_ = 0;
    Duration timer_late_most_ = 0;  // stop_faults() ends it for timers that are set from then on
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
