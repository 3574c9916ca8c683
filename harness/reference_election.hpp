// A naive model of the election of shared state: which contents may win. The `election` oracle compares results with
// it.
//
// It uses only what applications submitted, and no protocol code. The order in which members were accepted may not be
// visible from outside. Then several contents may win a tie.
#pragma once

#include "harness/ledger.hpp"

#include <vector>

namespace pccl::harness {

struct Submission {
    const SyncFact* fact = nullptr;
    std::uint64_t revision = 0;  // these two: as the master was told
    core::SyncStrategy strategy = core::SyncStrategy::enforce_popular;
    bool veteran = false;     // had an earlier success in the same membership
    Instant asked_at = 0;     // accepted not before this
    Instant accepted_by = 0;  // nor after this

    bool offers(std::uint64_t elected) const {
        return strategy != core::SyncStrategy::receive_only && revision == elected;
    }
};

// Requires that all of `group` took part, that nobody was removed, and that all got this revision.
bool may_win(const std::vector<Submission>& group, std::uint64_t revision, const std::vector<std::uint8_t>& content);
// The same if at least one of `unknown` took part too, for any choice of them. True if there are more than 10 of those.
bool may_win_with_some(const std::vector<Submission>& group, const std::vector<Submission>& unknown,
                       std::uint64_t revision, const std::vector<std::uint8_t>& content);

// Null, or the rule about strategies that these two successes of the same synchronization break.
const char* broken_strategy(const SyncFact& own, const SyncFact& other);
// Null, or what this success reports although its strategy excludes it.
const char* broken_strategy(const SyncFact& own);

}  // namespace pccl::harness
