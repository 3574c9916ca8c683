// Everything that one run consists of, as a value: nodes, network, workload, faults with their times, and when faults
// stop.
//
// A scenario is drawn from a seed by generate() or read from a file (scenario_text.hpp). It can be changed; the
// shrinker removes parts of it. Everything that a run draws later is drawn from `seed`, so equal scenarios give equal
// runs.
#pragma once

#include "core/base/gang.hpp"
#include "core/base/limits.hpp"
#include "net-sim/world.hpp"

#include <algorithm>
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
    cut_pair,      // a and b do not reach each other; both may reach the master
    clog,          // node a sends nothing for a while, then everything at once
    reset,         // a connection: both ends see a reset
    end_early,     // a connection ends after a part of the bytes in flight
    half_open,     // a connection: bytes vanish, at most one end notices
    crash_peer,    // value bit 0: with reset; bit 1: restarted as a new process after `duration`
    crash_master,  // restarted with its journal after `duration`
    aimed_peer,    // crash at the k-th effect of a kind
    aimed_master,
    pause,           // node a stops for `duration`; b bit 0: all nodes stop, as if their common host slept
    stall,           // one direction of one connection stops for `duration`, then everything comes at once
    corrupt,         // a bit of the bytes in flight flips
    hostile,         // a stranger dials node a (the master or a peer) and sends lies, noise or nothing
    replayed_hello,  // a stranger replays the first bytes of a peer's connection to the master
    torn_write,      // the master crashes; a part of its last, unacknowledged record is in the journal
    older_journal,   // the master crashes and comes back with a journal that lacks the last `b` records
    empty_journal,   // the master crashes and comes back as a new run
    two_masters,     // a second master takes over the journal while the first one lives and is cut off from its disk
    full_disk,       // records of the master fail from now on; it stops and is restarted after `duration`
    slow_disk,       // records take up to `value` ms for `duration`
    stuck_disk,      // the disk does not answer for `duration`, see StuckDisk; a master that stops is back after `b` ms
    slow_compute,    // computes of node a take 1 + value % 1000 times as long for `duration`
    hang,            // the application of node a makes no call for `duration`
    roam,            // node a gets another address: its connections break, the old one is unreachable
    swizzle,         // half of the nodes fall silent one by one and come back in another order
    swallow,         // a write of more than `value` bytes from node a to node b never arrives, nor what follows it
    garble,          // bits from node a to node b flip, by content: a resend is damaged in the same way
    snap,            // connections break after `value` bytes from node a to node b; `value` from 2^32: at a pattern
    stop_master,     // the master is stopped on purpose, which ends the run; a new one begins after `duration`
    flap,            // each connection between nodes a and b breaks after `value` bytes in one direction
    clock_jump,      // the clock of node a goes forward by `duration` at once
    interface,       // one of two interfaces of node a is down for `duration`: to its peers; b odd: to the master
    closed_port,     // peers cannot dial node a, and their connections to it break; node a dials as before
    revoke,          // the operator revokes the certificate of node a's process: it may come back under another name only
    liar,            // node a lies (harness/liars.hpp) about what `value` names from bit 8 on, b per mille of the time
};
inline constexpr std::size_t fault_kinds = 37;
// Connections open, but each one fails again in the same way. Such an edge differs from a good one only in the data
// that gets through.
constexpr bool impairs_an_edge(FaultKind kind) {
    return kind == FaultKind::swallow || kind == FaultKind::garble || kind == FaultKind::snap;
}
const char* to_text(FaultKind kind);

// The master ends, loses its journal, or may stop because of its disk. It may be started again.
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

// What progress is demanded. Safety (all oracles except progress) is always demanded.
enum class Claim : std::uint8_t {
    all_end,  // when faults have stopped, every call of every live process returns in time
    core,     // also: the peers of Scenario::core, which no lasting fault touches, complete a collective together
};

// Which connections a fault of one connection chooses from (bits of Fault::b; none: all). A break where something has
// just happened reaches states that the break of a random connection seldom reaches.
enum ConnectionAim : std::uint32_t {
    aim_control = 1,   // connections with the master
    aim_there = 2,     // connections of the node where the trigger happened
    aim_accepted = 4,  // connections that others dialled to that node
    aim_named = 8,     // connections of node a
    aim_dialled = 16,  // connections that the node where the trigger happened dialled itself
};

