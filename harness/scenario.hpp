// What one run consists of, as a value: nodes, network, workload, faults with their times, and when faults stop.
//
// A scenario comes from a seed through generate() or from a file (scenario_text.hpp), and can be changed (the shrinker
// takes things away). Everything a run draws later is drawn from `seed`, so equal scenarios give equal runs.
#pragma once

#include "core/base/limits.hpp"
#include "net-sim/world.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pccl::harness {

using core::Duration;
using core::Instant;

enum class FaultKind : std::uint8_t {
    partition,     // nodes in mask `a` and the others do not reach each other
    one_way,       // nothing from node a to node b
    cut_pair,      // a and b do not reach each other, both may see the master
    clog,          // node a sends nothing for a while, then everything at once
    reset,         // a connection: both ends see a reset
    end_early,     // a connection ends after a part of what is on its way
    half_open,     // a connection: bytes vanish, at most one end knows
    crash_peer,    // value bit 0: with reset; bit 1: restarted as a new process after `duration`
    crash_master,  // restarted with its journal after `duration`
    aimed_peer,    // crash at the k-th effect of a kind
    aimed_master,
    pause,           // node a stops for `duration`; b bit 0: every node does, as when the host of all of them sleeps
    stall,           // one direction of one connection stops for `duration`, then everything comes at once
    corrupt,         // bits of what is on its way flip
    hostile,         // a stranger's process dials the master and the peers and says what it likes
    replayed_hello,  // somebody sends again what a peer's connection to the master began with
    torn_write,      // the master crashes, its last unacknowledged record is there in part
    older_journal,   // the master crashes and comes back with a journal that lacks the last `b` records
    empty_journal,   // the master crashes and comes back as a new run
    two_masters,     // a second master takes over the journal while the first one lives and is cut off from its disk
    full_disk,       // records of the master fail from now on; it stops and is restarted after `duration`
    slow_disk,       // records take up to `value` ms for `duration`
    stuck_disk,      // records are not answered for `duration`, see StuckDisk; a master that stops is back after `b` ms
    slow_compute,    // computes of node a take 1 + value % 1000 times as long for `duration`
    hang,            // the application of node a makes no call for `duration`
    roam,            // node a gets another address: its connections break, nobody reaches it at the old one
    swizzle,         // half of the nodes fall silent one by one and come back in another order
    swallow,      // what node a writes to node b at once, if longer than `value` bytes, never arrives, nor what follows
    garble,       // bits of what node a sends to node b flip, by content: the same ones each time it is sent again
    snap,         // connections break by what node a sends to node b: after `value` bytes; from 2^32 on: at a pattern
    stop_master,  // the master is stopped on purpose, which ends the run; a new one begins after `duration`
    flap,         // connections of nodes a and b break when `value` bytes went one way, each of them again
    clock_jump,   // the clock of node a goes forward by `duration` at once
    interface,    // one of two interfaces of node a is down for `duration`: that to its peers, b odd: to the master
};
inline constexpr std::size_t fault_kinds = 34;
// Connections open and each fails in the same way again: only what gets through tells such an edge from a good one.
constexpr bool impairs_an_edge(FaultKind kind) {
    return kind == FaultKind::swallow || kind == FaultKind::garble || kind == FaultKind::snap;
}
const char* to_text(FaultKind kind);

// The master ends or loses its journal, and may be started again.
constexpr bool concerns_the_journal(FaultKind kind) {
    switch (kind) {
    case FaultKind::crash_master:
    case FaultKind::aimed_master:
    case FaultKind::torn_write:
    case FaultKind::older_journal:
    case FaultKind::empty_journal:
    case FaultKind::two_masters:
    case FaultKind::full_disk:
    case FaultKind::stuck_disk:
    case FaultKind::stop_master: return true;
    default: return false;
    }
}

// What is demanded. Safety (all oracles but progress) always is.
enum class Claim : std::uint8_t {
    all_end,  // when faults have stopped, every call of every live process returns in time
    core,     // and the peers of Scenario::core, which no lasting fault touches, get a collective done together
};

// Which connections a fault of one connection chooses from (bits of Fault::b; none: any). What breaks where something has
// just happened finds states that a connection drawn from all of them seldom does.
enum ConnectionAim : std::uint32_t {
    aim_control = 1,   // those with the master
    aim_there = 2,     // those of the node at which the trigger happened
    aim_accepted = 4,  // those that others dialled to that node
    aim_named = 8,     // those of node a
};

// How a stuck disk goes on (bits of Fault::value; bit 0: with reset).
enum StuckDisk : std::uint64_t {
    stuck_next_answers = 2,  // the next process of the master finds a disk that answers
    stuck_until_killed = 4,  // at its end the operator kills the master: what was not answered is written or lost
};

// Which nodes a fault concerns that waits for something: those that it names, or those at which that happened.
enum class FaultPlace : std::uint8_t {
    named,
    here,   // `a` is the node at which it happened, `b` the other one
    there,  // the other way round: `a` is whom a message was for, or the other end of a connection
};

struct Fault {
    FaultKind kind = FaultKind::partition;
    Instant at = 0;
    Duration duration = 0;
    std::uint32_t a = 0;
    std::uint32_t b = 0;
    std::uint64_t value = 0;
    // When not 0: begins `at` after the trigger_count-th time that this happens (triggers.hpp: an effect, the index in
    // core::Effect plus one; a phase of the protocol; a probe).
    std::uint32_t trigger = 0;
    std::uint32_t trigger_count = 0;
    // When not 0: begins `at` after this fault of the scenario (its index, plus one) took effect, or has ended.
    std::uint32_t follows = 0;
    bool behind_its_end = false;
    FaultPlace place = FaultPlace::named;
    std::uint32_t again = 0;  // so many more times, each `every` after the one before it (and what it lasts)
    Duration every = 0;
    bool forever = false;  // does not heal when the others do
};

