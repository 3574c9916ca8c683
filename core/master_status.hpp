// The status of a master, for spectators: members, rings, running operations, and open votes with the members that they
// wait for. It is a copy in plain types, and nothing in the protocol reads it. Its size is bounded whatever the peers
// do. Instants are those of the master's driver.
//
// Counters start at zero with the master's process: they are not promised, so the journal does not hold them.
#pragma once

#include "core/base/cause.hpp"
#include "core/base/ids.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pccl::core {

struct MasterStatus {
    // The first open vote of a member, if any.
    struct Call {
        const char* kind = "";
        std::optional<Tag> tag;
        Instant since = 0;
        std::uint32_t others = 0;  // number of the member's other open votes
    };
    enum class PeerState : std::uint8_t {
        joining,      // registered, not admitted yet
        unreachable,  // joining, but the members and this peer cannot connect to each other
        member,
        resuming,  // its link is new and it has not declared its open votes yet
        absent     // its link is closed; the master keeps its seat for a while
    };
    struct Peer {
        Uuid uuid;
        Endpoint endpoint;
        GroupId group = 0;
        PeerState state = PeerState::joining;
        Instant since = 0;  // when it registered, was admitted, or was taken up from the journal
        Instant heard = 0;  // when its last message came; for an absent member: the start of its absence
        bool synced = false;
        std::optional<Call> call;
        std::string gang;  // empty: none
        std::uint32_t place = 0;
        std::uint64_t host = 0;  // equal at peers that say that they share a host; 0: not known
    };
    // One whose newcomers wait, or one that is admitted. Both may have the same name, while the processes of the second
    // one are started again.
    struct Gang {
        std::string name;
        std::uint32_t size = 0;
        bool admitted = false;
        bool awaits_former = false;              // the admitted gang of the same name has to end before
        std::uint32_t taken = 0;                 // places
        std::vector<std::uint32_t> missing;      // some of the places that nobody has taken
        std::vector<std::uint32_t> unreachable;  // some of the places that the members cannot connect to
    };
    struct Edge {  // from a member to its successor in the ring
        bool up = false;
        std::uint64_t bytes_per_second = 0;  // 0: not measured
        Instant measured = 0;
    };
    struct Operation {
        OpId id = 0;
        Tag tag = 0;
        std::uint32_t world = 0;
        std::optional<Instant> started;  // unset: an earlier process of the master started it
        std::uint64_t bytes = 0;         // of one member's input; 0: unknown
    };
    struct Sync {
        std::uint64_t revision = 0;
        std::uint32_t members = 0;
        std::uint32_t holders = 0;
    };
    struct Tally {
        std::uint64_t started = 0;
        std::uint64_t committed = 0;
        std::uint64_t aborted = 0;
        std::uint64_t refused = 0;          // never started: shapes differ, no other member left, or given up
        std::uint64_t committed_bytes = 0;  // of one member's input
        std::uint64_t syncs = 0;            // ended with at least one success
    };
    struct Group {
        GroupId id = 0;
        std::vector<Uuid> ring;
        std::vector<Edge> edges;  // edges[i] starts at ring[i]
        std::uint64_t expected_revision = 0;
        std::uint32_t running = 0;
        std::vector<Operation> operations;  // the oldest running ones
        std::optional<Sync> sync;
        Tally tally;
    };
    struct Vote {
        const char* kind = "";
        std::optional<GroupId> group;  // unset: a vote of the whole run
        std::optional<Tag> tag;
        Instant opened = 0;
        Instant changed = 0;
        std::uint32_t voted = 0;
        std::uint32_t missing = 0;    // 0: complete, but a limit, the ring or a grace holds it back
        std::vector<Uuid> waits_for;  // some of the missing members
    };
    struct Removal {
        Uuid uuid;
        Cause cause;
        Instant at = 0;
    };

    Uuid run;
    std::uint32_t incarnation = 0;
    std::uint64_t epoch = 0;
    std::uint64_t decisions = 0;
    Instant started = 0;
    std::optional<Instant> grace_until;    // set after a restart, while some members may still resume
    std::optional<Instant> journal_waits;  // since when the disk has not answered; unset: no record waits for it
    bool stopped = false;
    bool optimizes = false;
    std::uint32_t tests_running = 0;
    std::uint64_t admitted = 0;
    std::uint64_t removed = 0;
    std::uint64_t frames_refused = 0;
    std::uint32_t strangers = 0;  // links without a hello yet
    std::vector<Peer> peers;      // members and joiners
    std::vector<Group> groups;
    std::vector<Gang> gangs;  // admitted ones first
    std::uint64_t votes_open = 0;
    std::vector<Vote> votes;        // the oldest open ones
    std::vector<Removal> removals;  // the latest ones
};

}  // namespace pccl::core
