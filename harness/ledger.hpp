// What applications did and saw: the only thing oracles look at.
//
// A process is one start of a node; a life is the time from a successful connect to the loss (or leaving) of that membership.
#pragma once

#include "core/events.hpp"

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
    // From then on it was no member by its own knowledge: it was lost, left, was refused, or died with its process.
    Instant gone_at = open_end;
    Instant leaves_at = open_end;  // the call with which it left; the application may look at its result later
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
    Instant awaited = 0;     // that call began; 0: for its result nobody waited
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
    std::uint64_t changed_bytes = 0;                  // of all entries, in whole chunks
};

struct Ledger {
    std::vector<Life> lives;
    std::vector<VoteFact> votes;
    std::vector<LaunchFact> launches;
    std::vector<SyncFact> syncs;
    // Somebody else asked to be a member, and may have been counted as one until some time after it said the last thing.
    struct StrangerHello {
        Instant at = 0;
        Instant last_said = 0;
        std::string name;  // as the log has it; empty: that of a peer whose hello was replayed
    };
    std::vector<StrangerHello> stranger_hellos;
    Instant disturbed_at = open_end;  // the first fault
    // Real programs read their attributes when the call has returned. A membership that is lost in between reads 1 then.
    bool attributes_read_late = false;

    // The life ended without leaving its call in order: it was lost, left, or died with its process. Nothing shows that it
    // was a member at that time or later.
    bool gone_by(std::uint32_t life, Instant time) const {
        return (lives[life].lost || lives[life].ended) && lives[life].member_until < time;
    }
    // The failure may be that of a member on its way out: the world read 1 afterwards, and the life ended.
    bool departed(std::uint32_t life, const core::Completion& completion, Instant end) const {
        return completion.attributes.global_world <= 1 && gone_by(life, end);
    }
    std::string name(std::uint32_t life) const;
};

}  // namespace pccl::harness