// How a stuck disk ends (bits of Fault::value; bit 0: with reset).
enum StuckDisk : std::uint64_t {
    stuck_next_answers = 2,  // the next process of the master finds a disk that answers
    stuck_until_killed = 4,  // when it ends, the operator kills the master; unanswered records are written or lost
};

// Which nodes a fault with a trigger affects: those that it names, or those where the trigger happened.
enum class FaultPlace : std::uint8_t {
    named,
    here,   // `a` is the node where it happened, `b` the other one
    there,  // the reverse: `a` is the receiver of the message, or the other end of the connection
};

struct Fault {
    FaultKind kind = FaultKind::partition;
    Instant at = 0;
    Duration duration = 0;
    std::uint32_t a = 0;
    std::uint32_t b = 0;
    std::uint64_t value = 0;
    // If not 0: the fault begins `at` after this has happened trigger_count times. triggers.hpp defines the values: an
    // effect (its index in core::Effect plus one), a phase of the protocol, or a probe.
    std::uint32_t trigger = 0;
    std::uint32_t trigger_count = 0;
    // If not 0: the fault begins `at` after another fault (its index plus one) took effect, or ended (behind_its_end).
    std::uint32_t follows = 0;
    bool behind_its_end = false;
    FaultPlace place = FaultPlace::named;
    std::uint32_t again = 0;  // number of repetitions, each `every` after the end of the one before
    Duration every = 0;
    bool each = false;  // with a trigger: each repetition waits for it again, and then for `at`
    bool forever = false;  // never heals
};

// An entry in a peer's list of master addresses.
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
    bool rejoins = true;                                       // connects again after it was lost
    std::vector<MasterAddress> masters{MasterAddress::right};  // in the order in which they are tried
    // It cannot be reached where its dials come from, and advertises its address: behind a translator, a port of it.
    bool advertises = false;
    bool two_interfaces = false;  // the same, but only for its dials to the master
    core::Gang gang;              // that it declares; it need not be possible
    Duration gang_patience = 0;   // how long it waits for missing places of its gang; 0: without limit
    sim::Translator translator = sim::Translator::none;  // in front of its network
    std::uint32_t site = 0;                              // its networks, if there is a translator
    std::uint32_t lan = 0;                               // its network there
    std::uint32_t host = 0;  // that it names; peers with equal ones share it; 0: it names none
};

struct Workload {
    bool pump = false;       // are_peers_pending before each update_topology
    bool sync = true;        // synchronizes shared state in each turn
    std::uint32_t tags = 1;  // collectives per turn
    std::uint32_t elements_min = 1, elements_max = 64;
    // Factor for each count; only with symbolic memory.
    std::uint32_t elements_times = 1;
    bool f32_sum = false;                     // every collective is a sum of f32 (else drawn per tag)
    std::uint32_t world_min = 1;              // a program waits until its group has this many members
    bool exact = true;                        // small integers (else random values, checked with an error bound)
    std::uint32_t entries = 2;                // of the shared state
    std::uint32_t key_bytes = 0;              // names of entries are at least this long
    std::uint32_t own_entries_per_mille = 0;  // entries whose content may differ
    Duration compute_max = core::millisecond;
    std::uint32_t in_place_per_mille = 500;
    std::uint32_t mismatch_per_mille = 0;         // a launch with another shape
    std::uint32_t twice_per_mille = 0;            // a tag launched twice
    std::uint32_t leave_in_flight_per_mille = 0;  // per turn
    std::uint32_t visit_per_mille = 0;            // per connect: leaves again at once
    std::uint32_t drift_per_mille = 0;            // per turn: the state of this peer changes alone
    std::uint64_t first_revision = 0;             // of each group
    std::uint32_t hasty_revision_per_mille = 0;   // the revision is raised although the sync failed
    std::uint32_t schema_per_mille = 0;           // per process: its first sync has another key
    bool async_sync = false;  // newcomers receive only and veterans send only after a change of the topology
    std::uint32_t odd_strategy_per_mille = 0;  // per sync: a random strategy
    bool checkpoints = false;                  // a new process loads the state that the node saved last
    std::uint32_t state_elements_min = 1, state_elements_max = 300;  // of an entry
    std::uint32_t cross_per_mille = 0;         // per turn: an update of the topology that the others do not call
    std::uint32_t early_update_per_mille = 0;  // per connect: an update of the topology in the first turn
    std::uint32_t many_window = 0;             // not 0: one call for all tags, with windows of up to this many
    std::uint32_t collectives_per_mille = 0;   // per round and tag: another collective than an all-reduce
    std::uint32_t pieces_per_mille = 0;        // of these: a gather, a scatter or an all_to_all
    std::uint32_t sends_per_mille = 0;         // per turn with a collective that named its members: sends between them
    std::uint32_t quantized_per_mille = 0;     // per tag (u8 codes with min_max if f32_sum)
    std::uint32_t optimize_per_mille = 0;      // per epoch: optimize_topology in each turn
    std::uint32_t interrupt_per_mille = 0;     // per call: another thread aborts or destroys the communicator
    std::uint32_t leave_twice_per_mille = 0;   // of these: also a second abort before the first call returns
    Duration gang_wait_max = 0;                // a program gives up a connect with its gang after up to this; 0: never
    // If not 0: collectives run on their own threads, beside updates of the topology (threads.cpp). Each tag is
    // launched this often between two updates.
    std::uint32_t beside = 0;
    std::uint32_t beside_asks = 0;  // calls of are_peers_pending before each of these updates
    // The last of them runs together with the update, on another thread. If optimize_per_mille is not 0, it is an
    // optimize instead.
    bool beside_queued = false;
    // Only if it is the only one: it is made twice at a time, and members make these calls in different orders.
    bool beside_crossed = false;
};

