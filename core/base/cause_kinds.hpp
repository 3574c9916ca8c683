// Every cause that a failed call, a removal or a refusal can have, with the text that is made of it.
//
// Placeholders stand for parameters, in order: {n} a number, {p} a peer, {t} a text, {c} another cause. The number of a
// kind is part of the wire protocol and of journals: new kinds are added at the end, none is taken out.
// The texts name no function of a language and no setting: remedies are added where a text is made for a user.
#pragma once

#include <cstdint>
#include <string_view>

namespace pccl::core {

#define PCCL_CAUSES(X)                                                                                                 \
    X(none, "")                                                                                                        \
    X(unknown, "for a reason that is not known here ({n})")                                                            \
    X(text, "{t}")                                                                                                     \
    /* why a member is gone */                                                                                         \
    X(left, "left the run")                                                                                            \
    X(not_resumed_after_restart, "did not resume after the master's restart")                                          \
    X(not_resumed, "its control link closed and it did not resume in time")                                            \
    X(links_closed, "its control link and a neighbour's data links to it closed")                                      \
    X(silent, "silent towards the master for {n} ms")                                                                  \
    X(unacknowledged, "did not acknowledge {n} decisions that it was told")                                            \
    X(vote_awaited, "the others waited {n} s for its vote '{t}'")                                                      \
    X(no_ring, "no ring exists that contains it: {c}")                                                                 \
    X(edge_down, "peer {p} cannot reach peer {p}")                                                                     \
    X(edge_stuck, "what peer {p} sends to peer {p} does not get through")                                              \
    X(vote_too_large, "sent a vote that is larger than one can be")                                                    \
    X(vote_of_unknown_type, "voted for a collective of unknown type or operation")                                     \
    X(vote_of_too_many_entries, "shared state has more entries than the limit")                                        \
    X(vote_of_unknown_strategy, "voted for a synchronization of unknown strategy")                                     \
    X(vote_input_misfits, "voted for a reduction with an input of another size")                                       \
    X(vote_of_impossible_revision, "submitted an impossible shared-state revision")                                    \
    X(too_many_starts, "voted for the start of {n} collectives at once")                                               \
    X(impossible_keys, "sent an impossible shared-state key list")                                                     \
    X(revision_ahead,                                                                                                  \
      "shared-state revision {n} submitted where {n} is expected: increment it by one after each synchronization")     \
    X(sender_behind,                                                                                                   \
      "shared-state revision {n} submitted where {n} is expected: increment it by one after each synchronization; a "  \
      "member that is behind cannot use SEND_ONLY")                                                                    \
    X(strategies_mixed,                                                                                                \
      "it synchronized with {t} where another member of the group uses ENFORCE_POPULAR, which all have to use then")   \
    X(schema_differs, "shared state differs from that of the others: {t}")                                             \
    X(gang_schemas_differ,                                                                                             \
      "the shared state of each gang differs between its members in names, types, counts or flags")                    \
    X(senders_differ,                                                                                                  \
      "its content differs from that of other SEND_ONLY members, which are more or longer in the run; members that "   \
      "send only have to hold the same")                                                                               \
    /* why a run-wide call or a collective failed for all its members */                                               \
    X(calls_crossed, "'{t}' waits for {p}, which is {t}; all members have to make the same calls")                     \
    X(run_left_alone, "all other members of the run are gone; wait until others have joined")                          \
    X(group_left_alone, "all other members of the group are gone; wait until others have joined")                      \
    X(group_left_alone_after, "all other members of the group are gone: {c}")                                          \
    X(shapes_differ, "the members' collectives differ in {t}: peer {p} has {t}, peer {p} has {t}")                     \
    X(tag_given_up, "peer {p} gives tag {n} up: {c}")                                                                  \
    X(tag_failed_often,                                                                                                \
      "it failed {n} times in a row, although no member was lost and no other tag was reduced; the last time: {c}")    \
    X(member_cannot, "peer {p} cannot take part: {c}")                                                                 \
    X(member_did_not_finish, "peer {p} could not finish: {c}")                                                         \
    X(member_gone, "peer {p} is gone: {c}")                                                                            \
    X(results_differ, "the members' results differ; nothing of it was kept")                                           \
    X(not_launched_here, "the collective was not launched here")                                                       \
    X(no_scratch_left, "its scratch memory and that of the running ones exceed the limit")                             \
    X(scratch_limit, "it needs {n} bytes beside its buffers, more than the limit of {n}")                              \
    X(no_scratch_memory, "not enough memory for scratch buffers")                                                      \
    X(nothing_new_from, "nothing new came from peer {p} for very long")                                                \
    X(nothing_sent_by, "peer {p} lives and sends nothing")                                                             \
    X(nothing_gets_to, "what it sends to peer {p} does not get through")                                               \
    /* why a synchronization failed */                                                                                 \
    X(all_receive, "every member of the group uses RECEIVE_ONLY, so nobody offers a content; let one of them use "     \
                   "SEND_ONLY, or all "                                                                                \
                   "ENFORCE_POPULAR (this one submitted {n})")                                                         \
    X(nobody_has_revision,                                                                                             \
      "no member submitted the expected shared-state revision {n}: increment it by one after each synchronization; "   \
      "where those that held it are gone, submit it to go on with what you have, or leave, all of you, to begin anew " \
      "(this one submitted {n})")                                                                                      \
    X(nobody_enforces_revision,                                                                                        \
      "members use ENFORCE_POPULAR together with other strategies, and none of those that enforce holds the expected " \
      "revision {n} (this one submitted {n})")                                                                         \
    X(nobody_sends_revision,                                                                                           \
      "no member that sends holds the expected shared-state revision {n} (this one submitted {n})")                    \
    X(sync_left_alone, "all its members are gone")                                                                     \
    X(member_did_not_receive, "peer {p} could not receive the state: {c}")                                             \
    X(not_synchronized_here, "the synchronization was not asked for here")                                             \
    X(no_memory_for_hashes, "memory or disk space that was asked for earlier has not come yet")                        \
    X(no_memory_for_state, "not enough memory or disk space for the incoming state")                                   \
    X(memory_late, "the memory for the incoming state did not come in time")                                           \
    X(no_holder_left, "no living member that holds the state could be reached")                                        \
    X(holders_wrong, "every member that holds the state sends content that does not match it")                         \
    /* why a peer is out of the run, or cannot enter it */                                                             \
    X(no_longer_a_member, "this peer is no longer a member of the run ({c}); connect again")                           \
    X(removed, "removed from the run: {c}")                                                                            \
    X(forgotten, "no longer a member of the run")                                                                      \
    X(superseded, "another process resumed this peer's seat")                                                          \
    X(other_run, "this peer belongs to another run; connect again as a newcomer")                                      \
    X(journal_lost, "the master lost its journal")                                                                     \
    X(master_stopped, "the master was stopped on purpose and the run has ended; connect again when it runs")           \
    X(run_full, "the run has reached its limit of {n} peers")                                                          \
    X(versions_differ, "the master speaks protocol version {n}, this peer speaks version {n}")                         \
    X(not_reachable_at,                                                                                                \
      "the other peers cannot reach this one at {t}: {t}; connect to the master by another address, or advertise one " \
      "of this host")                                                                                                  \
    X(advertises_confined_address,                                                                                     \
      "this peer advertises {t}, an address that each host dials as its own; the master sees this peer at {t}: "       \
      "advertise an address of this host, or none")                                                                    \
    X(seen_at_loopback,                                                                                                \
      "the master sees this peer at the loopback address {t}, which other hosts cannot reach (peer {p} at {t}); "      \
      "connect to the master by an address of its network, or advertise the address at which the others reach this "   \
      "peer")                                                                                                          \
    X(member_at_loopback,                                                                                              \
      "peer {p} at {t} is reached at a loopback address, this one at {t}; let the peers on the master's host "         \
      "advertise an address of it, or connect to the master by one")                                                   \
    X(master_unreachable, "cannot connect to the master at {t}; check that it runs and that the address is right")     \
    X(master_gone, "the master is gone: {t}")                                                                          \
    X(master_away, "the master was out of reach for {n} ms")                                                           \
    X(master_contradicts_collective, "the master committed a collective that this peer has not finished")              \
    X(master_contradicts_sync, "the master ended a synchronization that this peer has not finished")                   \
    X(aborted, "it was aborted")                                                                                       \
    X(left_on_purpose, "the communicator left the run")                                                                \
    X(left_while_connecting, "the communicator was left while it connected")                                           \
    /* misuse */                                                                                                       \
    X(not_connected, "the communicator is not connected")                                                              \
    X(connected_already, "the communicator is connected already")                                                      \
    X(alone_in_run, "this peer is alone in the run; wait until others have joined before optimizing")                  \
    X(alone_in_group, "the peer group has fewer than two members; wait until others have joined")                      \
    X(tag_open, "tag {n} was launched and not awaited; await it first")                                                \
    X(tag_launched_already, "tag {n} is launched already; await it or use another tag")                                \
    X(tag_twice_in_call, "tag {n} is launched already or stands twice in this call")                                   \
    X(tag_not_launched, "tag {n} is not launched, or it is awaited already")                                           \
    X(too_many_tags, "too many tags are launched and not awaited")                                                     \
    X(nothing_to_reduce, "nothing to reduce, or no operation may run at a time")                                       \
    X(no_cause_given, "the master refused a collective without a reason")                                              \
    X(quantized_type_not_float, "only float and double can be quantized; convert the data or do not quantize")         \
    X(no_such_quantized_type, "this quantized datatype does not exist; use an integer type of 8 to 32 bits or an "     \
                              "unsigned one of 64")                                                                    \
    X(no_codes_of_64_bits, "quantization by zero point and scale has no 64-bit codes; use 32 bits, or minimum and "    \
                           "maximum")                                                                                  \
    X(sync_runs_already, "another synchronization of this communicator is running")                                    \
    X(too_many_entries, "the shared state has {n} entries, more than the limit of {n}")                                \
    X(revision_too_large,                                                                                              \
      "the shared-state revision {n} is beyond every count of synchronizations; was it decremented at 0?")             \
    X(key_length, "a shared-state key is empty or longer than {n} bytes")                                              \
    X(key_twice, "the shared-state key '{t}' is there twice")                                                          \
    /* why a master stops */                                                                                           \
    X(journal_unreadable, "the journal is damaged or not one of this program")                                         \
    X(journal_unwritable, "the journal cannot be written: {t}")                                                        \
    X(journal_silent,                                                                                                  \
      "the disk of the master's journal has not answered for {n} s; check the disk, then start the master again: it "  \
      "takes up the run")                                                                                              \
    /* in a secure run */                                                                                              \
    X(revoked, "the operator revoked its certificate")                                                                 \
    X(identity_differs, "it claims to be peer {p}, but its certificate names peer {p}")                                \
    X(group_not_allowed, "its invitation is for peer group {n}, but it asked for peer group {n}")                      \
    /* collectives other than an all-reduce */                                                                         \
    X(root_not_member, "the root, peer {p}, is not a member of the group")                                             \
    X(pieces_too_large, "the members' pieces have more elements in all than peer {p} has room for, {n}")               \
    X(pieces_misfit, "the members' pieces have {n} elements in all, and the input of each has {n}")                    \
    X(group_changed, "peer {p} chose its piece for {n} members, and the group has {n}")                                \
    X(too_many_members, "the list of its {n} members does not fit into a message to peer {p}")                         \
    X(only_all_reduce_quantized, "only an all-reduce can be quantized")                                                \
    X(no_such_collective, "this collective does not exist")                                                            \
    X(gather_in_place, "this collective needs a send buffer outside of its receive buffer")                            \
    X(room_too_small, "peer {p} has room for {n} elements, and the pieces for it have {n}")                            \
    X(too_many_pieces, "the members' pieces have {n} elements in {n} parts, more than one collective can have")        \
    X(too_many_counts, "its counts for {n} members do not fit into a message")                                         \
    X(counts_misfit, "it has {n} counts for {n} members")                                                              \
    /* gangs */                                                                                                        \
    X(gang_lost, "its gang '{t}' lost place {n}: {c}")                                                                 \
    X(gang_impossible,                                                                                                 \
      "a gang needs a name of 1 to {n} printable ASCII characters, a size of 1 to {n}, and a place below its size")    \
    X(gang_sizes_differ,                                                                                               \
      "gang '{t}' has {n} places, and this peer declares {n}; start all its processes with the same size")             \
    X(gang_place_taken,                                                                                                \
      "peer {p} lives and has place {n} of gang '{t}'; give each process another place, and each gang another name")   \
    X(gang_incomplete, "gang '{t}' was not complete within {n} ms: nobody has taken its place {n}")                    \
    X(gangs_wait, "{n} processes wait for the rest of their gangs already, which is the limit")                        \
    /* members that contradict what is known of them */                                                                \
    X(does_not_finish, "peer {p} has everything that it needs for it, and does not say that it has finished")          \
    X(claims_decision, "it claims to have received a decision that this master has not made; only a peer with a "      \
                       "fault in its memory or its program does that")                                                 \
    /* behind address translators */                                                                                   \
    X(no_way_through,                                                                                                  \
      "the members and this peer cannot connect to each other: a translator makes {t} of its address {t}; tried, in "  \
      "both directions and from both ends at once: {t}; forward a port to this peer and advertise that address, or "   \
      "let one of the others be reachable")                                                                            \
    /* between two members */                                                                                          \
    X(other_end_not_member, "the other end, peer {p}, is not a member of the group: it has left, or never joined")     \
    X(send_to_itself, "a peer cannot send to itself")                                                                  \
    X(slices_differ, "it cuts arrays into slices of {n} bytes, and the ends of the send into slices of {n} bytes")

enum class CauseKind : std::uint16_t {
#define PCCL_CAUSE_KIND(name, text) name,
    PCCL_CAUSES(PCCL_CAUSE_KIND)
#undef PCCL_CAUSE_KIND
};

inline constexpr std::string_view cause_texts[] = {
#define PCCL_CAUSE_TEXT(name, text) text,
    PCCL_CAUSES(PCCL_CAUSE_TEXT)
#undef PCCL_CAUSE_TEXT
};
inline constexpr std::size_t cause_kinds = sizeof cause_texts / sizeof cause_texts[0];

}  // namespace pccl::core
