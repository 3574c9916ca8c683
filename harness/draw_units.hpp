// Draws limits that are units of work or bounds of tables. If they are small, second pages, copies and windows are
// common, and tables are full.
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"

namespace pccl::harness {

// The field of Limits, the least and the most in scenario text, and the most that draw_units() draws. The least that it
// draws is that of the text.
#define PCCL_UNIT_LIMITS(X)                                                                                            \
    X(removed_kept, 1, 1 << 20, 3)                                                                                     \
    X(former_tokens_max, 1, 1024, 16)                                                                                  \
    X(joiner_reports_at_once, 0, 1 << 20, 3)                                                                           \
    X(votes_listed, 1, 1 << 20, 3)                                                                                     \
    X(operations_listed, 1, 1 << 20, 3)                                                                                \
    X(removals_listed, 1, 1 << 20, 3)                                                                                  \
    X(members_named, 1, 1 << 20, 3)                                                                                    \
    X(slots_max, 1, 1 << 20, 8)                                                                                        \
    X(inputs_ready, 1, 1 << 20, 3)                                                                                     \
    X(batch_failures_at_once, 0, 1 << 20, 2)                                                                           \
    X(copy_bytes, 1, std::int64_t{1} << 40, 4096)                                                                      \
    X(copies_in_flight, 1, 1 << 20, 3)                                                                                 \
    X(chunk_requests_max, 1, 1 << 20, 4)                                                                               \
    X(digest_block_bytes, 1, 1 << 30, 256)                                                                             \
    X(early_requests_max, 0, 1 << 20, 3)                                                                               \
    X(hash_lists_in_flight, 1, 1 << 20, 2)                                                                             \
    X(sources_active_max, 1, 1 << 20, 2)                                                                               \
    X(sources_max, 1, 1 << 20, 3)                                                                                      \
    X(holders_told_max, 1, 1 << 20, 3)                                                                                 \
    X(holders_told_again_max, 1, 1 << 20, 3)                                                                           \
    X(abandoned_stagings_max, 1, 1 << 20, 1)                                                                           \
    X(test_frame_least, 1, 1 << 24, 2048)                                                                              \
    X(test_frame_most, 1, 1 << 24, 8192)                                                                               \
    X(search_answer_steps, 1, std::int64_t{1} << 40, 1'000'000)                                                        \
    X(search_background_steps, 0, std::int64_t{1} << 40, 1'000'000)                                                    \
    X(hashes_first, 1, 1 << 20, 8)                                                                                     \
    X(near_eager_bytes, 0, 1 << 30, 4096)                                                                              \
    X(near_slots_bytes, 0, 1 << 30, 4096)                                                                              \
    X(vote_input_bytes_max, 0, 1 << 20, 512)                                                                           \
    X(vote_inputs_launched, 0, 1 << 20, 3)                                                                             \
    X(vote_inputs_held_bytes, 0, std::int64_t{1} << 40, 16'384)                                                        \
    X(vote_results_untold, 0, 1 << 20, 3)                                                                              \
    X(long_path, 0, 1'000'000'000, 1'000)                                                                              \
    X(unequal_parts_bytes_min, 0, std::int64_t{1} << 40, 4096)                                                         \
    X(test_connections_first, 1, 64, 3)                                                                                \
    X(direct_peers_max, 0, 1 << 20, 4)                                                                                 \
    X(vote_inputs_open_bytes, 0, 1 << 30, 1024)

// Draws each of these limits small with this chance.
void draw_units(core::Limits& limits, sim::Draw& draw, std::uint32_t per_million);
void take_units(core::Limits& to, const core::Limits& from);
// Changes the limits so that they fit together and a correct run ends within its patience.
void fit_units(Scenario& scenario);

// A shared state with about as many entries as the limit allows, with long names.
void draw_many_entries(Scenario& scenario, std::uint32_t on);
// Operations of more than 2^32 elements. Payload is symbolic: it has lengths and no content.
void draw_huge_counts(Scenario& scenario, std::uint32_t on, std::uint32_t peers_max);
bool is_huge(const Scenario& scenario);

}  // namespace pccl::harness
