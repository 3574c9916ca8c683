// Whose shared state wins, who receives what, who has to go: a pure function of what the members submitted.
//
// Rules of the contract, in this order: who is ahead of the expected revision goes; where one member says ENFORCE_POPULAR,
// those that do not go; who is outdated and never receives (SEND_ONLY) goes; then a minority in names, types and flags; then
// SEND_ONLY members with another content than the winner. Winners are chosen among members that are not RECEIVE_ONLY and
// hold the expected revision: those that completed a sync of this run outrank those that did not; within a rank the most
// common wins, then the longest accepted member. A rule never removes all members, nor the last one that is not outdated:
// then all are refused, and so are all where nobody is left who may send.
//
// What is compared are digests (state_digest.hpp), so an election costs the same for one entry and for a million.
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
    bool unequal = false;    // some entry may differ
    std::string difference;  // in what its schema differs from the winner's; only told to it
};

struct Verdict {
    Uuid uuid;
    Result result = Result::success;
    bool removed = false;
    bool schema_differs = false;  // the reason of its removal
    std::string reason;
    bool receives = false;          // the entries in which its content differs from the winner's
    bool receives_unequal = false;  // all entries that may differ, whole from one holder
};

struct Election {
    bool failed = false;         // nobody succeeds, the expected revision stays
    std::uint64_t revision = 0;  // what the successful ones hold afterwards
    Uuid winner;                 // nil when it failed
    Hash128 content;             // of the winner
    std::vector<Verdict> verdicts;
    std::vector<Uuid> holders;  // that may send; longest accepted first
};

Election elect(const std::vector<Candidate>& candidates, std::uint64_t expected);

}  // namespace pccl::core
