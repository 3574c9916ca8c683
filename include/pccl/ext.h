/*
 * pccl/ext.h: functions that PCCL 1.0 does not have. pccl.h includes this file, so programs include only pccl.h. The
 * interface of PCCL 1.0 in pccl.h is frozen; this file may grow.
 *
 * The rules of pccl.h apply: any thread may call, no function ends the process, and every failure writes one log line.
 */
#ifndef PCCL_EXT_H
#define PCCL_EXT_H

#include "../pccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors and version ------------------------------------------------------------------------------------------ */

/*
 * Returns the name of a result as in pccl.h ("pcclRankConnectionLost"). The string is static; never null, also for an
 * unknown value.
 */
PCCL_EXPORT const char* pcclGetErrorName(pcclResult_t result);

/*
 * Returns the meaning of a result, as a phrase without a full stop. The string is static; never null, also for an
 * unknown value.
 */
PCCL_EXPORT const char* pcclGetErrorString(pcclResult_t result);

/*
 * Returns cause and remedy of the last failure on `comm`, in any thread. This includes the reason why the communicator
 * was removed from the run. After a call has waited in a vote for PCCL_VOTE_WARN_S, it returns instead which peers are
 * missing and what they do. With a null `comm` it returns the last failure of the calling thread, for functions that
 * have no communicator.
 *
 * Never null; "" if there was no failure. The text is valid until the calling thread calls this function again; with a
 * null `comm`, until the next failure in this thread if that is earlier. Returns at once.
 */
PCCL_EXPORT const char* pcclGetLastErrorMessage(const pcclComm_t* PCCL_NULLABLE comm);

/*
 * Returns the version of the loaded library. It may be newer than the header that the program was compiled with
 * (PCCL_VERSION_MAJOR, _MINOR, _PATCH). Each pointer may be null. Needs no pcclInit. Returns at once.
 */
PCCL_EXPORT pcclResult_t pcclGetVersion(int* PCCL_NULLABLE major, int* PCCL_NULLABLE minor, int* PCCL_NULLABLE patch);

/* ---- log --------------------------------------------------------------------------------------------------------- */

typedef enum pcclLogLevel_t {
    pcclLogTrace = 0,
    pcclLogDebug = 1,
    pcclLogInfo = 2,
    pcclLogWarn = 3,
    pcclLogErr = 4,
    pcclLogFatal = 5
} pcclLogLevel_t;

/* `line` is one log line without a line end, valid only during the call. `user` is that of pcclSetLogCallback. */
typedef void (*pcclLogCallback_t)(pcclLogLevel_t level, const char* line, void* user);

/*
 * Sends all further log lines of this process (of the level in PCCL_LOG_LEVEL and above) to `callback` instead of
 * standard error. Null restores standard error.
 *
 * One thread of the library calls it, one line at a time, and holds no lock. The callback may call any function of this
 * library, and may be slow: up to 1024 lines are queued. Further ones are dropped, and a later line gives their number.
 *
 * Lines that were logged before this call still go to the former callback (or to standard error). The call blocks until
 * the former callback has received them; it is not called again after that. A call from within a callback does not
 * block: the former callback may still receive queued lines. Set the callback to null before its code or `user` goes
 * away. In a child of fork() lines go to standard error. Needs no pcclInit.
 *
 * Errors: pcclInternalError if no thread can be started. Then the former callback stays.
 */
PCCL_EXPORT pcclResult_t pcclSetLogCallback(pcclLogCallback_t PCCL_NULLABLE callback, void* PCCL_NULLABLE user);

/* ---- communicator ------------------------------------------------------------------------------------------------ */

/* Stands for the value 0 in a numeric field of pcclCommConfig_t, because 0 itself means "not given" there. */
#define PCCL_CONFIG_NONE (-1)

