/*
 * pccl.h: collective communication over TCP between peers that join and leave at any time.
 *
 * A run is one master and any number of peers. A peer creates a communicator and connects it to the master, and the
 * members of the run admit it. Then all members reduce arrays together and keep a shared state equal. If a peer dies,
 * the running operation fails on the others, their inputs stay intact, and they go on without it.
 *
 *   pcclInit();
 *   pcclCreateCommunicator(&params, &comm);
 *   pcclConnect(comm);                          // waits until the peers of the run admit us
 *   for (turn = 0; ; ++turn) {
 *       if (turn > 0) pcclUpdateTopology(comm); // admits newcomers; all peers call it together
 *       pcclSynchronizeSharedState(comm, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, NULL);
 *       ... compute ...
 *       while (pcclAllReduce(buffer, buffer, &descriptor, comm, &info) != pcclSuccess) { ... retry or leave ... }
 *       state.revision += 1;
 *   }
 *   pcclDestroyCommunicator(comm);
 *
 * Rules for every function:
 * - Results. A function returns a pcclResult_t and never ends the process. A null pointer, an unknown enum value or a
 *   combination that makes no sense gives pcclInvalidArgument. Before pcclInit, functions on a communicator return
 *   pcclNotInitialized. Every result other than pcclSuccess writes one line to the log (standard error, see
 *   PCCL_LOG_LEVEL) with the cause and the remedy.
 * - Threads. Any thread may call any function, several threads at a time, also on one communicator. There are two
 *   exceptions. A handle must not be used after the call that destroys it has been made. And memory that a call or a
 *   launched operation still owns must not be written by anybody else. "const" handles are shallow: the object behind
 *   the handle may change. Different votes of several threads are open at the same time, in any order. If two threads
 *   make the same vote of all members, the second one votes when the first one has its answer.
 * - States. A communicator is new (created), connected, or lost (removed from the run, or the master is gone for
 *   good). On a lost one all world sizes read 1, calls fail as described at each function, and pcclConnect may be
 *   called again.
 * - Votes. A function marked "vote" blocks until every peer named there has made the same call. It does not wait for
 *   a peer that vanishes. Waiting has no limit, because applications may compute for minutes, unless the master sets
 *   PCCL_VOTE_TIMEOUT_S. A warning names the peers that are missing.
 * - fork(). The child owns none of its parent's communicators and masters: calls on them return pcclInvalidUsage, and
 *   the destroy functions only close descriptors. Objects that the child makes itself work.
 */
#ifndef PCCL_H
#define PCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ccoip_inet.h"

#define PCCL_VERSION_MAJOR 1
#define PCCL_VERSION_MINOR 1
#define PCCL_VERSION_PATCH 0

#if defined(__GNUC__)
#define PCCL_EXPORT __attribute__((visibility("default")))
#else
#define PCCL_EXPORT
#endif

/* Marks a pointer argument that may be null. */
#define PCCL_NULLABLE

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values ------------------------------------------------------------------------------------------------------ */

typedef enum pcclResult_t {
    pcclSuccess = 0,
    pcclNotInitialized = 1,         /* pcclInit was not called */
    pcclInternalError = 2,          /* out of memory, descriptors or threads, or a defect of this library */
    pcclInvalidArgument = 3,        /* the arguments can never work; nothing was done */
    pcclInvalidUsage = 4,           /* the call is not possible in this state of the object */
    pcclTooFewPeers = 5,            /* alone in the group: admit a peer first, or go on alone */
    pcclMasterConnectionFailed = 6, /* joining failed; try again */
    pcclRankConnectionFailed = 7,   /* pcclConnect: no member can be connected */
    pcclRankConnectionLost = 8,     /* the operation failed for the whole group; inputs are intact, retry */
    pcclNoSharedStateAvailable = 9, /* never returned */
    pcclPendingAsyncOps = 10,       /* await the launched operations first */
    pcclUpdateTopologyFailed = 11,  /* removed from the run, or the master is gone */
    pcclTopologyOptimizationFailed = 12
} pcclResult_t;

