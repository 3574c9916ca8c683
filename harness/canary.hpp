// Tests the oracles themselves: runs of one quiet scenario (some lies change it a little) with falsified observations.
//
// A broken oracle would pass every run, and nothing else in this tree would show it. Each lie falsifies a little of
// what the application saw. The oracle that belongs to the lie must report it. Without a lie, no oracle may report
// anything.
#pragma once

#include "harness/ledger.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::harness {

enum class Lie : std::uint8_t {
    none,
    value_of_all,        // the same wrong byte in the results of all members
    parity_of_one,       // a wrong byte in the result of one member
    outcome_of_one,      // a committed operation failed for one member
    world_of_one,        // the world of an operation is one larger for one member
    input_overwritten,   // an operation out of place changed its input
    output_overwritten,  // buffers change after the call has returned
    state_of_one,        // a synchronization gave one member other content
    state_of_all,        // a synchronization gave all members content that nobody had
    sync_of_one,         // a synchronization failed for one member
    revision_skipped,    // a revision number is left out
    revision_refused,    // the next revision was refused
    world_too_large,     // an update counts a member that does not exist
    world_too_small,     // an update leaves a member out
    pending_to_one,      // one member gets another answer about pending peers
    lost_for_nothing,    // a member was lost though no fault touched it
    sender_received,     // a send-only member reports received bytes
    part_not_written,    // a part of a symbolic result was never written
    never_ends,          // an application never ends
    goes_round,          // the check for stillness ignores all progress
    answered_twice,      // a call was answered twice
    window_passed,       // a call for many tags exceeded its window by one operation
    // Lies of the simulated world, not of the application.
    held_at_rest,   // a machine holds a byte although its program has ended
    kept_at_rest,   // a machine without a call, a link or an operation keeps an entry in a table
    record_lost,    // the journal lacks its last record
    memory_most,    // a machine held more memory than its limits allow
    damage_borne,   // a machine keeps a connection over which payload came damaged
    snapshot_lost,  // the journal gets no snapshot
    // Violations that an excuse must not hide.
    failed_and_stayed,            // an operation failed for one member, which read a world of one and stayed a member
    unknown_voter_overruled,      // content won that not even the vote of a member that died meanwhile explains
    liar_offered_later,           // content won that a liar offered falsely, but only after the call
    groups_of_one,                // a newcomer's first update differs, although the others updated at the same time
    stranger_counted,             // a world still counts a stranger that fell silent long before
    starved_after_slow_computes,  // an error says that a peer sends nothing, long after a fault slowed its computes
    given_up_too_soon,            // a call was given up before the limit on votes had passed
    nobody_went,                  // an operation failed because all others were gone, but nobody was
    never_apart,                  // an operation failed because two members could not connect, but they could
    vote_after_a_reset,           // a member was removed for its vote because one of its links was reset once
    told_of_no_stop,              // a member reports that the master was stopped on purpose, but it was not
    not_told_of_a_stop,           // a member with a good link learned of a stop only from the next run
    revoked_carried_out,          // a call of a member was carried out after its certificate had been revoked
    revoked_open,                 // a member kept its connection with a revoked one
    told_of_no_revocation,        // a member was told that its certificate was revoked, but it was not
    // Numbers and times.
    newcomer_waits,      // a newcomer is never admitted, although members update
    received_of_one,     // one member reports one received byte too many
    ring_dearer,         // an optimize left a ring that costs twice as much as the real one
    sync_received,       // a synchronization changed a member's state but reports no received bytes
    status_of_before,    // the master's status shows an older epoch than members have reached
    update_not_counted,  // a member's statistics lack an update of the topology
    begin_untold,        // the master's status does not say since when an operation runs
    unexplained,         // a call failed without a cause
    optimized_alone,     // an optimize succeeded for a run of one member
    launched_less,       // members launched fewer bytes than the master's status says were committed
    waited_for_a_tick,   // an operation returned milliseconds after its last bytes
    waited_for_a_reset,  // an operation returned seconds later than one broken connection explains
    fails_for_nothing,   // operations failed for all members without a cause
    no_detour,           // operations fail for all members again and again, because of one edge
    waits_for_an_idler,  // a call waits much longer than the limit on votes for a program that makes none
    // What machines alone see.
    state_lost,           // the members elected again, although one had received all of the state
    given_up_by_master,   // the master gave up a collective that no lasting fault touched
    newcomer_superseded,  // a newcomer was refused as if another process had its seat
    turned_away,          // a newcomer was refused because of translators, and there was none
    impatient_gang,       // a newcomer without a gang was refused because places of it were missing
    two_schemas,          // members with different entries synchronized with each other
    sizes_apart,          // an operation tells another number of groups than the update before it
    pending_for_nobody,   // all members are told that peers are pending, and none is
    let_through,          // an update beside a launched tag was carried out
    warned_again,         // the master warns of a vote a second time
    voter_named,          // the master waits for a member that has voted
    // Collectives other than an all-reduce.
    gather_of_all,          // the same wrong byte in what all members gathered
    gather_of_one,          // a wrong byte in what one member gathered
    scatter_of_one,         // a wrong byte in a member's piece of a reduction
    gather_failed,          // an all-gather failed for one member
    piece_of_one,           // one member was told another count for a piece
    another_index,          // one member was told the index of another one
    younger_first,          // all members were told the members in another order
    stranger_gathered,      // all members were told of a member that did not take part
    rest_written,           // bytes behind the result changed
    gathered_of_one,        // one member reports one received byte too many
    root_blamed,            // a broadcast was refused because its root was no member, but it was
    same_refused,           // a broadcast was refused because members differed, but they did not
    gathered_at_root,       // a wrong byte in what the root of a gather got
    scattered_to_one,       // a wrong byte in a member's piece of a scatter
    exchanged_by_one,       // a wrong byte in what one member of an all_to_all got
    count_exchanged,        // one member of an all_to_all was told another count for a piece
    gathered_before_a_lie,  // the same wrong byte in what all gathered, and a member lied later
    gathered_apart,         // a wrong byte in what one member gathered, beside a liar
    sent_to_one,            // a wrong byte in what the receiver of a send got
    sent_before_a_lie,      // the same, and a member lied later
    send_failed,            // a send failed at its sender alone
    sent_to_another,        // a send names an end that it did not have
    sent_received,          // a byte more received by a send
    room_blamed,            // a send refused because its receiver had no room, which it had
    end_blamed,             // a send refused because an end was no member, which it was
    count
};

// Falsifies the ledger as `lie` demands. Called after the run.
void tamper(Ledger& ledger, Lie lie);

struct CanaryLine {
    std::string lie;
    std::string expected;  // oracle; empty: none
    std::string reported;
    bool caught() const { return expected == reported; }
};
std::vector<CanaryLine> run_canary();

}  // namespace pccl::harness