/*
 * Settings of one communicator. A field that is 0 or null is not given: the environment variable named beside it
 * applies, or its default if it is not set (docs/settings.md has defaults and legal values). A given field overrides
 * the environment. If a given value cannot be used, the call fails; in the environment it only causes a warning.
 * Strings are copied.
 *
 * Later versions add fields at the end. `size` is the size of the struct in the caller's header: always initialize with
 * PCCL_COMM_CONFIG_INIT. A program that was built with an older header works. One that was built with a newer header
 * works if the fields that this library does not have are 0 or null; otherwise the call fails with pcclInvalidArgument.
 */
typedef struct pcclCommConfig_t {
    size_t size;
    const char* name;                       /* shown before the peer's identity in log lines; at most 64 bytes */
    const char* bind_address;               /* PCCL_BIND_ADDRESS */
    const char* advertise_address;          /* PCCL_ADVERTISE_ADDRESS */
    const char* port_range;                 /* PCCL_PORT_RANGE */
    const char* tcp_congestion;             /* PCCL_TCP_CONGESTION */
    int64_t peer_timeout_ms;                /* PCCL_PEER_TIMEOUT_MS */
    int64_t master_timeout_ms;              /* PCCL_MASTER_TIMEOUT_MS; PCCL_CONFIG_NONE: fail at once */
    int64_t max_scratch_bytes;              /* PCCL_MAX_SCRATCH_BYTES; PCCL_CONFIG_NONE: no limit */
    uint32_t max_concurrent_collective_ops; /* PCCL_MAX_CONCURRENT_COLLECTIVE_OPS */
    uint32_t multiplex_chunk_size;          /* PCCL_MULTIPLEX_CHUNK_SIZE */
    uint32_t num_benchmark_connections;     /* PCCL_NUM_BENCHMARK_CONNECTIONS */
    uint32_t reserved;                      /* must be 0 */
    const char* invite;                     /* PCCL_INVITE; pcclConnect fails if it cannot be used */
    const char* gang_name;                  /* null: in no gang, and the next three are 0; see below */
    uint32_t gang_size;                     /* 1 to 1024 */
    uint32_t gang_place;                    /* 0 to gang_size - 1 */
    int64_t gang_timeout_ms;                /* how long pcclConnect waits for missing places; 0: without limit */
} pcclCommConfig_t;

#define PCCL_COMM_CONFIG_INIT                                                                                          \
    { sizeof(pcclCommConfig_t), NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, 0, 0 }

/*
 * Gangs. A gang is a set of processes that join and leave the run together, for example those of one sharded replica
 * of a model. Each of its processes sets the same gang_name (1 to 64 printable ASCII characters) and gang_size, and its
 * own gang_place. Usually the process at place k is in peer group k.
 *
 * pcclConnect of each process waits until all places are taken, and the members and all of these processes can connect
 * to each other. Then one pcclUpdateTopology of the members admits them all. Until then the gang is not pending, and
 * delays nobody. When one process of a gang leaves or is lost, the others are removed at the same moment: calls of the
 * other members never see a part of a gang. The calls of the removed ones fail as on any lost communicator, and the
 * cause names the place that was lost. So processes of a gang agree before the first one leaves.
 *
 * pcclConnect fails, and pcclGetLastErrorMessage names the cause: if processes declare different sizes; if a process
 * that lives has the place already; if a place was missing for gang_timeout_ms. A process that was started again at its
 * former place waits until the master has noticed the death of the former one, or refuses the new one because the
 * former one lives. The status of the master shows which places are missing.
 */

/* The number of gangs in the run, for pcclGetAttribute. It reads 0 on a lost communicator. */
#define PCCL_ATTRIBUTE_NUM_GANGS ((pcclAttribute_t)5)

/*
 * pcclCreateCommunicator with settings; a null `config` gives the same as pcclCreateCommunicator. Copies everything and
 * opens no connection. Returns at once, unless advertise_address contains a host name: its look-up may take 5 s.
 *
 * Errors: those of pcclCreateCommunicator; pcclInvalidArgument if a field cannot be used. The log line names the field.
 */