typedef enum pcclDataType_t {
    pcclUint8 = 0,
    pcclInt8 = 1,
    pcclInt16 = 2,
    pcclUint16 = 3,
    pcclUint32 = 4,
    pcclInt32 = 5,
    pcclUint64 = 6,
    pcclInt64 = 7,
    pcclFloat16 = 8,  /* IEEE 754 binary16 */
    pcclBFloat16 = 9, /* upper half of binary32 */
    pcclFloat = 10,   /* IEEE 754 binary32 */
    pcclDouble = 11   /* IEEE 754 binary64 */
} pcclDataType_t;

typedef enum pcclDeviceType_t { pcclDeviceCpu = 0, pcclDeviceCuda = 1 } pcclDeviceType_t;

/*
 * Element-wise operations. Integers wrap. The average of integers divides the wrapped sum and truncates toward zero.
 * 16-bit floats are added in 32 bits and rounded to nearest even once per hop; the average divides before the last
 * rounding. Max and min propagate NaN (as the canonical quiet NaN). min(-0, +0) is -0, max(-0, +0) is +0.
 */
typedef enum pcclRedOp_t { pcclSum = 0, pcclAvg = 1, pcclProd = 2, pcclMax = 3, pcclMin = 4 } pcclRedOp_t;

/* Attributes count accepted members. They never count peers that still wait to be admitted. */
typedef enum pcclAttribute_t {
    PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE = 1,            /* members of the run, all groups */
    PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE = 2,        /* members of our group */
    PCCL_ATTRIBUTE_NUM_DISTINCT_PEER_GROUPS = 3,     /* groups that have members */
    PCCL_ATTRIBUTE_LARGEST_PEER_GROUP_WORLD_SIZE = 4 /* members of the largest group */
} pcclAttribute_t;

typedef enum pcclSharedStateSyncStrategy_t {
    PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR =
        0, /* the most common content wins; if one member uses it, all must */
    PCCL_SHARED_STATE_SYNC_STRATEGY_RECEIVE_ONLY = 1, /* our content does not count, and we send nothing */
    PCCL_SHARED_STATE_SYNC_STRATEGY_SEND_ONLY = 2     /* our content counts, and our entries are never written */
} pcclSharedStateSyncStrategy_t;

typedef enum pcclDistributionHint_t {
    pcclDistributionNone = 0,
    pcclDistributionNormal = 1,
    pcclDistributionUniform = 2
} pcclDistributionHint_t;

/*
 * How the elements of a reduction are sent. With pcclQuantNone they are sent as they are. Otherwise they must be
 * pcclFloat or pcclDouble and are quantized: sent as whole numbers n of b bits, in blocks of 512 elements with two
 * parameters each. An element x is sent as n, and n is read as base + n * step, where
 *
 *   n = round((x - base) / step), to nearest, ties to even.
 *
 *   pcclQuantMinMax          base = minimum of the block, step = (maximum - minimum) / (2^b - 1).
 *                            To pcclUint8, 16, 32, 64, pcclInt8, 16, 32 and pcclUint4.
 *   pcclQuantZeroPointScale  base = mean of the block, step = (largest distance from it) / (2^(b-1) - 1), the numbers
 *                            are symmetric about 0. With pcclDistributionNormal the distance is at most 6 standard
 *                            deviations, and values farther away become the end of that range.
 *                            To the same types except pcclUint64.
 *
 * A member quantizes each element that it sends on: its own input at most once, and each partial result once. It adds
 * in full precision. So a member's error is at most half a step of its own block, besides the rounding to the element
 * type. The member that completes an element quantizes it a last time. All members, including that one, read the result
 * from those bytes. So the result bytes are equal everywhere, also if the machines differ.
 *
 * A block of equal values is exact, and so is the smallest value of a pcclQuantMinMax block; -0 becomes +0. A block
 * becomes NaN as a whole (the canonical quiet NaN) if it contains a NaN or an infinity when it is sent, or pcclDouble
 * values farther apart than the largest double. Any other combination of types is pcclInvalidArgument at the launch.
 */
typedef enum pcclQuantizationAlgorithm_t {
    pcclQuantNone = 0,
    pcclQuantMinMax = 1,
    pcclQuantZeroPointScale = 2
} pcclQuantizationAlgorithm_t;

/* 4-bit numbers, only for quantized_datatype. A macro, because the enumeration is frozen. New in 1.1. */
#define pcclUint4 ((pcclDataType_t)12)

/* ---- structures -------------------------------------------------------------------------------------------------- */