// How often something happens in a run (harness/expectations.hpp).
struct Expectation {
    static constexpr std::uint64_t any = ~std::uint64_t{0};
    std::uint32_t what = 0;
    std::uint64_t least = 0, most = any;
};

// No vote carries an input, and no two members send each other whole arrays: arrays are small here, and few would go
// around a ring otherwise. Memory is small, because it is real here.
inline core::Limits small_limits() {
    core::Limits limits;
    limits.vote_input_bytes_max = 0;
    limits.pairwise_bytes_max = 0;
    limits.eager_bytes = 256u << 10;
    limits.scratch_bytes = 16u << 20;
    return limits;
}

struct Scenario {
    std::uint64_t seed = 0;
    std::vector<PeerPlan> peers;  // node 1 is peers[0]
    sim::WorldParameters world;
    core::Limits limits = small_limits();
    core::Timeouts timeouts;
    Workload workload;
    bool uneven_limits = false;  // peers with even node numbers have larger limits than the others
    bool even = false;           // runs a second time for comparison (even_world.hpp, one_fault.hpp)
    std::vector<Fault> faults;
    Instant chaos_end = 0;    // faults stop, partitions heal, the master runs
    Duration patience = 0;    // every program must end within this after chaos_end + stop_after
    Duration stop_after = 0;  // applications are asked to end this long after chaos_end
    Claim claim = Claim::all_end;
    std::vector<std::uint32_t> core;  // nodes
    std::vector<Expectation> expectations;
};

// Whether there are faults and all of them are edges that connect but lose data. `patience` is short then.
bool only_impairs_edges(const Scenario& scenario);

struct GeneratorOptions {
    std::uint32_t classes = ~0u;  // bits of FaultClass that may be on
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
    class_liars = 1048576,
    class_nat = 2097152,
    class_mild = 16777216,
    class_gangs = 4194304,  // only if it is named: gangs wherever they fit, in place of a core
    class_hosts = 8388608,  // only if it is named: peers share hosts in every run of three and more
};

inline bool has_liars(const Scenario& scenario) {
    return std::any_of(scenario.faults.begin(), scenario.faults.end(),
                       [](const Fault& fault) { return fault.kind == FaultKind::liar; });
}

inline bool has_gangs(const Scenario& scenario) {
    return std::any_of(scenario.peers.begin(), scenario.peers.end(),
                       [](const PeerPlan& plan) { return !plan.gang.none(); });
}

Scenario generate(std::uint64_t seed, const GeneratorOptions& options = {});
// The same, but these bytes decide the first random choices.
Scenario generate_from(std::span<const std::uint8_t> choices, const GeneratorOptions& options = {});

}  // namespace pccl::harness