PCCL_EXPORT pcclResult_t pcclCreateCommunicatorWithConfig(const pcclCommCreateParams_t* params,
                                                          const pcclCommConfig_t* PCCL_NULLABLE config,
                                                          pcclComm_t** comm_out);

/*
 * Leaves the run at once, so that every call that waits on this communicator in another thread returns. Call it from
 * any thread, also from a log callback, but not from a signal handler. If the communicator is not connected, it only
 * makes a waiting pcclConnect fail.
 *
 * The communicator is then lost: attributes read 1, waiting calls fail as on any lost communicator, and pcclConnect
 * joins again, as a newcomer. Buffers of operations without an outcome hold their inputs. The other members may still
 * complete such an operation.
 *
 * Blocks until those calls have their results: usually some seconds at most, longer if the result of a committed
 * operation is being copied into its buffer. It does not wait for a first pcclConnect that still resolves the address in
 * its invitation or asks the router for a port: that one fails when it has done so, within 10 s.
 */
PCCL_EXPORT pcclResult_t pcclAbort(pcclComm_t* comm);

/*
 * The library calls it about every 50 ms while a call of its thread on a communicator waits. If it returns true, the
 * communicator leaves the run as with pcclAbort, and the call returns what it returns on a lost communicator. The check
 * may call any function of this library that does not wait, and pcclAbort. If it calls one that waits, it gives that
 * call another check or none, and sets itself again afterwards. It must not destroy the communicator of the waiting
 * call: that would wait for the call. It must return: no exception, no longjmp.
 */
typedef bool (*pcclWaitCheck_t)(void* user);

/*
 * Sets the check of the calling thread; null removes it. Returns at once. It is for interpreters such as Python, which
 * run signal handlers only between two of their own instructions. pcclMasterAwaitTermination and the destroy functions
 * do not call the check. Needs no pcclInit.
 */
PCCL_EXPORT pcclResult_t pcclSetWaitCheck(pcclWaitCheck_t PCCL_NULLABLE check, void* PCCL_NULLABLE user);

/*
 * `result` is what pcclAwaitAsyncReduce would return. `info` is never null; it is all 0 after a failure. `message` is
 * the cause of a failure, "" on success. Both pointers are valid only during the call.
 */
typedef void (*pcclReduceCallback_t)(pcclResult_t result, const pcclReduceInfo_t* info, const char* message,
                                     void* user);

/*
 * pcclAwaitAsyncReduce without blocking: returns at once. `callback` is called exactly once, when the outcome is known.
 * The buffers belong to the caller again when it is called. This call counts as the one await of the launch.
 *
 * Each communicator has one thread that calls its callbacks, one after the other, and holds no lock. A callback may
 * call any function of this library, for example launch the next reduction. It must return: no exception, no longjmp. A
 * slow callback delays only later callbacks. pcclDestroyCommunicator returns after the last callback has returned. If a
 * callback calls it, it returns at once, and the remaining callbacks are called afterwards.
 *
 * Errors: those of pcclAwaitAsyncReduce that are known at once. Then the callback is not called.
 */
PCCL_EXPORT pcclResult_t pcclAwaitAsyncReduceThen(const pcclAsyncReduceOp_t* reduce_handle,
                                                  pcclReduceCallback_t callback, void* PCCL_NULLABLE user);

/* ---- identity of peers ------------------------------------------------------------------------------------------- */

/* Names a peer for as long as it is in the run. A peer that connects again gets another one. */
typedef struct pcclPeerId_t {
    uint8_t bytes[16];
} pcclPeerId_t;

/*
 * Writes the name of this peer in the run to `*peer_out`. Returns at once.
 *
 * Errors: pcclInvalidUsage before pcclConnect.
 */