// An entry in a peer's list of addresses of the master.
enum class MasterAddress : std::uint8_t {
    right,
    dead,    // refuses dials
    silent,  // never answers
    spare,   // refuses dials until a crash-master moves the master there
};

struct PeerPlan {
    Instant start = 0;
    core::GroupId group = 0;
    std::uint32_t stripes = 1;
    std::uint32_t turns = 3;
    bool rejoins = true;                                       // connects again when it was lost
    std::vector<MasterAddress> masters{MasterAddress::right};  // in the order in which they are tried
    bool advertises = false;      // nobody reaches it where its dials come from: it tells its address
    bool two_interfaces = false;  // the same, but only its dials to the master come from the other address
};

struct Workload {
    bool pump = false;       // are_peers_pending before each update_topology
    bool sync = true;        // shared state each turn
    std::uint32_t tags = 1;  // collectives per turn
    std::uint32_t elements_min = 1, elements_max = 64;
    // Each count is so many times as large; with symbolic memory only.
    std::uint32_t elements_times = 1;
    bool f32_sum = false;                     // every collective a sum of f32 (else drawn per tag)
    std::uint32_t world_min = 2;              // members of its group that a program waits for before it goes on
    bool exact = true;                        // small integers (else random values, checked with an error bound)
    std::uint32_t entries = 2;                // of the shared state
    std::uint32_t key_bytes = 0;              // names of entries are at least this long
    std::uint32_t own_entries_per_mille = 0;  // entries whose content may differ
    Duration compute_max = core::millisecond;
    std::uint32_t in_place_per_mille = 500;
    std::uint32_t mismatch_per_mille = 0;         // a launch with another count
    std::uint32_t twice_per_mille = 0;            // a tag launched twice
    std::uint32_t leave_in_flight_per_mille = 0;  // per turn
    std::uint32_t visit_per_mille = 0;            // per connect: leaves again at once
    std::uint32_t drift_per_mille = 0;            // per turn: the peer's state changes on its own
    std::uint32_t hasty_revision_per_mille = 0;   // the revision is raised although the sync failed
    std::uint32_t schema_per_mille = 0;           // per process: its first sync has another key
    bool async_sync = false;  // newcomers receive only and veterans send only after a change of the topology
    std::uint32_t odd_strategy_per_mille = 0;  // per sync: a strategy of one's own
    bool checkpoints = false;                  // a new process takes up the state that the node saved last
    std::uint32_t state_elements_min = 1, state_elements_max = 300;  // of an entry
    std::uint32_t cross_per_mille = 0;         // per turn: an update of the topology while the others go on
    std::uint32_t early_update_per_mille = 0;  // per connect: an update of the topology in the first turn
    std::uint32_t many_window = 0;             // not 0: one call for all tags, with windows of up to this many
    std::uint32_t quantized_per_mille = 0;     // per tag (in bytes by minimum and maximum if f32_sum)
    std::uint32_t optimize_per_mille = 0;      // per membership epoch: optimize_topology in each turn
    std::uint32_t interrupt_per_mille = 0;     // per call: another thread aborts or destroys the communicator
    std::uint32_t leave_twice_per_mille = 0;   // of these and of usual leaves: beside another one that has not returned
    // Not 0: collectives run on threads of their own, each tag so often between two updates of the topology, and updates are
    // called beside them (threads.cpp).
    std::uint32_t beside = 0;
    std::uint32_t beside_asks = 0;  // are_peers_pending before each of these updates
    bool beside_queued = false;     // the last of them together with the update, on another thread
};

struct Scenario {
    std::uint64_t seed = 0;
    std::vector<PeerPlan> peers;  // node 1 is peers[0]
    sim::WorldParameters world;
    core::Limits limits;
    core::Timeouts timeouts;
    Workload workload;
    bool uneven_limits = false;  // every other peer was built with larger ones
    bool even = false;           // run a second time and compared (even_world.hpp, one_fault.hpp)
    std::vector<Fault> faults;
    Instant chaos_end = 0;    // faults stop, partitions heal, the master runs
    Duration patience = 0;    // after chaos_end + stop_after everybody must have finished within this
    Duration stop_after = 0;  // applications are told to end this long after chaos_end
    Claim claim = Claim::all_end;
    std::vector<std::uint32_t> core;  // nodes
};

// Whether all its faults are edges that connect and lose, for which `patience` is short.
bool only_impairs_edges(const Scenario& scenario);

struct GeneratorOptions {
    std::uint32_t classes = 0xffffffffu;  // bits of FaultClass that may be on
    std::uint32_t peers_max = 9;
};
enum FaultClass : std::uint32_t {
    class_latency = 1,
    class_bandwidth = 2,
    class_segmentation = 4,
    class_partition = 8,
    class_connection = 16,
    class_crash = 32,
    class_master = 64,
    class_pause = 128,
    class_limits = 256,
    class_application = 512,
    class_shape = 1024,
    class_clock = 2048,
    class_sync = 4096,
    class_corrupt = 8192,
    class_hostile = 16384,
    class_journal = 32768,
    class_slow = 65536,
    class_forever = 131072,
    class_steady = 262144,
    class_even = 524288,
};

Scenario generate(std::uint64_t seed, const GeneratorOptions& options = {});
// The same with these bytes as the first choices.
Scenario generate_from(std::span<const std::uint8_t> choices, const GeneratorOptions& options = {});

}  // namespace pccl::harness
