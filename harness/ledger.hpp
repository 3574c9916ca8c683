// What applications did and saw. Oracles look at nothing else.
//
// A process is one start of a node. A life is one membership: from a successful connect until the membership is lost or
// left.
#pragma once

#include "core/base/gang.hpp"
#include "core/events.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace pccl::harness {

using core::Instant;

inline constexpr Instant open_end = core::never;  // a call that never returned

struct Life {
    std::uint32_t process = 0;
    core::GroupId group = 0;
    core::Gang gang;
    core::Uuid peer;       // its name in the run; nil: not known
    Instant asked_at = 0;  // connect was called
    Instant connected_at = 0;
    Instant member_until = 0;  // the latest begin of a call that succeeded: it was a member at least until then
    bool lost = false;         // the application learned that it is no member any more
    Instant lost_at = 0;       // when its machine learned it
    bool ended = false;        // left, or died with its process, whatever it had learned by then
    // From then on it was no member as far as it knew: it was lost, left, was refused, or died with its process.
    Instant gone_at = open_end;
    Instant leaves_at = open_end;  // the begin of the call with which it left; the application may see the result later
    std::uint32_t node = 0;
    bool refused = false;                           // connect failed
    bool refused_revision = false;                  // by the rule of revisions
    core::Duration idle_longest = 0;                // the longest time in which the program was in no call
    std::vector<std::pair<Instant, Instant>> idle;  // such times that were longer than the limit on votes
    bool liar = false;                              // it lied while it was a member
    std::vector<core::Cause> causes;                // of the loss: of the call that failed, and of the one after it
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

// In the order in which they began. A fact is large, so it stays where it is when the list grows.
template <class Fact>
using Facts = std::deque<Fact>;

struct VoteFact {  // connect, update_topology, are_peers_pending, optimize
    CallKind kind = CallKind::connect;
    std::uint32_t process = 0;
    std::uint32_t life = 0;
    Instant begin = 0;
    Instant answered = open_end;  // when the machine answered; the application sees the answer at `end`
    Instant end = open_end;
    core::Completion completion;
};

struct LaunchFact {
    std::uint32_t process = 0;
    std::uint32_t life = 0;
    core::GroupId group = 0;
    core::Tag tag = 0;
    core::ReduceShape shape;
    core::Collective collective;
    std::uint32_t group_world = 0;  // that the application knew at the launch
    bool in_place = false;
    Instant begin = 0;
    Instant awaited = 0;     // the begin of the await; 0: there was none
    Instant end = open_end;  // the end of the await
    core::Completion completion;
    std::vector<std::uint8_t> input;
    std::vector<std::uint8_t> output;  // after success; pieces are in the order of indices
};

struct SyncFact {
    std::uint32_t process = 0;
    std::uint32_t life = 0;
    core::GroupId group = 0;
    Instant begin = 0;
    Instant answered = open_end;  // when the machine answered; the application sees the answer at `end`
    Instant end = open_end;
    std::uint64_t revision = 0;  // submitted
    std::uint32_t schema = 0;    // 0: that of the others; else in what it differs (Process::odd_schema)
    core::SyncStrategy strategy = core::SyncStrategy::enforce_popular;
    core::Completion completion;
    std::vector<std::uint8_t> before, after;          // all entries that must be equal, concatenated
    std::vector<std::uint8_t> own_before, own_after;  // entries that may differ
    std::uint64_t changed_bytes = 0;                  // of all entries, in whole chunks
};

struct Ledger {
    std::vector<Life> lives;
    Facts<VoteFact> votes;
    Facts<LaunchFact> launches;
    Facts<SyncFact> syncs;
    // A stranger asked to be a member. It may be counted as one until some time after its last message.
    struct StrangerHello {
        Instant at = 0;
        Instant last_said = 0;
        std::string name;  // as in the log; empty if a peer's hello was replayed
    };
    std::vector<StrangerHello> stranger_hellos;
    // Members that lied, and when one sent bytes or an input of which nobody can tell that they are false.
    struct Liar {
        std::uint32_t node = 0;
        Instant from = 0, until = open_end;
    };
    std::vector<Liar> liars;
    std::vector<std::pair<std::uint32_t, Instant>> false_bytes;  // node, time
    // A lost member of a run with liars got an answer that only a member gets. A liar gets answers to votes that it has
    // made up, under the serials of its true ones. Judged when the liars are known.
    std::vector<std::pair<std::uint32_t, std::string>> answered_alone;  // life, complaint
    // A vote in which a liar submitted shared state under another revision or strategy than its program.
    struct FalseVote {
        std::uint32_t node = 0;
        Instant at = 0;
        std::uint64_t revision = 0;
        core::SyncStrategy strategy = core::SyncStrategy::enforce_popular;
        bool again = false;  // that of its program, under another serial
    };
    std::vector<FalseVote> false_votes;
    // The operator revoked the certificate of this peer.
    struct Revocation {
        core::Uuid peer;
        std::uint32_t node = 0;
        Instant at = 0;
        std::string open_to;  // members that still had a connection with it a second later, though nothing kept them
    };
    std::vector<Revocation> revocations;
    Instant disturbed_at = open_end;  // the first fault
    Instant work_over_at = open_end;  // the goals are reached, or the programs are told to end
    // Real programs read their attributes after the call has returned. If the membership is lost in between, they read
    // a world of 1.
    bool attributes_read_late = false;

    // The life ended: the membership was lost or left, or the process died. Nothing shows that it was a member at
    // `time` or later.
    bool gone_by(std::uint32_t life, Instant time) const {
        return (lives[life].lost || lives[life].ended) && lives[life].member_until < time;
    }
    // The failure may be that of a departing member: the world read 1 afterwards, and the life ended.
    bool departed(std::uint32_t life, const core::Completion& completion, Instant end) const {
        return completion.attributes.global_world <= 1 && gone_by(life, end);
    }
    // Whether a member lied in that time, or until shortly before.
    bool lied(Instant from, Instant until) const {
        return std::any_of(liars.begin(), liars.end(),
                           [&](const Liar& liar) { return liar.from < until && from < liar.until; });
    }
    std::string name(std::uint32_t life) const;
};

}  // namespace pccl::harness