PCCL_EXPORT pcclResult_t pcclGetPeerId(const pcclComm_t* comm, pcclPeerId_t* peer_out);

/* ---- collectives ------------------------------------------------------------------------------------------------- */

/* What a collective moves that reduces nothing. */
typedef struct pcclCopyDescriptor_t {
    size_t count; /* elements; 0 is legal */
    pcclDataType_t datatype;
    uint64_t tag; /* as in pcclReduceDescriptor_t; all collectives share the tags of a group */
} pcclCopyDescriptor_t;

typedef struct pcclMemberInfo_t {
    pcclPeerId_t peer;
    /*
     * pcclAllGather, pcclGather: elements that it sent. pcclReduceScatter, pcclScatter: elements that it received.
     * pcclAllToAll: elements that the caller received from it. pcclSend, pcclRecv: elements that were sent. Else 0.
     */
    uint64_t count;
} pcclMemberInfo_t;

/*
 * The outcome of a collective. The members that took part have indices from 0, in the order in which they were
 * admitted. A member that leaves moves the later ones up; otherwise the index of a member does not change.
 *
 * The caller sets `members` and `members_capacity` before the call. `members` may be null. The library writes as many
 * entries as there are members, at most `members_capacity`; entry i is the member with index i.
 */
typedef struct pcclCollectiveInfo_t {
    pcclMemberInfo_t* members;
    size_t members_capacity;
    uint32_t local_world_size; /* members that took part */
    uint32_t local_index;      /* our own index */
    uint64_t tx_bytes;         /* payload bytes, as in pcclReduceInfo_t */
    uint64_t rx_bytes;
} pcclCollectiveInfo_t;

/*
 * The rules of pcclAllReduce hold for all functions of this section. All members of the group launch the same kind with
 * the same tag, in any order among other tags. The outcome is the same on every member that survives: either all of
 * them have their results, or the collective failed for all. After a failure sendbuf is untouched, and recvbuf is
 * undefined unless it is sendbuf. Overlapping buffers give pcclInvalidArgument unless in-place use is described. A null
 * buffer is legal where it has no elements. `info_out` (nullable) is filled on success. The elements are sent as they
 * are; quantization gives pcclInvalidArgument.
 *
 * The blocking functions return what launch and await would return. An asynchronous function returns at once, and both
 * buffers belong to the operation until its await has returned: pcclAwaitCollective, pcclAwaitCollectiveThen, or
 * pcclAwaitAsyncReduce and pcclAwaitAsyncReduceThen, which report no members.
 *
 * Errors, beside those of pcclAllReduceAsync and pcclAwaitAsyncReduce:
 * - pcclInvalidArgument: the members disagree about kind, datatype, operation, count or root; or the root is not a
 *   member of the group, also because it has left since. Then take another root.
 */

/*
 * Sets in which order the pieces of the members lie in the arrays of this communicator: order[k] is the index of the
 * member whose piece is the k-th one. It holds for all launches of pcclAllGather, pcclReduceScatter, pcclGather,
 * pcclScatter and pcclAllToAll that begin afterwards, and for nobody else: members may use different orders, and bytes
 * travel as before. Nothing is copied for it. Use it if a program numbers its processes in another way than the run, as
 * ranks do. `order` names each index below `members` once, and is copied. Null and 0: the order of indices again.
 *
 * pcclPieces_t and pcclCollectiveInfo_t stay in the order of indices. If a group has more members than the order, the
 * pieces of the others come last; if it has fewer, the missing ones are skipped. Indices move when members leave: set
 * the order anew.
 *
 * Returns at once. Threads: as all functions of a communicator; a launch in another thread sees the order before or
 * after.
 * Errors: pcclInvalidArgument if an index is named twice or is not below `members`; the order then stays as it was.
 */
PCCL_EXPORT pcclResult_t pcclSetPieceOrder(const pcclComm_t* comm, const uint32_t* PCCL_NULLABLE order,
                                           size_t members);

