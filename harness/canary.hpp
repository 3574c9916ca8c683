// Proof that the oracles are alive: runs of one quiet scenario in which the application lies to them.
//
// An oracle that has gone blind lets every run hold, and nothing else in this tree would tell. Each lie is a small untruth
// about what the application saw; the oracle it belongs to has to report it, and nobody may complain without a lie.
#pragma once

#include "harness/ledger.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::harness {

enum class Lie : std::uint8_t {
    none,
    value_of_all,        // the same wrong byte in the result of everybody
    parity_of_one,       // a wrong byte in the result of one
    outcome_of_one,      // a committed operation failed for one member
    world_of_one,        // an operation whose world is one larger for one member
    input_overwritten,   // an input differs after an operation out of place
    output_overwritten,  // buffers change after the return
    state_of_one,        // a synchronization gave one member another content
    state_of_all,        // a synchronization gave everybody a content that nobody had
    sync_of_one,         // a synchronization failed for one member
    revision_skipped,    // revisions jump
    revision_refused,    // the next revision was refused
    world_too_large,     // an update counts somebody who is not there
    world_too_small,     // an update leaves a member out
    pending_to_one,      // one member is told something else of pending peers
    lost_for_nothing,    // a member was lost though no fault touched it
    sender_received,     // a member that only sends was told of bytes that it received
    part_not_written,    // of a result without content, a part was never written
    never_ends,          // an application does not come to its end
    goes_round,          // nobody heard of what an application got done
    answered_twice,      // a call was answered twice
    window_passed,       // a call for many tags ran one operation more at a time than it may
    // Of the world, not of the application.
    held_at_rest,  // a machine of which the program has come to its end holds a byte
    kept_at_rest,  // a table of a machine without a call, a link or an operation has an entry left
    record_lost,   // the journal lacks its last record
    memory_most,   // a machine held more memory than its limits allow
    // What an excuse must not hide.
    failed_and_stayed,            // an operation failed for one member, which read a world of one and stayed a member
    unknown_voter_overruled,      // a content won that no vote of a member that died meanwhile explains
    groups_of_one,                // a newcomer's first update tells something else, though the others updated too
    stranger_counted,             // a world counts a stranger that fell silent long before
    starved_after_slow_computes,  // an error says that a peer sends nothing, long after computes of a peer were slow
    given_up_too_soon,            // a call was given up as if the limit on votes had passed
    nobody_went,                  // an operation failed because all others were gone, and none was
    never_apart,                  // an operation failed because two members could not reach each other, and they could
    vote_after_a_reset,           // a member was removed for its vote because one of its links was reset once
    told_of_no_stop,              // a member was told that the master was stopped, and it was not
    not_told_of_a_stop,           // a member with a good link learned only from the next run that its own had ended
    // Numbers.
    newcomer_waits,      // a newcomer was let in long after it could be
    received_of_one,     // an operation with one byte more for one member
    ring_dearer,         // an optimize left a ring twice as dear as it did
    sync_received,       // a synchronization that changed the state of a member, and brought it nothing
    status_of_before,    // the master's status shows an epoch that members have left behind
    update_not_counted,  // a member's statistics lack an update of the topology
    waited_for_a_tick,   // an operation returned some milliseconds later than its last bytes
    waited_for_a_reset,  // an operation returned seconds later than a connection that broke once could make it
    fails_for_nothing,   // operations failed for all members, and nothing had happened
    count
};

// What the application claims to have seen, once the run is over.
void tamper(Ledger& ledger, Lie lie);

struct CanaryLine {
    std::string lie;
    std::string expected;  // oracle; empty: nobody
    std::string reported;
    bool caught() const { return expected == reported; }
};
std::vector<CanaryLine> run_canary();

}  // namespace pccl::harness