typedef struct pcclComm_t pcclComm_t;
typedef struct pcclRankInfo_t pcclRankInfo_t; /* used by no function */
typedef struct pcclMasterInstanceState_t pcclMasterInstance_t;

typedef struct pcclCommCreateParams_t {
    ccoip_socket_address_t master_address;
    uint32_t peer_group;               /* collectives run among the peers of one group; any number */
    uint32_t p2p_connection_pool_size; /* connections to each neighbour; 0: the library chooses */
} pcclCommCreateParams_t;

typedef struct pcclReduceInfo_t {
    /* Members that took part. Divide the result of this operation by this number, not by the attribute. */
    uint32_t local_world_size;
    uint64_t tx_bytes; /* payload bytes sent by this peer, as sent: quantized, with parameters */
    uint64_t rx_bytes; /* payload bytes received by this peer, counted likewise */
} pcclReduceInfo_t;

typedef struct pcclReduceOperandDescriptor_t {
    pcclDataType_t datatype;
    pcclDistributionHint_t distribution_hint; /* see pcclQuantZeroPointScale; ignored with pcclQuantNone */
} pcclReduceOperandDescriptor_t;

typedef struct pcclQuantizationOptions_t {
    pcclDataType_t quantized_datatype; /* ignored with pcclQuantNone */
    pcclQuantizationAlgorithm_t algorithm;
} pcclQuantizationOptions_t;

typedef struct pcclReduceDescriptor_t {
    size_t count; /* elements; 0 is legal, and so is less than the world size */
    pcclRedOp_t op;
    uint64_t tag; /* identifies the operation among those running at the same time in the group */
    pcclReduceOperandDescriptor_t src_descriptor;
    pcclQuantizationOptions_t quantization_options;
} pcclReduceDescriptor_t;

typedef struct pcclReduceSingleDescriptor_t {
    void* sendbuf;
    void* recvbuf;
    pcclReduceDescriptor_t descriptor;
} pcclReduceOpDescriptor_t;

/* Identifies a launched operation. A plain value without ownership: it may be copied, kept and dropped. */
typedef struct pcclAsyncReduceOp_t {
    pcclComm_t* comm;
    uint64_t tag;
} pcclAsyncReduceOp_t;

typedef struct pcclRankUuid_t {
    uint8_t data[16];
} pcclRankUuid_t; /* used by no function */

/* One array of the shared state. The caller owns `name` and `data`, which must live until the call returns. */
typedef struct pcclTensorInfo_t {
    const char* name; /* unique in the state; 1 to 1024 bytes */
    void* data;       /* may be null only if count is 0 */
    size_t count;     /* elements */
    pcclDataType_t datatype;
    pcclDeviceType_t device_type;
    bool allow_content_inequality; /* not compared between members; a newcomer receives it once */
} pcclTensorInfo_t;

typedef struct pcclSharedState_t {
    uint64_t revision; /* in: the revision that we hold; out: the one that the group agreed on */
    size_t count;      /* entries */
    pcclTensorInfo_t* infos;
} pcclSharedState_t;

typedef struct pcclSharedStateSyncInfo_t {
    uint64_t tx_bytes; /* content bytes sent by this call */
    uint64_t rx_bytes; /* content bytes received by this call; 0 if we held the winning content already */
} pcclSharedStateSyncInfo_t;

typedef struct pcclBuildInfo_t {
    bool has_cuda_support;
} pcclBuildInfo_t;

/* ---- library ----------------------------------------------------------------------------------------------------- */

/*
 * Initializes the library. Call it before any function of a communicator; the functions of the master do not need it.
 * Returns at once, is thread-safe and may be called again. It starts no thread and opens nothing.
 */
PCCL_EXPORT pcclResult_t pcclInit(void);

/* Writes to `*info` what this library was built with. Needs no pcclInit. Returns at once. */
PCCL_EXPORT pcclResult_t pcclGetBuildInfo(pcclBuildInfo_t* info);

/* ---- communicator: life cycle ------------------------------------------------------------------------------------ */

/*
 * Creates a communicator in `*comm_out`. The caller owns it and ends it with pcclDestroyCommunicator. Returns at once:
 * the parameters are copied, and the network is not touched.
 *
 * Errors: pcclNotInitialized before pcclInit.
 */
PCCL_EXPORT pcclResult_t pcclCreateCommunicator(const pcclCommCreateParams_t* params, pcclComm_t** comm_out);