/*
 * Gathers the arrays of all members at all members. `descriptor->count` is the number of elements of this member's
 * array. Each member may have another one. recvbuf gets all arrays, one behind the other, in the order of indices;
 * pcclMemberInfo_t has their lengths. recvbuf has room for `recv_capacity` elements. sendbuf must be outside of
 * recvbuf.
 *
 * Errors: pcclInvalidArgument at all members if the sum of counts is more than the smallest capacity.
 */
PCCL_EXPORT pcclResult_t pcclAllGather(const void* PCCL_NULLABLE sendbuf, void* PCCL_NULLABLE recvbuf,
                                       size_t recv_capacity, const pcclCopyDescriptor_t* descriptor,
                                       const pcclComm_t* comm, pcclCollectiveInfo_t* PCCL_NULLABLE info_out);
/* Launches pcclAllGather and returns at once; `*handle_out` identifies it. */
PCCL_EXPORT pcclResult_t pcclAllGatherAsync(const void* PCCL_NULLABLE sendbuf, void* PCCL_NULLABLE recvbuf,
                                            size_t recv_capacity, const pcclCopyDescriptor_t* descriptor,
                                            const pcclComm_t* comm, pcclAsyncReduceOp_t* handle_out);

/*
 * Sends the array of `root` to all members. Only the root reads sendbuf; other members may pass null. recvbuf is filled
 * at all members. sendbuf == recvbuf is legal; it then holds what it held before if the broadcast fails.
 */
PCCL_EXPORT pcclResult_t pcclBroadcast(const void* PCCL_NULLABLE sendbuf, void* PCCL_NULLABLE recvbuf,
                                       const pcclPeerId_t* root, const pcclCopyDescriptor_t* descriptor,
                                       const pcclComm_t* comm, pcclCollectiveInfo_t* PCCL_NULLABLE info_out);
/* Launches pcclBroadcast and returns at once; `*handle_out` identifies it. */
PCCL_EXPORT pcclResult_t pcclBroadcastAsync(const void* PCCL_NULLABLE sendbuf, void* PCCL_NULLABLE recvbuf,
                                            const pcclPeerId_t* root, const pcclCopyDescriptor_t* descriptor,
                                            const pcclComm_t* comm, pcclAsyncReduceOp_t* handle_out);

/*
 * Reduces arrays of `descriptor->count` elements. Each member receives one piece of the result: `recv_count` elements,
 * which each member chooses. The pieces lie in the array in the order of indices, and together they are all of it. With
 * sendbuf == recvbuf the piece is written to the beginning of the array.
 *
 * Errors:
 * - pcclRankConnectionLost: the group has another size than the attribute had at the launch; choose the pieces anew.
 * - pcclInvalidArgument at all members if the sum of the pieces is not the count.
 */
PCCL_EXPORT pcclResult_t pcclReduceScatter(const void* PCCL_NULLABLE sendbuf, void* PCCL_NULLABLE recvbuf,
                                           size_t recv_count, const pcclReduceDescriptor_t* descriptor,
                                           const pcclComm_t* comm, pcclCollectiveInfo_t* PCCL_NULLABLE info_out);
/* Launches pcclReduceScatter and returns at once; `*handle_out` identifies it. */
PCCL_EXPORT pcclResult_t pcclReduceScatterAsync(const void* PCCL_NULLABLE sendbuf, void* PCCL_NULLABLE recvbuf,
                                                size_t recv_count, const pcclReduceDescriptor_t* descriptor,
                                                const pcclComm_t* comm, pcclAsyncReduceOp_t* handle_out);

/*
 * Reduces arrays of `descriptor->count` elements. Only `root` gets the result, in recvbuf, which may be sendbuf. Other
 * members may pass null for recvbuf; it is not written there.
 */
