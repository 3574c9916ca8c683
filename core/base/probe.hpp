// PROBE(name) marks a rare state of the protocol, so that the simulator can count how often its runs reach it.
//
// A state that is never reached is never tested. `sim-run --probes` sums the hits over a range of seeds; a state that
// no seed reaches is a hole in the scenarios. All names are in the table below. In the runtime the handler is null, so
// a probe costs one predictable branch. Put probes at decisions, never in loops over bytes.
#pragma once

#include <cstddef>
#include <cstdint>

// X(name, machine, what happened)
#define PCCL_PROBES(X)                                                                                                 \
    X(peer_slept, "membership", "peer slept and blames nobody")                                                        \
    X(master_slept, "membership", "master slept and blames nobody")                                                    \
    X(welcome_waits_for_the_disk, "membership", "welcome waits for the disk: its member may be silent")                \
    X(vote_clocks_shifted, "membership", "freeze that only votes notice does not count")                               \
    X(idle_by_its_resume, "membership", "member that resumed after the limit and declared no call")                    \
    X(slept_in_grace, "membership", "restarted master slept while members could resume")                               \
    X(stranger_at_a_closed_door, "membership", "connection dropped: this peer is in no run")                           \
    X(dial_timed_out, "membership", "dial was not answered in time")                                                   \
    X(handshake_timed_out, "membership", "link opened and nothing was said in time")                                   \
    X(link_silent, "membership", "silent link closed by a peer")                                                       \
    X(master_turned_newcomer_away, "membership", "the master closed a connection before its welcome")                  \
    X(master_unreachable_at_connect, "membership", "connect failed: no master there")                                  \
    X(lost_in_connect, "membership", "connect failed after the dial")                                                  \
    X(master_link_lost, "membership", "control link lost, dialled again")                                              \
    X(master_dialled_again_in_vain, "membership", "dial to a lost master failed")                                      \
    X(master_dialled_where_it_was, "membership", "back to where a lost master was, after another address")             \
    X(master_given_up, "membership", "master given up after its time")                                                 \
    X(refusal_read, "membership", "master refused or removed this peer")                                               \
    X(edge_declared_again, "membership", "edge reported again after a resume")                                         \
    X(call_after_loss, "membership", "run-wide call of a peer that is lost")                                           \
    X(left_while_leaving, "membership", "left or aborted again while the first time is not over")                      \
    X(left_in_flight, "membership", "left with operations that run")                                                   \
    X(lost_with_open_operation, "membership", "lost with an undecided operation")                                      \
    X(lost_before_start, "membership", "lost while a launch waited for its start")                                     \
    X(lost_after_outcome, "membership", "lost between an outcome and its await")                                       \
    X(lost_in_sync, "membership", "lost in the middle of a synchronization")                                           \
    X(lost_while_applying, "membership", "lost while a decided synchronization is applied")                            \
    X(master_restarted, "membership", "master restarted with members")                                                 \
    X(master_restarted_with_operation, "membership", "master restarted with an open operation")                        \
    X(master_restarted_with_sync, "membership", "master restarted with an open synchronization")                       \
    X(master_restarted_with_untold, "membership", "master restarted with decisions that were not acknowledged")        \
    X(journal_torn, "membership", "last record of a journal was not written in full")                                  \
    X(journal_too_old, "membership", "journal is older than what a peer was told: the run ends")                       \
    X(loss_hidden_by_number, "membership", "journal is older, and newer decisions took the numbers of lost ones")      \
    X(claims_decision_of_nobody, "membership", "member that had come claims a decision that was never made")           \
    X(neighbour_asked_about_end, "all-reduce", "neighbour of a member that does not vote for the end was asked")       \
    X(successor_never_finishes, "all-reduce", "voted against an operation that the successor does not finish")         \
    X(claims_unknown_decisions, "membership", "hello without proof that names decisions the master never made")        \
    X(joiner_impersonated, "membership", "hello in the name of a waiting newcomer, without its token")                 \
    X(data_link_without_proof, "membership", "data link refused: the caller is not the peer that it claims to be")     \
    X(data_link_of_another_identity, "membership", "data link refused: the certificate names another peer")            \
    X(data_link_of_a_revoked_peer, "membership", "data link refused: the certificate of the caller was revoked")       \
    X(hello_of_another_identity, "membership", "hello refused: the certificate names another peer")                    \
    X(group_not_allowed, "membership", "hello refused: the invitation is for another group")                           \
    X(newcomer_revoked, "membership", "waiting newcomer removed: its certificate was revoked")                         \
    X(revoked_before_its_hello, "membership", "connection closed that had said nothing: its certificate was revoked")  \
    X(member_revoked, "membership", "member removed: its certificate was revoked")                                     \
    X(revocation_told_at_resume, "membership", "member told at its resume that a peer was revoked")                    \
    X(stranger_gave_way, "membership", "connection that said nothing closed for a newer one")                          \
    X(stranger_turned_away, "membership", "no place for a new connection: all others are too young to give way")       \
    X(confined_address_refused, "membership", "newcomer refused: it advertises a loopback or link-local address")      \
    X(network_examined, "membership", "somebody asked how the master sees it, and did not join")                       \
    X(two_addresses_told, "membership", "peers that may be in one network are told a second address")                  \
    X(other_address_next, "topology", "a dial to one of two addresses failed, and the other one is dialled")           \
    X(joiner_turned_away, "membership", "newcomer behind a translator turned away: nobody reaches it")                 \
    X(newcomers_take_turns, "membership", "newcomers wait until the members can hold more connections")                \
    X(journal_not_written, "membership", "record could not be written: the master stops")                              \
    X(journal_hangs, "membership", "disk of the journal does not answer: members are told")                            \
    X(journal_given_up, "membership", "disk of the journal has not answered for the limit: the master stops")          \
    X(journal_compacted, "membership", "journal compacted: a snapshot instead of its records")                         \
    X(compacted_with_operation, "membership", "snapshot written with an open operation")                               \
    X(compacted_with_untold, "membership", "snapshot written with decisions that were not acknowledged")               \
    X(snapshot_read, "membership", "master restarted from a snapshot")                                                 \
    X(grace_over_all_resumed, "membership", "grace ended early: everybody resumed")                                    \
    X(grace_ran_out, "membership", "grace ran out")                                                                    \
    X(master_slept_again, "membership",                                                                                \
      "master that slept a short while ago sleeps again: its clocks do not start anew")                                \
    X(edge_flaps, "topology", "edge that opened and broke again and again counts as down all the time")                \
    X(resumed_in_vain, "membership", "link of a member lost before it had resumed, more often than that is excused")   \
    X(resume_waited_for_disk, "membership", "link of a resuming member lost while its welcome waited for the disk")    \
    X(not_resumed_after_restart, "membership", "member removed: it did not resume after a restart")                    \
    X(resumed, "membership", "member resumed its seat")                                                                \
    X(resumed_after_absence, "membership", "member absent, then resumed")                                              \
    X(absent_too_long, "membership", "member absent, then removed")                                                    \
    X(token_confirmed, "membership", "resume token confirmed: the older one is worth nothing")                         \
    X(token_not_confirmed, "membership", "resumed with the older of two tokens")                                       \
    X(resume_was_lost, "membership", "seat proved by a token of the time before the resumes that the journal lost")    \
    X(token_superseded, "membership", "resume with an outdated token refused")                                         \
    X(link_superseded, "membership", "new control link while the old one was open")                                    \
    X(older_dial_refused, "membership", "hello of an older dial")                                                      \
    X(told_again_at_resume, "membership", "decision told again at a resume")                                           \
    X(several_told_again, "membership", "resume answered with several decisions")                                      \
    X(answer_for_absent_member, "membership", "decision kept for a member that is away")                               \
    X(pending_before_update, "voting", "a complete call for pending peers decided before a complete update")           \
    X(held_for_a_record, "membership", "message held until its record is durable")                                     \
    X(held_for_a_lost_link, "membership", "held message dropped: its link is gone")                                    \
    X(refusal_held, "membership", "refusal held until its record is durable")                                          \
    X(refused_removed, "membership", "removed member came back and was refused")                                       \
    X(refused_other_run, "membership", "member of another run was refused")                                            \
    X(joiner_lost, "membership", "joiner vanished before it was admitted")                                             \
    X(joiner_dialled_again, "membership", "joiner came back with a new dial")                                          \
    X(member_silent, "membership", "member removed: silent towards the master")                                        \
    X(silent_in_grace, "membership", "silent link closed during a grace")                                              \
    X(removed_by_both_links, "membership", "member removed at once: control link and a neighbour's word")              \
    X(removed_by_late_word, "membership", "absent member removed by a neighbour's later word")                         \
    X(member_left, "membership", "member left on its own")                                                             \
    X(last_of_group_gone, "membership", "last member of a group gone: its revision starts anew")                       \
    X(last_of_group_gone_with_operation, "membership", "last member of a group gone with an open operation")           \
    X(orphans_admitted, "membership", "joiners admitted without members")                                              \
    X(vote_kept_for_the_master, "voting", "vote cast while the master was away")                                       \
    X(vote_cast_again, "voting", "open vote cast again after a resume")                                                \
    X(vote_used_already, "voting", "vote ignored: its serial was used already")                                        \
    X(vote_replaced, "voting", "vote replaced by one of the same member")                                              \
    X(vote_withdrawn, "voting", "votes of a removed member withdrawn")                                                 \
    X(ballot_abandoned, "voting", "ballot closed: its last voter is gone")                                             \
    X(end_vote_too_late, "voting", "end vote for an operation that is over")                                           \
    X(sync_end_vote_too_late, "voting", "end vote for a synchronization that is over")                                 \
    X(start_waits_for_limit, "voting", "complete start ballot waits for the limit of operations")                      \
    X(start_waits_for_ring, "voting", "complete start ballot waits for the ring")                                      \
    X(start_waits_for_window, "voting", "complete start ballot waits for a place in a member's window")                \
    X(vote_timed_out, "voting", "member removed: others waited too long for its vote")                                 \
    X(works_for_ever, "voting", "member that says for long that it works is not believed any more")                    \
    X(vote_given_up, "voting", "vote given up: its members wait for each other in different calls")                    \
    X(start_alone, "voting", "start refused: all others are gone")                                                     \
    X(start_mismatch, "voting", "start refused: shapes differ")                                                        \
    X(reduced_in_vote, "voting", "inputs that came with the votes reduced")                                            \
    X(result_in_vote, "voting", "result came with the start")                                                          \
    X(vote_input_ignored, "voting", "input of a vote ignored: too much is held")                                       \
    X(aborted_by_vote, "voting", "operation aborted by a member's vote")                                               \
    X(aborted_in_grace, "voting", "operation aborted by a vote while a restarted master waits for members")            \
    X(aborted_by_removal, "voting", "operation aborted: a member is gone")                                             \
    X(committed_without_removed, "voting", "operation committed though a member of it is gone")                        \
    X(pending_told, "voting", "peers are pending")                                                                     \
    X(early_update_answered, "voting", "a newcomer's update in its first turn answered alone")                         \
    X(waiting_warned, "voting", "vote waited so long that everybody was told")                                         \
    X(edge_marked, "topology", "edge marked")                                                                          \
    X(marked_edge_not_wanted, "topology", "marked edge not wanted beside a ring")                                      \
    X(ring_led_around, "topology", "ring led around a marked edge")                                                    \
    X(aborted_over_edge, "topology", "operation aborted over a marked edge")                                           \
    X(no_ring_victim, "topology", "no ring: one end of an edge removed")                                               \
    X(heard_after_silence, "topology", "member spoke again after a long silence")                                      \
    X(stuck_edge_tried_again, "topology", "edge that carried nothing in an earlier ring is needed: tried once more")   \
    X(marked_edge_dialled_again, "topology", "no ring: edges down in earlier rings are dialled again")                 \
    X(edge_marked_stuck, "topology", "edge marked that connects and carries nothing")                                  \
    X(stuck_without_proof, "topology", "edge said to carry nothing while its target may have been away")               \
    X(no_ring_quiet_end, "topology", "no ring: an end that is quiet is left to its silence")                           \
    X(no_ring_but_open, "topology", "nobody removed for an edge that its target says is open")                         \
    X(joiner_unreachable, "topology", "joiner told that it is unreachable")                                            \
    X(joiner_tries_other_members, "topology", "newcomer that one member cannot reach is tried with others")            \
    X(newcomers_in_another_order, "topology", "newcomers fit only together and in another order than they came")       \
    X(joiner_tried_again, "topology", "newcomer that could not be reached has a turn again")                           \
    X(joiner_keeps_its_place, "topology", "oldest newcomer keeps its connections while the ring changes")              \
    X(plan_waits_for_the_disk, "topology", "edge not judged while the word to dial it is held")                        \
    X(disk_hung, "topology", "clocks of edges do not count the time that a disk hung")                                 \
    X(joiner_not_admissible, "topology", "joiner left out of an admission")                                            \
    X(gang_complete, "topology", "last place of a waiting gang taken")                                                 \
    X(gang_admitted, "topology", "gang admitted")                                                                      \
    X(gang_left_out, "topology", "gang not admitted: one of its places cannot be")                                     \
    X(gang_unreachable, "topology", "gang comes last: one of its places cannot be reached")                            \
    X(gang_awaits_former, "topology", "complete gang waits until members of its name are gone")                        \
    X(gang_place_claimed, "topology", "newcomer waits for a place that another has")                                   \
    X(gang_place_inherited, "topology", "place of a gone newcomer given to one that waited for it")                    \
    X(gang_place_taken, "topology", "newcomer refused: the holder of its place lives")                                 \
    X(gang_sizes_differ, "topology", "newcomer refused: another size of its gang")                                     \
    X(gang_impossible, "topology", "newcomer refused: no gang can be like that")                                       \
    X(gangs_wait, "topology", "newcomer refused: too many wait for their gangs")                                       \
    X(gang_patience_over, "topology", "newcomer refused: its gang was not complete in time")                           \
    X(gang_removed, "membership", "gang removed as a whole")                                                           \
    X(ring_searched, "topology", "ring found by search")                                                               \
    X(ring_not_found, "topology", "no ring exists without a forbidden edge")                                           \
    X(unwanted_edge_closed, "topology", "edge closed because the plan dropped it")                                     \
    X(unwanted_report, "topology", "report of an edge that nobody wants")                                              \
    X(data_link_refused, "topology", "data link refused: another peer is meant")                                       \
    X(silent_stripe_gives_way, "topology", "silent connection of a neighbour makes place for one that it dials anew")  \
    X(tag_twice, "all-reduce", "tag launched twice")                                                                   \
    X(send_twice, "all-reduce", "send of one pair launched twice with one tag")                                        \
    X(send_end_gone, "all-reduce", "send refused: its other end is not a member")                                      \
    X(send_in_vote, "all-reduce", "send ended with its start")                                                         \
    X(send_along_the_ring, "all-reduce", "send started on a path of the ring")                                         \
    X(drafted, "all-reduce", "send of others starts here, which forwards it")                                          \
    X(drafted_gone, "all-reduce", "send failed: a member that forwarded it is gone")                                   \
    X(drafted_cannot, "all-reduce", "send of others needs more memory here than the limit")                            \
    X(drafted_outlives_end, "all-reduce", "send committed without an end that is gone")                                \
    X(result_read_ahead, "all-reduce", "quantized result read before the outcome")                                     \
    X(hierarchical_started, "all-reduce", "hierarchical: this member has the edge within its host")                    \
    X(hosts_left_apart, "topology", "edges of an order by hosts did not come up: the ring stays")                      \
    X(ring_grouped_by_host, "topology", "ring has the members of each host side by side now")                          \
    X(direct_started, "all-reduce", "pieces go over direct edges")                                                     \
    X(direct_edge_not_up, "all-reduce", "pieces go around the ring: not all direct edges are up")                      \
    X(direct_after_a_failure, "all-reduce", "pieces go around the ring: direct edges failed lately")                   \
    X(direct_failed, "all-reduce", "collective over direct edges failed although all members are there")               \
    X(direct_edge_stuck, "all-reduce", "direct edge carries nothing")                                                  \
    X(direct_edge_lost, "topology", "collective failed: a direct edge of it stayed down")                              \
    X(direct_edge_idle, "topology", "direct edge not used for long")                                                   \
    X(direct_edge_becomes_another, "topology", "direct edge is needed by a ring or otherwise")                         \
    X(direct_given_up, "all-reduce", "master gave up a collective over direct edges")                                  \
    X(launch_alone, "all-reduce", "launch refused: the group has one member")                                          \
    X(batch_tag_again, "all-reduce", "tag of a call for many launched again")                                          \
    X(batch_tag_given_up, "all-reduce", "tag of a call for many failed again and again: given up for all")             \
    X(start_given_up, "voting", "start refused to all: a member says that the tag failed too often")                   \
    X(batch_tag_delayed, "all-reduce", "tag of a call for many failed often: launched again at the next tick")         \
    X(batch_stopped, "all-reduce", "call for many ends early: a tag failed for good")                                  \
    X(batch_left_alone, "all-reduce", "call for many ends early: no other member is left")                             \
    X(lost_with_batch, "all-reduce", "lost in a call for many tags")                                                   \
    X(awaited_late, "all-reduce", "outcome came before its await")                                                     \
    X(ready_before_start, "all-reduce", "neighbour's ready came before the start")                                     \
    X(early_sent, "all-reduce", "slice sent before the neighbour was ready")                                           \
    X(summed_while_leaving, "all-reduce", "own final bytes got their checksum while they left")                        \
    X(early_kept, "all-reduce", "early slice kept in the reserve")                                                     \
    X(early_declined, "all-reduce", "early slice declined: no room")                                                   \
    X(early_to_the_end, "all-reduce", "early slice reduced without a slot")                                            \
    X(early_landed_too_late, "all-reduce", "early slice landed after the end of its operation")                        \
    X(early_landed_after_start, "all-reduce", "early slice landed after the start")                                    \
    X(early_copy_late, "all-reduce", "early slice landed behind another copy of it")                                   \
    X(partial_before_prepared, "all-reduce", "partial sum came before the buffers")                                    \
    X(slice_declined, "all-reduce", "slice declined: no slot")                                                         \
    X(decline_read, "all-reduce", "declined slice goes again")                                                         \
    X(second_copy_discarded, "all-reduce", "second copy of a slice discarded")                                         \
    X(landing_taken_over, "all-reduce", "receive redirected: a second copy overtook it")                               \
    X(landing_failed, "all-reduce", "landing ended without its bytes")                                                 \
    X(cancelled_by_ack, "all-reduce", "send cancelled in mid-frame: another copy has landed")                          \
    X(ack_twice, "all-reduce", "slice acknowledged twice")                                                             \
    X(resend_answered_in_queue, "all-reduce", "resend dropped from the queue: the first copy was acknowledged")        \
    X(resend_goes_first, "all-reduce", "resend put before slices that wait for credit")                                \
    X(lost_more_often_stays_first, "all-reduce", "resend put behind one that was lost more often")                     \
    X(input_held_back, "all-reduce", "own input held back: half of the slots are taken")                               \
    X(waits_for_credit, "all-reduce", "partial sum waits for credit")                                                  \
    X(stripe_lost_slice_again, "all-reduce", "slice of a lost stripe goes again")                                      \
    X(stripe_lost_others_work, "all-reduce", "stripe lost while another works")                                        \
    X(last_stripe_lost, "all-reduce", "last stripe of an edge lost")                                                   \
    X(ready_told_again, "all-reduce", "ready told again: an incoming stripe was lost")                                 \
    X(neighbour_said_goodbye, "all-reduce", "a neighbour closes its links on purpose")                                 \
    X(neighbour_vanished, "all-reduce", "all incoming stripes of a neighbour lost")                                    \
    X(stalled_stripe_tried_again, "all-reduce", "stripe that had stalled is tried again")                              \
    X(stalled_stripe_moves, "all-reduce", "stripe that had stalled moves after all")                                   \
    X(stalled_slice_again, "all-reduce", "slice of a stalled stripe goes again")                                       \
    X(slice_hedged, "all-reduce", "slices of a late stripe leave again on an idle one")                                \
    X(slice_takes_long, "all-reduce", "slice arrives slowly: its sender is told")                                      \
    X(starved_operation_given_up, "all-reduce", "operation given up: nothing new comes")                               \
    X(ready_told_on_all_links, "all-reduce", "ready repeated on all links: nothing comes")                             \
    X(edge_stuck, "all-reduce", "edge given up: it opens and nothing gets through")                                    \
    X(edge_connects_in_vain, "all-reduce", "edge comes up and breaks again and again, no tick finds it open")          \
    X(edge_stuck_after_vote, "all-reduce", "edge given up after the vote for the end")                                 \
    X(stalled_send_cancelled, "all-reduce", "send cancelled in mid-frame: its stripe stalls")                          \
    X(neighbour_unaware, "all-reduce", "neighbour says that it was not told the start yet")                            \
    X(predecessor_back, "all-reduce", "neighbour from which something had come connects again")                        \
    X(neighbour_starved, "all-reduce", "neighbour says that it is starved itself")                                     \
    X(lost_while_landing, "all-reduce", "link lost in the middle of a landing")                                        \
    X(frame_of_dead_operation, "all-reduce", "slice of a dead operation drained")                                      \
    X(word_of_dead_operation, "all-reduce", "flow word of a dead operation dropped")                                   \
    X(abort_after_completion, "all-reduce", "abort after local completion")                                            \
    X(abort_before_buffers, "all-reduce", "abort before the buffers are there")                                        \
    X(input_ahead_of_its_start, "all-reduce", "own input may leave with the start vote")                               \
    X(ahead_taken, "all-reduce", "start came for an operation whose input had left")                                   \
    X(ahead_dropped, "all-reduce", "input had left for an operation that did not start")                               \
    X(ahead_on_another_ring, "all-reduce", "input had left to another neighbour than the start names")                 \
    X(pairwise_started, "all-reduce", "all-reduce in which two members send each other the whole array")               \
    X(ahead_in_vain, "all-reduce", "slice freed that came ahead of a start that did not come")                         \
    X(ahead_cut_otherwise, "all-reduce", "slice came ahead that was cut for another ring")                             \
    X(bandwidth_test_grows, "topology", "bandwidth test uses more connections")                                        \
    X(started_with_shares, "all-reduce", "started with unequal parts, for a slow edge")                                \
    X(ahead_behind_its_start, "all-reduce", "slice that left ahead of its start came behind it")                       \
    X(answer_before_start, "all-reduce", "answer to a slice came before its start")                                    \
    X(abort_cancels_send, "all-reduce", "send cancelled in mid-frame: its operation is decided")                       \
    X(abort_redirects_receive, "all-reduce", "receive redirected: its operation is decided")                           \
    X(reduced_after_decision, "all-reduce", "reduction ended after the outcome")                                       \
    X(final_beside_input, "all-reduce", "final bytes came before the input at their place was kept")                   \
    X(final_beside_input_that_leaves, "all-reduce", "final bytes came while another copy of the input left")           \
    X(final_declined_while_input_is_kept, "all-reduce", "final bytes came while the input at their place was copied")  \
    X(input_left_again_from_scratch, "all-reduce", "own input left once more when its place was overwritten")          \
    X(input_restored, "all-reduce", "a failed operation copied an input back to its place")                            \
    X(broken_landing_restored, "all-reduce", "input came back to a place that a part of the final bytes had reached")  \
    X(slots_not_allocated, "all-reduce", "allocation of an operation's scratch failed")                                \
    X(scratch_limit_reached, "all-reduce", "operation given up: running ones take all scratch memory")                 \
    X(scratch_limit_too_small, "all-reduce", "operation refused for good: alone it needs too much scratch memory")     \
    X(reserve_not_allocated, "all-reduce", "allocation of a reserve for early slices failed")                          \
    X(reserve_freed, "all-reduce", "reserve of a lost neighbour freed")                                                \
    X(reserve_waits_for_others, "all-reduce", "no memory for early slices: other neighbours that may be gone have it") \
    X(sync_pages_sent, "state-sync", "page of a key list sent: schemas differ")                                        \
    X(sync_second_page_sent, "state-sync", "second page of a key list sent")                                           \
    X(sync_second_page_compared, "state-sync", "key lists are equal on a whole page")                                  \
    X(sync_second_list_page, "state-sync", "second page of hashes sent")                                               \
    X(sync_list_wrong, "state-sync", "list of entries refused: it is not that of the elected state")                   \
    X(plan_in_pages, "topology", "dial plan larger than a frame")                                                      \
    X(joiner_report_waits, "topology", "report of a joiner that said much waits for the tick")                         \
    X(ids_of_incarnation_used_up, "membership", "ids are used up: the next incarnation begins")                        \
    X(cause_unknown, "wire", "cause of an unknown kind, or with parameters that do not fit")                           \
    X(text_cut, "wire", "text cut to what its receiver takes")                                                         \
    X(sync_pages_member_away, "state-sync", "page of a key list wanted from a member that is away")                    \
    X(sync_refused_all, "state-sync", "nobody submitted the expected revision")                                        \
    X(sync_revision_ahead, "state-sync", "member removed: its revision is ahead")                                      \
    X(sync_schema_differs, "state-sync", "member removed: its keys differ")                                            \
    X(sync_starts_above_zero, "state-sync", "first synchronization of a group takes the highest revision")             \
    X(sync_newcomers_outranked, "state-sync", "newcomers' contents do not count beside a veteran's")                   \
    X(sync_outdated_member, "state-sync", "outdated member receives the state")                                        \
    X(sync_any_content, "state-sync", "newcomer receives an entry that may differ")                                    \
    X(sync_request_early, "state-sync", "request kept: the plan is not here yet")                                      \
    X(sync_request_declined, "state-sync", "request declined")                                                         \
    X(sync_source_forgotten, "state-sync", "full table of holders makes place for one that is named")                  \
    X(sync_without_members, "state-sync", "all members of a synchronization went at once")                             \
    X(sync_chunk_takes_long, "state-sync", "bytes of a chunk that is not whole yet count as progress")                 \
    X(sync_no_memory_in_time, "state-sync", "memory for what is fetched did not come for long: given up")              \
    X(sync_source_remembered, "state-sync", "forgotten holder is named again, with what was counted for it")           \
    X(sync_source_of_no_help, "state-sync", "holder without the entries that may differ makes room")                   \
    X(sync_holder_given_up, "state-sync", "holder given up")                                                           \
    X(sync_fetched_from_another, "state-sync", "chunk fetched again from another holder")                              \
    X(sync_any_content_anew, "state-sync", "entry that may differ begun anew at another holder")                       \
    X(sync_no_holder, "state-sync", "synchronization given up: holders are gone")                                      \
    X(sync_aborted, "state-sync", "synchronization aborted by a member")                                               \
    X(sync_member_gone, "state-sync", "synchronization ended without a removed member")                                \
    X(sync_chunk_late, "state-sync", "chunk came that nobody waits for")                                               \
    X(sync_over_before_memory, "state-sync", "synchronization over while memory for it was on its way")                \
    X(sync_part_owed, "state-sync", "part asked for again that its holder owes already: not sent")                     \
    X(sync_chunk_breaks_off, "state-sync", "connections break in a chunk again and again: its parts count no more")    \
    X(sync_shorter_pages, "state-sync", "page of hashes lost or too slow: fewer are asked for")                        \
    X(sync_chunk_not_landed, "state-sync", "chunk ended without its bytes")                                            \
    X(sync_asks_for_little, "state-sync", "a connection broke with questions on it: the holder is asked for little")   \
    X(sync_chunk_asked_again, "state-sync", "chunk asked again: its link was lost")                                    \
    X(sync_not_allocated, "state-sync", "allocation for the incoming state failed")                                    \
    X(optimize_alone, "topology", "optimize of a peer that is alone in the run")                                       \
    X(bandwidth_measured, "topology", "bandwidth of an edge measured")                                                 \
    X(offer_opened, "topology", "peer dialled another one, for the use of that one")                                   \
    X(offer_opens_the_way, "topology", "dial to a port that another peer dials from, so that a translator lets it in") \
    X(offer_taken, "topology", "connection that the target of an edge opened is used")                                 \
    X(holder_offered, "topology", "edge to a holder behind a translator, for a synchronization")                       \
    X(offer_overtakes_a_dial, "topology", "connection that the target opened came before that of the source")          \
    X(dials_met, "topology", "two dials of both ends became one connection")                                           \
    X(plan_overtakes_a_dial, "topology", "dial ended: a plan named another address, or another port to dial from")     \
    X(offer_not_needed, "topology", "dial for another peer ended: that one has a connection")                          \
    X(bandwidth_test_failed, "topology", "connection of a bandwidth test lost: edge not measured")                     \
    X(bandwidth_test_timed_out, "topology", "bandwidth test brought no result in time")                                \
    X(bandwidth_test_over_before_memory, "topology", "bandwidth test ended before its memory was there")               \
    X(bandwidth_report_late, "topology", "result of a bandwidth test that nobody waits for any more")                  \
    X(bandwidth_test_given_up, "topology", "master gave up a bandwidth test")                                          \
    X(survey_cut_off, "topology", "time for bandwidth tests over with edges left")                                     \
    X(optimize_left_alone, "topology", "all others vanished during an optimize")                                       \
    X(ring_optimized, "topology", "better ring adopted")                                                               \
    X(ring_searched_in_pieces, "topology", "search for a ring took several events")                                    \
    X(sync_all_receive, "state-sync", "all refused: every member receives only")                                       \
    X(sync_nobody_sends, "state-sync", "all refused: nobody who may send holds the expected revision")                 \
    X(sync_strategies_mixed, "state-sync", "member removed: it does not enforce where another does")                   \
    X(sync_outdated_sender, "state-sync", "member removed: outdated, and it receives nothing")                         \
    X(sync_senders_differ, "state-sync", "member removed: senders hold different contents")                            \
    X(sync_recalled, "state-sync", "no holder is left: a receiver requests nothing more")                              \
    X(sync_recall_answered, "state-sync", "a recalled receiver lacks a part of the state")                             \
    X(sync_goes_on_after_recall, "state-sync", "a recalled receiver learns of a holder")                               \
    X(sync_vote_lost, "state-sync",                                                                                    \
      "holders gone, the living elect again, and the vote of one that has all of it comes")                            \
    X(sync_repeated, "state-sync", "holders gone: the living elect again")                                             \
    X(sync_recall_unanswered, "state-sync", "a recalled receiver has answered nothing for long")                       \
    X(sync_votes_again, "state-sync", "plan withdrawn: the election is repeated")                                      \
    X(sync_holders_asked, "state-sync", "no known holder can be reached, the master is asked")                         \
    X(sync_holder_learned, "state-sync", "another holder learned from the master")                                     \
    X(sync_served_by_receiver, "state-sync", "receiver sends on what it has received")                                 \
    X(sync_chunk_wrong, "state-sync", "chunk refused: it does not match the winner's hash")                            \
    X(sync_ended_in_transfer, "state-sync", "synchronization ended in the middle of a transfer")                       \
    X(frame_in_pieces, "wire", "fixed part of a frame came in pieces")                                                 \
    X(body_in_pieces, "wire", "control body came in pieces")                                                           \
    X(payload_in_pieces, "wire", "payload came in pieces")                                                             \
    X(frame_abandoned, "wire", "abandoned frame")                                                                      \
    X(frame_noise, "wire", "bytes that are no frame refused")                                                          \
    X(frame_wrong_checksum, "wire", "frame with a wrong checksum refused")                                             \
    X(payload_corrupt, "wire", "payload with a wrong checksum refused")

namespace pccl::core {

enum class Probe : std::uint16_t {
#define PCCL_PROBE_NAME(name, machine, what) name,
    PCCL_PROBES(PCCL_PROBE_NAME)
#undef PCCL_PROBE_NAME
};

struct ProbeText {
    const char* name;
    const char* machine;
    const char* what;
};
inline constexpr ProbeText probe_texts[] = {
#define PCCL_PROBE_TEXT(name, machine, what) {#name, machine, what},
    PCCL_PROBES(PCCL_PROBE_TEXT)
#undef PCCL_PROBE_TEXT
};
inline constexpr std::size_t probe_count = sizeof(probe_texts) / sizeof(probe_texts[0]);
static_assert(probe_count <= 65'536, "Probe is two bytes");

using ProbeHandler = void (*)(Probe probe);

// Sets the handler for the whole process, before the first machine runs. Null: nothing is counted.
void set_probe_handler(ProbeHandler handler);
extern ProbeHandler probe_handler;

}  // namespace pccl::core

#define PROBE(name)                                                                                                    \
    (::pccl::core::probe_handler == nullptr ? void(0) : ::pccl::core::probe_handler(::pccl::core::Probe::name))
