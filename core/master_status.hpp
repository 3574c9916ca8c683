// What a master can tell somebody who looks on: who is in, the rings, what runs, who waits for whom. A copy in plain types
// that nothing in the protocol reads; bounded whatever the peers do. Instants are those of the master's driver.
//
// Counters begin anew with the master's process: they are not promised, so the journal does not hold them.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pccl::core {

struct MasterStatus {
    // The first vote that a member waits in, if any.
    struct Call {
        const char* kind = "";
        std::optional<Tag> tag;
        Instant since = 0;
        std::uint32_t others = 0;  // votes of the same member beside it
    };
    enum class PeerState : std::uint8_t {
        joining,      // registered, not admitted yet
        unreachable,  // the same, but the members and it cannot connect
        member,
        resuming,  // its link is new and it has not said yet what it waits for
        absent     // its link is closed; the seat is kept for a while
    };
    struct Peer {
        Uuid uuid;
        Endpoint endpoint;
        GroupId group = 0;
        PeerState state = PeerState::joining;
        Instant since = 0;  // registered, or accepted, or taken up from the journal
        Instant heard = 0;  // what came last from it; of an absent one: when its link closed
        bool synced = false;
        std::optional<Call> call;
    };
    struct Edge {  // from a ring's member to the next one
        bool up = false;
        std::uint64_t bytes_per_second = 0;  // 0: not measured
        Instant measured = 0;
    };
    struct Operation {
        OpId id = 0;
        Tag tag = 0;
        std::uint32_t world = 0;
        std::optional<Instant> started;  // nothing of those that an earlier process of the master started
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
        std::uint64_t refused = 0;          // never started: shapes that differ, nobody else left, given up
        std::uint64_t committed_bytes = 0;  // of one member's input
        std::uint64_t syncs = 0;            // ended with at least one success
    };
    struct Group {
        GroupId id = 0;
        std::vector<Uuid> ring;
        std::vector<Edge> edges;  // as many
        std::uint64_t expected_revision = 0;
        std::uint32_t running = 0;
        std::vector<Operation> operations;  // the oldest of those that run
        std::optional<Sync> sync;
        Tally tally;
    };
    struct Vote {
        const char* kind = "";
        std::optional<GroupId> group;  // nothing: of the whole run
        std::optional<Tag> tag;
        Instant opened = 0;
        Instant changed = 0;
        std::uint32_t voted = 0;
        std::uint32_t missing = 0;    // 0: complete, and held back by a place, the ring or a grace
        std::vector<Uuid> waits_for;  // some of those
    };
    struct Removal {
        Uuid uuid;
        std::string reason;
        Instant at = 0;
    };

    Uuid run;
    std::uint32_t incarnation = 0;
    std::uint64_t epoch = 0;
    std::uint64_t decisions = 0;
    Instant started = 0;
    std::optional<Instant> grace_until;    // restarted, and some members may still resume
    std::optional<Instant> journal_waits;  // since when the disk has not answered, while records wait for it
    bool stopped = false;
    bool optimizes = false;
    std::uint32_t tests_running = 0;
    std::uint64_t admitted = 0;
    std::uint64_t removed = 0;
    std::uint64_t frames_refused = 0;
    std::uint32_t strangers = 0;  // links that have not said who they are
    std::vector<Peer> peers;      // members and joiners
    std::vector<Group> groups;
    std::uint64_t votes_open = 0;
    std::vector<Vote> votes;        // the oldest of them
    std::vector<Removal> removals;  // the last ones
};

}  // namespace pccl::core
