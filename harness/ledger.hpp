// What applications did and saw: the only thing oracles look at.
//
// A process is one start of a node; a life is the time from a successful connect to the loss (or leaving) of that membership.
#pragma once

#include "core/events.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace pccl::harness {

using core::Instant;

inline constexpr Instant open_end = core::never;  // a call that never returned

struct Life {
    std::uint32_t process = 0;
    core::GroupId group = 0;
    Instant asked_at = 0;  // connect was called
    Instant connected_at = 0;
    Instant member_until = 0;  // the latest begin of a call that succeeded: it was a member at least until then
    bool lost = false;         // the application found itself outside
    Instant lost_at = 0;       // when its machine did
    bool ended = false;        // left, or died with its process, whatever it knew by then
    std::uint32_t node = 0;
    bool refused = false;             // connect failed
    bool refused_revision = false;    // by the rule of revisions
    core::Duration idle_longest = 0;  // the longest time in which the program waited in no call
    std::string reason;
};

enum class CallKind : std::uint8_t {
    connect,
    update_topology,
    are_peers_pending,
    launch,
    await,
    sync,
    leave,
    reduce_many,
    optimize
};
const char* to_text(CallKind kind);

struct VoteFact {  // connect, update_topology, are_peers_pending, optimize
    CallKind kind = CallKind::connect;
    std::uint32_t process = 0;
    std::uint32_t life = 0;
    Instant begin = 0;
    Instant end = open_end;
    core::Completion completion;
};

struct LaunchFact {
    std::uint32_t process = 0;
    std::uint32_t life = 0;
    core::GroupId group = 0;
    core::Tag tag = 0;
    core::ReduceShape shape;
    bool in_place = false;
    Instant begin = 0;
    Instant end = open_end;  // of the await
    core::Completion completion;
    std::vector<std::uint8_t> input;
    std::vector<std::uint8_t> output;  // after success
};

struct SyncFact {
    std::uint32_t process = 0;
    std::uint32_t life = 0;
    core::GroupId group = 0;
    Instant begin = 0;
    Instant answered = open_end;  // by the machine; the application looks at it at `end`
    Instant end = open_end;
    std::uint64_t revision = 0;  // submitted
    bool odd_schema = false;     // with a key that the others do not know
    core::SyncStrategy strategy = core::SyncStrategy::enforce_popular;
    core::Completion completion;
    std::vector<std::uint8_t> before, after;          // all entries that must be equal, one behind the other
    std::vector<std::uint8_t> own_before, own_after;  // those that may differ
};

struct Ledger {
    std::vector<Life> lives;
    std::vector<VoteFact> votes;
    std::vector<LaunchFact> launches;
    std::vector<SyncFact> syncs;
    std::vector<Instant> stranger_hellos;  // somebody else asked to be a member, and may have been counted as one
    std::vector<Instant> journal_losses;   // the master forgot what it had promised

    // The failure was seen on the way out, or may have been: the application's world read 1 afterwards and it is not known
    // to have been a member later.
    bool departed(std::uint32_t life, const core::Completion& completion, Instant end) const {
        return completion.attributes.global_world <= 1 && lives[life].member_until <= end;
    }
    // A journal that lost records has lost what was told meanwhile, and tells the rest something else.
    bool journal_lost_between(Instant begin, Instant end) const {
        return std::any_of(journal_losses.begin(), journal_losses.end(),
                           [&](Instant at) { return at >= begin && at <= end; });
    }
    std::string name(std::uint32_t life) const;
};

}  // namespace pccl::harness
