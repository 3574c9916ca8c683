// Every bound of sizes and counts in one place. Remote input can never make a machine exceed them. Times: timeouts.hpp.
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>
#include <cstdint>

namespace pccl::core {

// Every machine accepts control frames of this size, so they can be sent before the other end's limit is known. All
// messages that are not paged fit into it.
inline constexpr std::uint32_t control_bytes_least = 4096;
// Bytes of a page of a key list for one entry, beside the entry's name.
inline constexpr std::uint32_t key_overhead = 64;

// Longest reason or notice. Longer ones are cut when they are made, sent and received.
inline constexpr std::uint32_t text_bytes_max = 1024;

struct Limits {
    // wire
    // Body of one control frame; at least control_bytes_least. Machines exchange their limits, and none sends more than
    // the other end accepts.
    std::uint32_t control_bytes_max = 1u << 20;
    std::uint32_t payload_bytes_max = 1u << 22;  // payload of one bulk frame; at least numeric::quantized_bytes_least
    std::uint32_t key_bytes_max =
        1024;  // name of a shared-state entry; must fit into a control frame with key_overhead
    // membership
    std::uint32_t peers_max = 4096;
    std::uint32_t unregistered_links_max = 256;  // accepted links without a hello yet, whole machine
    // Connections with newcomers. The driver sets it so that the process has descriptors for them.
    std::uint32_t newcomer_links_max = 400;
    std::uint32_t stripes_max = 64;
    std::uint32_t untold_max = 4 * 65'536;      // unacknowledged decisions of one member; with more it is removed
    std::uint64_t kept_bytes_max = 256u << 20;  // of all decisions that some member has not acknowledged
    std::uint64_t held_bytes_max = 64u << 20;   // messages for one link that wait for the disk; with more it is closed
    std::uint32_t ids_per_incarnation = ~0u;    // of operations, synchronizations and tests
    std::uint32_t journal_records = 4096;       // records since the last snapshot before the next one
    std::uint32_t removed_kept = 4096;          // removed peers whose reason is kept; they get it when they return
    // Tokens of earlier resumes that a member keeps. If a lost journal contained more resumes than that, the member
    // cannot prove its seat, and is refused like a process whose seat another one resumed.
    std::uint32_t former_tokens_max = 16;
    std::uint32_t joiner_reports_at_once = 32;  // reports of one joiner that are processed at once, per tick
    std::uint32_t gang_name_bytes_max = 64;
    std::uint32_t gang_size_max = 1024;     // places
    std::uint32_t gang_waiting_max = 1024;  // processes that wait for the rest of their gangs; beside peers_max
    // of the status
    std::uint32_t votes_listed = 64;
    std::uint32_t operations_listed = 32;  // of each group
    std::uint32_t removals_listed = 16;
    std::uint32_t members_named = 8;  // of those that a vote waits for; also in log lines
    // all-reduce
    std::uint32_t slice_bytes = 256u << 10;  // payload of one slice; a quantized one of few elements may be longer
    // Own input in flight before the neighbour is ready, at most. It leaves beside the start vote, so a long path is
    // filled for a round trip. The neighbour keeps so much for the start; on short paths it touches little of it.
    std::uint32_t eager_bytes = 64u << 20;
    // A path whose slices are acknowledged sooner is short. There, more in flight only leaves the cache.
    Duration long_path = 1 * millisecond;
    // As eager_bytes, on a short path, and how much of the neighbour's memory for partial sums own input may take there at
    // most (Flow::near_slots_bytes).
    std::uint32_t near_eager_bytes = 256u << 10;
    std::uint32_t near_slots_bytes = 8u << 20;
    // Reductions in a vote (core/voting/in_vote.hpp). Longest input that rides in a start vote; 0: none does. Votes of
    // so many launches of one peer carry theirs at a time, and so many bytes: reports of edges leave behind the votes,
    // and a resume casts the open votes again. The master keeps so many bytes of inputs in open ballots, and so many
    // results for a member that has not acknowledged them; beyond that, inputs are ignored.
    std::uint32_t vote_input_bytes_max = 16u << 10;
    std::uint32_t vote_inputs_launched = 1024;
    std::uint64_t vote_inputs_open_bytes = 256u << 10;
    std::uint64_t vote_inputs_held_bytes = 64u << 20;
    std::uint32_t vote_results_untold = 1024;
    std::uint32_t tags_max = 65'536;    // launched and not awaited, per communicator
    std::uint32_t concurrent_ops = 16;  // started operations per group
    // Slots for partial sums, whole communicator (at least min_slots per operation). They bound what is in flight, so
    // they have to hold what a long path holds. Slots are used again last in, first out: short paths touch few of them.
    std::uint64_t scratch_bytes = 256u << 20;
    std::uint32_t min_slots = 4;
    // Slots, scratch results and quantized inputs of all running operations; 0: no limit.
    std::uint64_t operation_bytes_max = 0;
    std::uint32_t slots_max = 4096;            // of one operation (at least min_slots)
    std::uint32_t inputs_ready = 8;            // slices of own input that are quantized ahead of their turn
    std::uint32_t batch_failures_at_once = 3;  // of a tag of a batch that are retried at once; then per tick
    // Largest all-reduce of two members that is pairwise (core/voting/graph.hpp). 0: none. It saves time only while the
    // whole array leaves ahead of the start, so it is not larger than eager_bytes. The master decides. Members
    // should have the same value, so that what leaves ahead of a start is cut as the start says.
    std::uint64_t pairwise_bytes_max = 32u << 20;
    // As pairwise_bytes_max, if both members have a short path to each other. There it saves little time, and costs that
    // of reducing the array twice.
    std::uint64_t near_pairwise_bytes_max = 512u << 10;
    // Larger all-reduces may be cut into unequal parts, so that slow edges carry less. Of others, latency decides. All
    // members should have the same value, so that what leaves ahead of a start is cut as the start says.
    std::uint64_t unequal_parts_bytes_min = 4u << 20;
    // Largest group whose gathers, scatters and all_to_alls may use direct edges: a member then has a connection with
    // each other one. 0: none.
    std::uint32_t direct_peers_max = 32;
    // all-reduce and state sync: results are copied to the application's memory in pieces, at most so many at a time
    std::uint64_t copy_bytes = 4u << 20;
    std::uint32_t copies_in_flight = 4;
    // state sync
    std::uint32_t entries_max = 1'000'000;
    std::uint32_t chunk_bytes = 1u << 20;  // unit of hashing and transfer; <= payload_bytes_max
    std::uint32_t chunks_in_flight = 8;    // requested and not landed, per receiver
    std::uint32_t hashes_in_flight = 4;
    // Chunks that are requested and have not come: in total, and on one connection, whose other end queues no more. All
    // members must have the same value, as for chunk_bytes and digest_block_bytes.
    std::uint32_t chunk_requests_max = 256;
    std::uint32_t digest_block_bytes = 64u << 10;         // keys and hashes that are digested at a time
    std::uint32_t early_requests_max = 1024;              // requests that came before their plan
    std::uint32_t hash_lists_in_flight = 8;               // entries whose chunk hashes are requested at a time
    std::uint32_t hashes_first = 256;                     // in the first page that is requested from a holder
    std::uint32_t sources_active_max = 4;                 // holders that one receiver is connected to
    std::uint32_t sources_max = 256;                      // holders in the table of one receiver
    std::uint32_t holders_told_max = 16;                  // holders that the plan names to each receiver
    std::uint32_t holders_told_again_max = 64;            // holders named to a receiver that asks for others
    std::uint32_t abandoned_stagings_max = 2;             // of earlier synchronizations, requested but not there yet
    std::uint64_t revision_max = ~std::uint64_t{0} >> 1;  // largest legal revision; `revision + 1` must not overflow
    // bandwidth tests and the search for rings
    std::uint32_t test_connections = 16;       // of one test
    std::uint32_t test_connections_first = 4;  // that a test begins with
    std::uint64_t test_bytes = 64ull << 20;    // payload of one test, at most
    std::uint32_t test_frame_least = 1u << 10;
    std::uint32_t test_frame_most = 256u << 10;
    std::uint32_t search_steps = 200'000;            // of the search for a ring in one event: about a millisecond
    std::uint64_t search_answer_steps = 50'000'000;  // of one group's search while callers wait for it
    // Of one group's search in total. After the answer it goes on in the background, a piece per tick.
    std::uint64_t search_background_steps = 1'000'000'000;