/*
 * Joins the run. Blocks until the members that are present admit us at their next pcclUpdateTopology. The first peer of
 * a run is admitted at once.
 *
 * Afterwards the caller is at the point where the others are after that pcclUpdateTopology. So it does not call
 * pcclUpdateTopology in its first turn. (If it does while the others go on, that call succeeds for it alone and admits
 * nobody.)
 *
 * Errors:
 * - pcclInvalidUsage: connected already.
 * - pcclMasterConnectionFailed: joining failed, or no port of PCCL_PORT_RANGE is free. The communicator stays usable:
 *   call again.
 * - pcclInvalidArgument: the invitation (PCCL_INVITE) is spent, expired, withdrawn or revoked, or the master does not know
 *   it. Calling again does not help; a new invitation does.
 * - pcclRankConnectionFailed: the network of this peer translates addresses, and neither this peer nor the members can
 *   connect to the other. The message names what was tried.
 */
PCCL_EXPORT pcclResult_t pcclConnect(pcclComm_t* comm);

/*
 * Reads one attribute into `*value_out`. Attributes change only when a call on this communicator returns: the value is
 * that of the epoch with which the last call returned. But all attributes of a lost communicator read 1 at once. Never
 * blocks, also while collectives run.
 *
 * Errors:
 * - pcclInvalidUsage: no pcclConnect has succeeded yet.
 * - pcclInvalidArgument: unknown attribute.
 */
PCCL_EXPORT pcclResult_t pcclGetAttribute(const pcclComm_t* comm, pcclAttribute_t attribute, int* value_out);

/*
 * Leaves the run cleanly and frees everything; no thread and no descriptor remains. Legal in every state. Blocks
 * briefly: the time is bounded, also without a master.
 *
 * Calls that wait on this communicator in other threads return with the code of a lost communicator before it is freed.
 * A launched operation that nobody has awaited fails for the group. After the call the handle is invalid; destroying it
 * again gives pcclInvalidArgument.
 */
PCCL_EXPORT pcclResult_t pcclDestroyCommunicator(pcclComm_t* comm);

/* ---- communicator: membership ------------------------------------------------------------------------------------ */

/*
 * Vote of all members of all groups: blocks until all have called it. Admits the peers that wait, connects neighbours
 * and agrees on world sizes.
 *
 * Errors:
 * - pcclInvalidUsage: before pcclConnect.
 * - pcclPendingAsyncOps: a launched operation is not awaited.
 * - pcclUpdateTopologyFailed: we were removed from the run, or the master is gone for good.
 */
PCCL_EXPORT pcclResult_t pcclUpdateTopology(pcclComm_t* comm);

/*
 * Vote of all members of all groups: blocks until all have called it. Writes to `*pending_out` whether peers wait that
 * the next pcclUpdateTopology would admit. The answer is the same for all members. Changes nothing. Legal while
 * collectives run.
 *
 * Errors: pcclInvalidUsage if not connected.
 */
PCCL_EXPORT pcclResult_t pcclArePeersPending(const pcclComm_t* comm, bool* pending_out);

/*
 * Vote of all members of all groups. Measures bandwidths, and installs for each group the fastest ring that was found.
 * By the measurements, the ring never gets slower.
 *
 * It measures each pair of members, in each direction, whose bandwidth is unknown or was measured more than an hour
 * ago, in groups of three or more. A pair that cannot be measured is no failure. Blocks until all members have called
 * it, and then for the measurements: a test takes at most about a second, a member is in one test at a time, and no
 * test begins later than 20 s after the first. The next call measures what is left. Later calls cost little while the
 * members stay the same. Any thread may call.
 *
 * Errors:
 * - pcclInvalidUsage: before pcclConnect, or while we are alone in the run.
 * - pcclPendingAsyncOps: a launched operation is not awaited.
 * - pcclTopologyOptimizationFailed: we were removed from the run, the master is gone for good, or all other members
 *   vanished during the call.
 */
PCCL_EXPORT pcclResult_t pcclOptimizeTopology(const pcclComm_t* comm);

/* ---- communicator: collectives ----------------------------------------------------------------------------------- */

