// Every bound of the system in one place. Remote input can never make a machine exceed them.
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>
#include <cstdint>

namespace pccl::core {

// What every machine takes as a control frame, so that it can be sent before the limit of the other end is known. All
// messages that are not paged fit into it.
inline constexpr std::uint32_t control_bytes_least = 4096;
// Of a page of a key list, beyond the name of its only entry.
inline constexpr std::uint32_t key_overhead = 64;

// A reason or notice: longer ones are cut where they are made, where they leave and where they come.
inline constexpr std::uint32_t text_bytes_max = 1024;

struct Limits {
    // wire
    // Body of one control frame; at least control_bytes_least. Machines tell each other theirs, and none sends more than
    // the other end takes.
    std::uint32_t control_bytes_max = 1u << 20;
    std::uint32_t payload_bytes_max = 1u << 22;  // payload of one bulk frame; at least numeric::quantized_bytes_least
    std::uint32_t key_bytes_max =
        1024;  // name of a shared-state entry; must fit into a control frame with key_overhead
    // membership
    std::uint32_t peers_max = 4096;
    std::uint32_t unregistered_links_max = 256;  // accepted links that have not said hello, whole machine
    std::uint32_t newcomer_links_max =
        400;  // with peers that wait to be admitted: the process has descriptors for them
    std::uint32_t stripes_max = 64;
    std::uint32_t untold_max = 4 * 65'536;    // decisions that one member may not have acknowledged
    std::uint32_t ids_per_incarnation = ~0u;  // of operations, synchronizations and tests
    std::uint32_t journal_records = 4096;     // since the last snapshot, before the next one is written
    // all-reduce
    std::uint32_t slice_bytes = 256u << 10;  // payload of one slice; a quantized one of few elements may be longer
    std::uint32_t eager_bytes = 256u << 10;  // what a sender may have in flight before the neighbour's ready
    std::uint32_t tags_max = 65'536;         // launched and not awaited, per communicator
    std::uint32_t concurrent_ops = 16;       // started operations per group (PCCL_MAX_CONCURRENT_COLLECTIVE_OPS)
    std::uint64_t scratch_bytes =
        16u << 20;  // slots for partial sums, whole communicator (at least min_slots per operation)
    std::uint32_t min_slots = 4;
    std::uint64_t operation_bytes_max =
        0;  // slots and results of all running operations (PCCL_MAX_SCRATCH_BYTES); 0: any
    // state sync
    std::uint32_t entries_max = 1'000'000;
    std::uint32_t chunk_bytes = 1u << 20;  // unit of hashing and transfer; <= payload_bytes_max
    std::uint32_t chunks_in_flight = 8;    // requested and not landed, per receiver
    std::uint32_t hashes_in_flight = 4;
    std::uint64_t revision_max = ~std::uint64_t{0} >> 1;  // of shared state; the one behind it must be a number too
    // bandwidth tests and the search for rings
    std::uint32_t test_connections = 16;     // of one test (PCCL_NUM_BENCHMARK_CONNECTIONS)
    std::uint64_t test_bytes = 64ull << 20;  // payload of one test, at most
    std::uint32_t search_steps = 200'000;    // of the search for a ring, in one event: about a millisecond
};

struct Timeouts {
    Duration peer =
        10 * second;  // silence after which a link is dead and a member is removed (the master's value rules)
    Duration master = 30 * second;    // how long a lost master is waited for; 0: not at all
    Duration handshake = 5 * second;  // from an opened link to its hello
    Duration dial = 3 * second;       // from OpenLink to LinkOpened
    Duration redial_min = 20 * millisecond;
    Duration redial_max = 1 * second;
    Duration vote_warn = 30 * second;
    Duration vote = 0;     // after which a vote that did not change is given up, see MasterCore::expire_votes; 0: never
    Duration journal = 0;  // of the master, after which one whose journal is not written stops itself; 0: never
    Duration test = 1 * second;         // bandwidth test of one edge, from its first byte
    Duration survey = 20 * second;      // all tests of one vote; what is not measured by then waits for the next
    Duration edge_age = 3600 * second;  // a bandwidth that was measured longer ago is measured again

    // How long a master that was started again waits for the members of its journal to come back: longer than any
    // reconnect back-off of a healthy one. Nothing is decided meanwhile.
    Duration grace() const { return std::max(peer, 3 * redial_max) + handshake; }
    // Who dials again does so a few times within the time-out after which it is given up.
    Duration redial_longest() const { return std::max(redial_min, std::min(redial_max, peer / 4)); }
    // Machines look at their clocks this often.
    Duration tick() const { return std::clamp<Duration>(peer / 16, 10 * millisecond, 250 * millisecond); }
};

}  // namespace pccl::core