    // Of the largest all-reduce of two members that is pairwise. `near`: they have a short path to each other.
    std::uint64_t pairwise_bytes(bool near) const {
        return near ? std::min(near_pairwise_bytes_max, pairwise_bytes_max) : pairwise_bytes_max;
    }

    // Slices that a sender may have in flight before the neighbour's ready. A reserve has room for as many.
    std::uint32_t eager_slices() const { return eager_bytes / slice_bytes; }
    std::uint32_t near_eager_slices() const { return std::min(near_eager_bytes / slice_bytes, eager_slices()); }
};

// Names limits with which no machine can work; null: there are none. Constructors of machines assert it. Code that
// reads scenarios checks it before and reports an error.
constexpr const char* impossible(const Limits& l) {
    if (l.removed_kept == 0 || l.former_tokens_max == 0) return "removed_kept and former_tokens_max of at least 1";
    if (l.votes_listed == 0 || l.operations_listed == 0 || l.removals_listed == 0 || l.members_named == 0)
        return "at least 1 of what the status lists";
    if (l.slots_max == 0 || l.inputs_ready == 0) return "slots_max and inputs_ready of at least 1";
    if (l.copy_bytes == 0 || l.copies_in_flight == 0) return "copy_bytes and copies_in_flight of at least 1";
    if (l.chunk_requests_max == 0 || l.hash_lists_in_flight == 0 || l.hashes_first == 0)
        return "chunk_requests_max, hash_lists_in_flight and hashes_first of at least 1";
    if (l.digest_block_bytes == 0) return "digest_block_bytes of at least 1";
    if (l.sources_active_max == 0 || l.sources_active_max > l.sources_max)
        return "sources_active_max from 1 to sources_max";
    if (l.holders_told_max == 0 || l.holders_told_again_max == 0)
        return "holders_told_max and holders_told_again_max of at least 1";
    if (l.abandoned_stagings_max == 0) return "abandoned_stagings_max of at least 1";
    if (l.test_connections_first == 0) return "test_connections_first of at least 1";
    if (l.test_frame_least == 0 || l.test_frame_least > l.test_frame_most)
        return "test_frame_least from 1 to test_frame_most";
    if (l.search_steps == 0 || l.search_answer_steps == 0) return "search_steps and search_answer_steps of at least 1";
    return nullptr;
}

}  // namespace pccl::core