/*
 * Reduces `descriptor->count` elements over the members of the group. All of them receive the same bytes. Blocks until
 * the outcome. It equals pcclAllReduceAsync followed by pcclAwaitAsyncReduce and returns what they return.
 *
 * sendbuf == recvbuf reduces in place; buffers that overlap in another way give pcclInvalidArgument. Any alignment is
 * legal. A null buffer is legal only with count 0. `info_out` (nullable) is filled on success.
 *
 * After a failure an in-place buffer holds its input again. Out of place, sendbuf is untouched and recvbuf is
 * undefined. The attributes are already refreshed: if the world is still greater than 1, the same call may be made
 * again at once.
 */
PCCL_EXPORT pcclResult_t pcclAllReduce(const void* sendbuf, void* recvbuf, const pcclReduceDescriptor_t* descriptor,
                                       const pcclComm_t* comm, pcclReduceInfo_t* PCCL_NULLABLE info_out);

/*
 * Launches a reduction and returns at once; `*reduce_handle_out` identifies it. Both buffers belong to the operation
 * until the matching pcclAwaitAsyncReduce has returned.
 *
 * All members launch the same set of tags, in any order. Count, type, operation and quantization must agree on all
 * members (with pcclQuantNone, the quantized type and the hint are ignored). A tag may be used again after it was
 * awaited.
 *
 * Errors:
 * - pcclInvalidUsage: before pcclConnect.
 * - pcclInvalidArgument: values that cannot work, or a tag that is launched already (the first launch stays valid).
 * - pcclTooFewPeers: we are alone in the group, or the communicator is lost.
 */
PCCL_EXPORT pcclResult_t pcclAllReduceAsync(const void* sendbuf, void* recvbuf,
                                            const pcclReduceDescriptor_t* descriptor, const pcclComm_t* comm,
                                            pcclAsyncReduceOp_t* reduce_handle_out);

/*
 * Waits for the outcome of a launched reduction. The outcome is the same on every member that survives. Blocks; any
 * thread may call. Await each launch exactly once. `info_out` (nullable) is filled on success.
 *
 * Errors:
 * - pcclRankConnectionLost: the operation failed for the group; or the tag is not launched, or was awaited already.
 * - pcclInvalidArgument: the members disagree about count, type, operation or quantization.
 */
PCCL_EXPORT pcclResult_t pcclAwaitAsyncReduce(const pcclAsyncReduceOp_t* reduce_handle,
                                              pcclReduceInfo_t* PCCL_NULLABLE info_out);

/*
 * Reduces `op_count` arrays, each with its own tag. Blocks until all are reduced, or until it fails.
 *
 * The call votes for all tags at once, so members may list them in any order. At most `max_in_flight` tags of this call
 * run at a time (each member may choose its own number, 1 or more). If a tag fails because a member was lost, the call
 * retries it with the members that remain. All members see the same tags succeed and fail. Another thread cannot await
 * these tags.
 *
 * On success every buffer is reduced. `info_out` (nullable) then holds the members that took part in the tag that was
 * decided last, and the bytes of all attempts. After a failure an in-place buffer is either reduced or holds its input
 * again, and it is not known which: keep a copy of inputs that must be used again.
 *
 * Errors:
 * - pcclInvalidArgument, and nothing is launched: op_count is 0, a pointer is null, max_in_flight is below 1, or a
 *   tag is launched already or listed twice.
 * - pcclInvalidUsage: before pcclConnect.
 * - pcclTooFewPeers: the others are gone, or the communicator is lost.
 * - pcclInternalError, on all members: a tag failed 16 times in a row, and for three peer time-outs, although no
 *   member was lost. Then a member has no memory left, or its memory damages results. The log line names the last
 *   failure.
 * - Any other failure of a tag ends the call too, after the running tags have ended. An example is
 *   pcclInvalidArgument if shapes differ.
 */
PCCL_EXPORT pcclResult_t pcclAllReduceMultipleWithRetry(const pcclReduceOpDescriptor_t* descriptors, size_t op_count,
                                                        const pcclComm_t* comm,
                                                        pcclReduceInfo_t* PCCL_NULLABLE info_out, int max_in_flight);

/* ---- communicator: shared state ---------------------------------------------------------------------------------- */

