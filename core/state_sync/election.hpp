// The election of a shared state: which content wins, which members receive it, which members are removed. A pure
// function of what the members submitted. It compares digests (state_digest.hpp), so one entry costs as much as a
// million.
//
// Rules of the contract, in this order:
// 1. Members with a revision above the expected one are removed.
// 2. If one member uses ENFORCE_POPULAR, members with another strategy are removed.
// 3. SEND_ONLY members with an older revision are removed, because they never receive.
// 4. Members whose names, types, counts and flags are not the winner's are removed.
// 5. SEND_ONLY members whose content is not the winner's are removed.
// The winners (schema first, then content) come from members that are not RECEIVE_ONLY and hold the expected revision.
// Members that completed a sync of this run outrank the others. Within a rank the most common value wins, on a tie that
// of the longest accepted member. A rule that would leave no member with the expected revision removes nobody: the call
// fails for all. It also fails for all if no member is left that may send. The gang of a removed member goes with it, so
// its other places are neither elected nor left.
#pragma once

#include "core/base/ids.hpp"
#include "core/events.hpp"

#include <string>
#include <vector>

namespace pccl::core {

struct Candidate {
    Uuid uuid;
    std::uint64_t seniority = 0;
    bool synced = false;
    std::uint64_t revision = 0;
    SyncStrategy strategy = SyncStrategy::enforce_popular;
    Hash128 schema;
    Hash128 content;
    bool unequal = false;    // some of its entries may differ between members
    std::string gang = {};   // its name; empty: none
    std::string difference;  // how its schema differs from the winner's; only for the text sent to this member
};

struct Verdict {
    Uuid uuid;
    Result result = Result::success;
    bool removed = false;
    bool schema_differs = false;  // this is why it is removed
    Cause cause;
    bool receives = false;          // it receives the entries whose content differs from the winner's
    bool receives_unequal = false;  // it receives all entries that may differ, whole from one holder
};

struct Election {
    bool failed = false;         // no member succeeds, and the expected revision stays
    std::uint64_t revision = 0;  // the revision of each successful member afterwards
    Uuid winner;                 // nil if the election failed
    Uuid model;                  // with its schema the others were compared; nil: no schema was elected
    Hash128 content;             // of the winner
    std::vector<Verdict> verdicts;
    std::vector<Uuid> holders;  // members that may send; longest accepted first
};

Election elect(const std::vector<Candidate>& candidates, std::uint64_t expected);

}  // namespace pccl::core