PCCL_EXPORT pcclResult_t pcclReduce(const void* PCCL_NULLABLE sendbuf, void* PCCL_NULLABLE recvbuf,
                                    const pcclPeerId_t* root, const pcclReduceDescriptor_t* descriptor,
                                    const pcclComm_t* comm, pcclCollectiveInfo_t* PCCL_NULLABLE info_out);
/* Launches pcclReduce and returns at once; `*handle_out` identifies it. */
PCCL_EXPORT pcclResult_t pcclReduceAsync(const void* PCCL_NULLABLE sendbuf, void* PCCL_NULLABLE recvbuf,
                                         const pcclPeerId_t* root, const pcclReduceDescriptor_t* descriptor,
                                         const pcclComm_t* comm, pcclAsyncReduceOp_t* handle_out);

/*
 * Gathers the arrays of all members at `root`. `descriptor->count` is the number of elements of this member's array.
 * Each member may have another one. At the root recvbuf gets all arrays, one behind the other, in the order of indices,
 * and has room for `recv_capacity` elements; sendbuf must be outside of recvbuf. Other members may pass null for
 * recvbuf and any capacity; nothing is written there.
 *
 * Arrays of more than 16 KiB go around the ring at first, and over direct connections between their two members when
 * the master finds that these work, in groups of at most 32 members. After a direct connection failed, they go around
 * the ring for a while. Arrays that travel through a member need memory there, beside its buffers
 * (PCCL_MAX_SCRATCH_BYTES limits it). All this holds for pcclScatter and pcclAllToAll, too.
 *
 * Errors:
 * - pcclInvalidArgument at all members if the sum of counts is more than the root's capacity.
 * - pcclInvalidUsage at all members if what travels through one of them exceeds its limit of scratch memory, or if the
 *   arrays are too long for one collective (4,194,304 slices of PCCL_MULTIPLEX_CHUNK_SIZE).
 */
PCCL_EXPORT pcclResult_t pcclGather(const void* PCCL_NULLABLE sendbuf, void* PCCL_NULLABLE recvbuf,
                                    size_t recv_capacity, const pcclPeerId_t* root,
                                    const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                    pcclCollectiveInfo_t* PCCL_NULLABLE info_out);
/* Launches pcclGather and returns at once; `*handle_out` identifies it. */
PCCL_EXPORT pcclResult_t pcclGatherAsync(const void* PCCL_NULLABLE sendbuf, void* PCCL_NULLABLE recvbuf,
                                         size_t recv_capacity, const pcclPeerId_t* root,
                                         const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                         pcclAsyncReduceOp_t* handle_out);

/*
 * How a send buffer is cut into pieces for members: piece i is for the member with index i, and the pieces lie one
 * behind the other. The caller gives the number of members for which it made them. If the group has another one, the
 * collective fails for all with pcclRankConnectionLost. Indices move when members leave and join. A program that uses
 * different counts learns them anew after pcclUpdateTopology, for example with pcclBarrier.
 */
typedef struct pcclPieces_t {
    const uint64_t* counts; /* elements of each piece; null: each has the descriptor's count */
    size_t members;         /* number of pieces */
} pcclPieces_t;

/*
 * Cuts the array of `root` into pieces and sends each member its own. Only the root reads sendbuf, `pieces` and
 * `descriptor->count`; other members may pass null for the first two. recvbuf has room for `recv_capacity` elements at
 * each member; the entry of `info_out` with the own index says how many were written. At the root sendbuf == recvbuf is
 * legal: the own piece is then written to the beginning of the array. `counts` is copied.
 *
 * Errors: those of pcclGather for memory and length;
 * - pcclRankConnectionLost: the group has another size than the root's `pieces->members`.
 * - pcclInvalidArgument at all members if some piece is larger than its member's capacity; at the caller if
 *   `pieces->members` is 0 at the root.
 * - pcclInvalidUsage at all members if the list of counts does not fit into a message (2 KiB; 400 members and more).
 */