/*
 * Vote of the members of the group. Afterwards all hold the same content under the same revision. Blocks until all have
 * called it and the content has arrived. Alone in the group it succeeds with 0 bytes.
 *
 * Content: entries are matched by name. The content that most members hold wins; on a tie, that of the member that was
 * admitted first. Only members with the expected revision count, and those that completed a synchronization of this run
 * outrank the others. The other members receive what differs. A minority with other names, types, counts or flags is
 * removed.
 *
 * Revision: it is expected to be one more than after the last synchronization; at the first one, the highest that a
 * member submits. A member with a lower revision receives, one with a higher revision is removed. If no member has the
 * expected revision, the call fails for all and nobody is removed for it.
 *
 * Strategies:
 * - ENFORCE_POPULAR: if one member of the group uses it, members that use another strategy are removed.
 * - SEND_ONLY may be combined with RECEIVE_ONLY. If contents of SEND_ONLY members differ, the most common one wins
 *   (on a tie that of the member that was admitted first), and the other SEND_ONLY members are removed. A SEND_ONLY
 *   member with a lower revision is removed too.
 * - RECEIVE_ONLY: if all members use it, the call fails for all and nobody is removed.
 *
 * Memory: nobody may write to the entries during the call, whatever the strategy. Received content is kept beside the
 * entries until all members have it: in memory if it is at most PCCL_MAX_STAGING_BYTES, otherwise all of it in a file
 * without a name under TMPDIR (otherwise /var/tmp or /tmp). `state->revision` is written only on success. `info_out`
 * (nullable) is filled on success.
 *
 * Errors:
 * - pcclInvalidUsage: not connected, or the synchronization failed. The entries are then as before.
 * - pcclPendingAsyncOps: a launched operation is not awaited.
 * - pcclInvalidArgument: values that cannot work, for example CUDA entries in a build without CUDA.
 */
PCCL_EXPORT pcclResult_t pcclSynchronizeSharedState(const pcclComm_t* comm, pcclSharedState_t* state,
                                                    pcclSharedStateSyncStrategy_t strategy,
                                                    pcclSharedStateSyncInfo_t* PCCL_NULLABLE info_out);

/* ---- master ------------------------------------------------------------------------------------------------------ */

/*
 * Creates a master in `*master_out`. The caller owns it and ends it with pcclDestroyMaster. Returns at once; nothing is
 * bound yet. With port 0 the system chooses a free port, see pcclGetMasterPort. Several masters and communicators may
 * live in one process.
 */
PCCL_EXPORT pcclResult_t pcclCreateMaster(ccoip_socket_address_t listen_address, pcclMasterInstance_t** master_out);

/*
 * Binds the address and serves in a thread of its own. Returns at once.
 *
 * Errors: pcclInvalidUsage if the address cannot be bound, PCCL_STATE_DIR cannot be used, or the master was run before.
 */
PCCL_EXPORT pcclResult_t pcclRunMaster(pcclMasterInstance_t* master);

/*
 * Makes a running master end the run and stop. Returns at once and does not wait for the stop. The master informs the
 * peers and empties its journal (PCCL_STATE_DIR). May be called again.
 *
 * Errors: pcclInvalidUsage if it was never run.
 */
PCCL_EXPORT pcclResult_t pcclInterruptMaster(pcclMasterInstance_t* master);

/* Blocks until the master has stopped, see pcclInterruptMaster. Errors: pcclInvalidUsage if it was never run. */
PCCL_EXPORT pcclResult_t pcclMasterAwaitTermination(pcclMasterInstance_t* master);

/*
 * Stops the master if it runs, and frees it. Legal in every state. Blocks; the time is bounded. Threads that wait in
 * pcclMasterAwaitTermination return first. After the call the handle is invalid.
 *
 * With a journal (PCCL_STATE_DIR) the run is kept: as after a crash, the peers wait for the next master on that
 * journal. If pcclInterruptMaster was called first, the run has ended.
 */
PCCL_EXPORT pcclResult_t pcclDestroyMaster(pcclMasterInstance_t* master);

/*
 * Writes to `*port_out` the port on which the master listens. After pcclRunMaster it is the real port, also if the
 * address had port 0. Returns at once. New in 1.1.
 *
 * Errors: pcclInvalidUsage if it was never run.
 */
PCCL_EXPORT pcclResult_t pcclGetMasterPort(pcclMasterInstance_t* master, uint16_t* port_out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "pccl/ext.h" /* new since 1.0: messages, log callback, settings of a communicator, abort, counters */

#endif /* PCCL_H */
