// Whose shared state may win, written down naively: the model that the `election` oracle compares with.
//
// Knows what applications submitted and nothing of the protocol. Where the order in which members were accepted cannot be
// told from outside, several contents may win a tie.
#pragma once

#include "harness/ledger.hpp"

#include <vector>

namespace pccl::harness {

struct Submission {
    const SyncFact* fact = nullptr;
    bool veteran = false;     // of an earlier success in the same membership
    Instant asked_at = 0;     // accepted not before this
    Instant accepted_by = 0;  // nor after this
};

// All of `group` took part, nobody was removed, and all were told this revision.
bool may_win(const std::vector<Submission>& group, std::uint64_t revision, const std::vector<std::uint8_t>& content);
// The same with some of `unknown` beside them, at least one. With more than 10 of those: true.
bool may_win_with_some(const std::vector<Submission>& group, const std::vector<Submission>& unknown,
                       std::uint64_t revision, const std::vector<std::uint8_t>& content);

// Empty, or the rule about strategies that this success and another one of the same synchronization break.
const char* broken_strategy(const SyncFact& own, const SyncFact& other);
// Empty, or what this success tells that its strategy excludes.
const char* broken_strategy(const SyncFact& own);

}  // namespace pccl::harness