PCCL_EXPORT pcclResult_t pcclScatter(const void* PCCL_NULLABLE sendbuf, const pcclPieces_t* PCCL_NULLABLE pieces,
                                     void* PCCL_NULLABLE recvbuf, size_t recv_capacity, const pcclPeerId_t* root,
                                     const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                     pcclCollectiveInfo_t* PCCL_NULLABLE info_out);
/* Launches pcclScatter and returns at once; `*handle_out` identifies it. */
PCCL_EXPORT pcclResult_t pcclScatterAsync(const void* PCCL_NULLABLE sendbuf, const pcclPieces_t* PCCL_NULLABLE pieces,
                                          void* PCCL_NULLABLE recvbuf, size_t recv_capacity, const pcclPeerId_t* root,
                                          const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                          pcclAsyncReduceOp_t* handle_out);

/*
 * Each member sends a piece of its array to each member. recvbuf gets the pieces for this member, one behind the other,
 * in the order of the indices of their senders, and has room for `recv_capacity` elements; pcclMemberInfo_t has their
 * lengths. sendbuf must be outside of recvbuf. Members may use different counts, and some a null `counts`, which is
 * copied.
 *
 * Errors: those of pcclScatter; `pieces` is needed at all members, and the number of any of them may be wrong.
 */
PCCL_EXPORT pcclResult_t pcclAllToAll(const void* PCCL_NULLABLE sendbuf, const pcclPieces_t* pieces,
                                      void* PCCL_NULLABLE recvbuf, size_t recv_capacity,
                                      const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                      pcclCollectiveInfo_t* PCCL_NULLABLE info_out);
/* Launches pcclAllToAll and returns at once; `*handle_out` identifies it. */
PCCL_EXPORT pcclResult_t pcclAllToAllAsync(const void* PCCL_NULLABLE sendbuf, const pcclPieces_t* pieces,
                                           void* PCCL_NULLABLE recvbuf, size_t recv_capacity,
                                           const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                           pcclAsyncReduceOp_t* handle_out);

/*
 * Sends the array of this member to another member of the group, `receiver`, which calls pcclRecv with this member's
 * name and the same tag. The two calls are one operation of these two members. Sends of another pair, and from
 * `receiver` to this member, may have the same tag at the same time, and so may other collectives. A send of one pair
 * with one tag is launched once at a time; the next one needs another tag, or the outcome of the first one.
 *
 * `descriptor->count` is the number of elements, 0 is legal. sendbuf is never written. The call returns when the
 * outcome is known: the receiver has all of it, or the operation failed for both. `info_out` lists the two: index 0 is
 * the sender, index 1 the receiver.
 *
 * Small arrays travel with the votes through the master (16 KiB at most). Larger ones travel along the ring, from
 * member to member. The members between the two take part without a call, whatever their programs do. They need memory
 * for the whole array meanwhile, as the receiver does (PCCL_MAX_SCRATCH_BYTES limits it at each). If one of them is
 * lost, the operation fails.
 *
 * Errors, beside those of pcclAllReduceAsync and pcclAwaitAsyncReduce, at both members:
 * - pcclRankConnectionLost: the other member is lost, before or after it called; or it is no member of the group; or a
 *   member between the two was lost. Nothing was received. Look at the members (pcclBarrier), and try again.
 * - pcclInvalidArgument: the two disagree about the datatype, or the receiver has room for fewer elements. At the
 *   caller alone: it names itself, or a send of this pair with this tag is launched already.
 * - pcclInvalidUsage: a member that the array travels through, or the receiver, has too little scratch memory; or the
 *   array is too long for one collective (see pcclGather); or with PCCL_VOTE_TIMEOUT_S, the calls of members cross.
 *
 * Each waits for the other one: two members that send to each other with the blocking functions wait for ever. Use
 * pcclSendAsync, or let one of them receive first.
 */
