// Whose shared state wins, who receives what, who has to go: a pure function of what the members submitted.
//
// Rules of the contract, in this order: who is ahead of the expected revision goes; where one member says ENFORCE_POPULAR,
// those that do not go; who is outdated and never receives (SEND_ONLY) goes; then a minority in names, types and flags; then
// SEND_ONLY members with another content than the winner. Winners are chosen among members that are not RECEIVE_ONLY and
// hold the expected revision: those that completed a sync of this run outrank those that did not; within a rank the most
// common wins, then the longest accepted member. A rule never removes all members, nor the last one that is not outdated:
// then all are refused, and so are all where nobody is left who may send.
#pragma once

#include "core/base/ids.hpp"
#include "core/events.hpp"

#include <string>
#include <vector>

namespace pccl::core {

struct EntryInfo {
    std::string name;
    std::uint64_t count = 0;
    DataType type = DataType::u8;
    bool allow_content_inequality = false;
    Hash128 hash;
    friend bool operator==(const EntryInfo&, const EntryInfo&) = default;
};

// Over names, types, counts and flags; the second also over the hashes of the entries that are compared.
Hash128 schema_digest(const std::vector<EntryInfo>& entries);
Hash128 content_digest(const std::vector<EntryInfo>& entries);

struct Candidate {
    Uuid uuid;
    std::uint64_t seniority = 0;
    bool synced = false;
    std::uint64_t revision = 0;
    SyncStrategy strategy = SyncStrategy::enforce_popular;
    Hash128 content;
    const std::vector<EntryInfo>* entries = nullptr;  // null only when all contents are equal and nobody lacks an entry
};

struct Verdict {
    Uuid uuid;
    Result result = Result::success;
    bool removed = false;
    std::string reason;
    struct Fetch {
        std::uint32_t entry = 0;   // canonical index
        Hash128 hash;              // of the winner's content
        bool any_content = false;  // allow_content_inequality: not compared, comes whole from one holder
    };
    std::vector<Fetch> fetch;
};

struct Election {
    bool failed = false;         // nobody succeeds, the expected revision stays
    std::uint64_t revision = 0;  // what the successful ones hold afterwards
    std::vector<Verdict> verdicts;
    std::vector<Uuid> holders;  // that may send; longest accepted first
};

Election elect(const std::vector<Candidate>& candidates, std::uint64_t expected);

}  // namespace pccl::core