PCCL_EXPORT pcclResult_t pcclSend(const void* PCCL_NULLABLE sendbuf, const pcclPeerId_t* receiver,
                                  const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                  pcclCollectiveInfo_t* PCCL_NULLABLE info_out);
/* Launches pcclSend and returns at once; `*handle_out` identifies it. Its tag is not that of the descriptor. */
PCCL_EXPORT pcclResult_t pcclSendAsync(const void* PCCL_NULLABLE sendbuf, const pcclPeerId_t* receiver,
                                       const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                       pcclAsyncReduceOp_t* handle_out);

/*
 * Receives the array of another member, `sender`, which calls pcclSend with this member's name and the same tag.
 * recvbuf has room for `descriptor->count` elements. The count of the members in `info_out` says how many were written.
 * Behind them, and after a failure, recvbuf is as before.
 *
 * Errors: those of pcclSend.
 */
PCCL_EXPORT pcclResult_t pcclRecv(void* PCCL_NULLABLE recvbuf, const pcclPeerId_t* sender,
                                  const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                  pcclCollectiveInfo_t* PCCL_NULLABLE info_out);
/* Launches pcclRecv and returns at once; `*handle_out` identifies it. Its tag is not that of the descriptor. */
PCCL_EXPORT pcclResult_t pcclRecvAsync(void* PCCL_NULLABLE recvbuf, const pcclPeerId_t* sender,
                                       const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                       pcclAsyncReduceOp_t* handle_out);

/* Succeeds when all members of the group have called it with this tag. `info_out` then lists the members. */
PCCL_EXPORT pcclResult_t pcclBarrier(uint64_t tag, const pcclComm_t* comm,
                                     pcclCollectiveInfo_t* PCCL_NULLABLE info_out);
/* Launches pcclBarrier and returns at once; `*handle_out` identifies it. */
PCCL_EXPORT pcclResult_t pcclBarrierAsync(uint64_t tag, const pcclComm_t* comm, pcclAsyncReduceOp_t* handle_out);

/*
 * Waits for the outcome of a launched collective, as pcclAwaitAsyncReduce does. `info_out` (nullable) is filled on
 * success; an all-reduce reports no members.
 */
PCCL_EXPORT pcclResult_t pcclAwaitCollective(const pcclAsyncReduceOp_t* handle,
                                             pcclCollectiveInfo_t* PCCL_NULLABLE info_out);

/*
 * `result` is what pcclAwaitCollective would return. `info` is never null and lists all members; it is all 0 after a
 * failure, with no members. `message` is the cause of a failure, "" on success. The pointers are valid only during the
 * call.
 */
typedef void (*pcclCollectiveCallback_t)(pcclResult_t result, const pcclCollectiveInfo_t* info, const char* message,
                                         void* user);

/* pcclAwaitCollective without blocking, by the rules of pcclAwaitAsyncReduceThen. */
PCCL_EXPORT pcclResult_t pcclAwaitCollectiveThen(const pcclAsyncReduceOp_t* handle, pcclCollectiveCallback_t callback,
                                                 void* PCCL_NULLABLE user);

/* ---- counters ---------------------------------------------------------------------------------------------------- */

/*
 * Writes the counters of a communicator to `buffer` as one JSON object, terminated by a 0 byte. `*needed_out`
 * (nullable) gets the number of bytes, including that one. With a null `buffer` and size 0 the call only writes
 * `*needed_out`. Waits for no other peer. Legal in every state.
 *
 * The counters cover all memberships since the communicator was created. docs/settings.md lists the fields; later
 * versions may add some.
 *
 * Errors: pcclInvalidArgument if `size` is smaller than needed. Then nothing is written to `buffer`.
 */
PCCL_EXPORT pcclResult_t pcclGetStats(const pcclComm_t* comm, char* PCCL_NULLABLE buffer, size_t size,
                                      size_t* PCCL_NULLABLE needed_out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PCCL_EXT_H */
