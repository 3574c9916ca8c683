/*
 * pccl.h: collective communication between peers that come and go, over TCP.
 *
 * A run is one master and any number of peers. A peer makes a communicator, connects it to the master and is admitted by
 * the peers that are already there. Then all of them reduce arrays together and keep a shared state equal. A peer that
 * dies makes the running operation fail on the others, with their inputs intact, and the others go on without it.
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
 *  - It returns a pcclResult_t and never ends the process. A null pointer, an unknown enum value or a combination that
 *    makes no sense is pcclInvalidArgument. Every result other than pcclSuccess writes one line to the log (standard
 *    error, see PCCL_LOG_LEVEL) with the cause and the remedy.
 *  - Any thread may call any function, several threads at a time, also on one communicator. The exceptions are that a
 *    handle must not be used after the call that destroys it has been made, and that nobody else may write to memory
 *    which a call still owns. "const" handles are shallow: they promise nothing about what is behind the handle.
 *  - A communicator is new (created), connected, or lost (removed from the run, or the master is gone for good). On a lost
 *    one all world sizes read 1, calls fail as said at each function, and pcclConnect may be called again.
 *  - After fork() the child owns none of its parent's communicators and masters: calls on them return pcclInvalidUsage,
 *    and the destroy functions only close descriptors. Objects that the child makes itself work.
 *  - Functions marked "vote" wait until every peer named there has made the same call. A peer that vanishes is not waited
 *    for. Waiting has no limit, because applications may compute for minutes; a warning names who is missing.
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
    pcclInternalError = 2,          /* out of memory, descriptors or threads; a defect of this library */
    pcclInvalidArgument = 3,        /* the arguments can never work; nothing was done */
    pcclInvalidUsage = 4,           /* not in this state of the object */
    pcclTooFewPeers = 5,            /* alone in the group: admit somebody first, or go on alone */
    pcclMasterConnectionFailed = 6, /* joining failed; try again */
    pcclRankConnectionFailed = 7,   /* never returned */
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
 * rounding. Max and min propagate NaN (as the canonical quiet NaN); min(-0, +0) is -0, max(-0, +0) is +0.
 */
typedef enum pcclRedOp_t { pcclSum = 0, pcclAvg = 1, pcclProd = 2, pcclMax = 3, pcclMin = 4 } pcclRedOp_t;

/* Attributes count accepted members, never peers that still wait to be admitted. */
typedef enum pcclAttribute_t {
    PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE = 1,            /* members of the run, all groups */
    PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE = 2,        /* members of our group */
    PCCL_ATTRIBUTE_NUM_DISTINCT_PEER_GROUPS = 3,     /* groups that have members */
    PCCL_ATTRIBUTE_LARGEST_PEER_GROUP_WORLD_SIZE = 4 /* members of the largest group */
} pcclAttribute_t;

typedef enum pcclSharedStateSyncStrategy_t {
    PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR =
        0, /* the most common content wins; if one member uses it, all must */
    PCCL_SHARED_STATE_SYNC_STRATEGY_RECEIVE_ONLY = 1, /* our content does not count, we send nothing */
    PCCL_SHARED_STATE_SYNC_STRATEGY_SEND_ONLY = 2     /* our content counts, our entries are never written */
} pcclSharedStateSyncStrategy_t;

typedef enum pcclDistributionHint_t {
    pcclDistributionNone = 0,
    pcclDistributionNormal = 1,
    pcclDistributionUniform = 2
} pcclDistributionHint_t;

/*
 * How the elements of a reduction travel. Without pcclQuantNone they are sent as whole numbers n of fewer bits, in blocks
 * of 512 elements with two parameters each: an element x is sent as n = round((x - base) / step), to nearest, ties to
 * even, and read as base + n * step. Elements are pcclFloat or pcclDouble. With b bits in a number:
 *
 *   pcclQuantMinMax          base = minimum of the block, step = (maximum - minimum) / (2^b - 1).
 *                            To pcclUint8, 16, 32, 64, pcclInt8, 16, 32 and pcclUint4.
 *   pcclQuantZeroPointScale  base = mean of the block, step = (largest distance from it) / (2^(b-1) - 1), the numbers are
 *                            symmetric about 0. With pcclDistributionNormal the distance is at most 6 standard deviations
 *                            and what is farther away becomes the end of that range. To the same types but pcclUint64.
 *
 * Each member that sends an element on quantizes it, at most once as its input and once as each partial result, and adds
 * in full precision: a member's error is at most half a step of its own block, besides the rounding to the element
 * type. Who completes an element quantizes it a last time, and all members, that one too, read the result from those very
 * bytes: results are the same bytes everywhere, also where machines differ.
 *
 * A block of equal values is exact, and so is the smallest value of a pcclQuantMinMax block; -0 becomes +0. A block that
 * contains a NaN or an infinity when it is sent (or pcclDouble values farther apart than the largest double) becomes NaN
 * as a whole, the canonical quiet one. Any other combination of types is pcclInvalidArgument at the launch.
 */
typedef enum pcclQuantizationAlgorithm_t {
    pcclQuantNone = 0,
    pcclQuantMinMax = 1,
    pcclQuantZeroPointScale = 2
} pcclQuantizationAlgorithm_t;

/* Numbers of 4 bits, as a quantized_datatype only. A value beside the enumeration, which is fixed. New in 1.1. */
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
    /* Members that took part. Use this number, not the attribute, to divide the result of this very operation. */
    uint32_t local_world_size;
    uint64_t tx_bytes; /* payload sent by this peer, as it travelled: quantized, with parameters */
    uint64_t rx_bytes; /* payload received by this peer, likewise */
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
    size_t count; /* elements; 0 and less than the world size are legal */
    pcclRedOp_t op;
    uint64_t tag; /* names the operation among those running at the same time in the group */
    pcclReduceOperandDescriptor_t src_descriptor;
    pcclQuantizationOptions_t quantization_options;
} pcclReduceDescriptor_t;

typedef struct pcclReduceSingleDescriptor_t {
    void* sendbuf;
    void* recvbuf;
    pcclReduceDescriptor_t descriptor;
} pcclReduceOpDescriptor_t;

/* Names a launched operation. A plain value: copy it, keep it, drop it. */
typedef struct pcclAsyncReduceOp_t {
    pcclComm_t* comm;
    uint64_t tag;
} pcclAsyncReduceOp_t;

typedef struct pcclRankUuid_t {
    uint8_t data[16];
} pcclRankUuid_t; /* used by no function */

/* One array of the shared state. Name and data stay the caller's and must live until the call returns. */
typedef struct pcclTensorInfo_t {
    const char* name; /* unique in the state; 1 to 1024 bytes */
    void* data;       /* may be null only if count is 0 */
    size_t count;     /* elements */
    pcclDataType_t datatype;
    pcclDeviceType_t device_type;
    bool allow_content_inequality; /* not compared between members; a newcomer receives it once */
} pcclTensorInfo_t;

typedef struct pcclSharedState_t {
    uint64_t revision; /* in: what we hold; out: what the group agreed on */
    size_t count;      /* entries */
    pcclTensorInfo_t* infos;
} pcclSharedState_t;

typedef struct pcclSharedStateSyncInfo_t {
    uint64_t tx_bytes; /* content sent by this call */
    uint64_t rx_bytes; /* content received by this call; 0 if we held the winning content already */
} pcclSharedStateSyncInfo_t;

typedef struct pcclBuildInfo_t {
    bool has_cuda_support;
} pcclBuildInfo_t;

/* ---- library ----------------------------------------------------------------------------------------------------- */

/*
 * Call it before any function of a communicator. Idempotent, thread-safe, returns at once. It starts no thread and opens
 * nothing. The functions of the master do not need it.
 */
PCCL_EXPORT pcclResult_t pcclInit(void);

/* What this library was built with. Needs no pcclInit. Returns at once. */
PCCL_EXPORT pcclResult_t pcclGetBuildInfo(pcclBuildInfo_t* info);

/* ---- communicator: life cycle ------------------------------------------------------------------------------------ */

/*
 * Makes a communicator in *comm_out; the caller owns it and ends it with pcclDestroyCommunicator. The parameters are
 * copied, the network is not touched. pcclNotInitialized before pcclInit.
 */
PCCL_EXPORT pcclResult_t pcclCreateCommunicator(const pcclCommCreateParams_t* params, pcclComm_t** comm_out);

/*
 * Joins the run. Blocks until the peers that are present admit us at their next pcclUpdateTopology; the first peer of a
 * run is admitted at once. The caller then stands where the others stand after that pcclUpdateTopology: it need not
 * call it again in its first turn (if it does while the others go on, that call succeeds for it alone and admits
 * nobody). pcclInvalidUsage if connected already; pcclMasterConnectionFailed if joining failed,
 * also for want of a free port in PCCL_PORT_RANGE (the communicator stays usable: call again).
 */
PCCL_EXPORT pcclResult_t pcclConnect(pcclComm_t* comm);

/*
 * Reads a number of the last epoch that a call on this communicator returned with. Never blocks, also not while
 * collectives run. All attributes of a lost communicator read 1. pcclInvalidUsage before the first pcclConnect
 * succeeded; pcclInvalidArgument for an unknown attribute.
 */
PCCL_EXPORT pcclResult_t pcclGetAttribute(const pcclComm_t* comm, pcclAttribute_t attribute, int* value_out);

/*
 * Leaves the run cleanly and frees everything; no thread and no descriptor stays behind. Legal in every state. Calls that
 * other threads have waiting on this communicator return with the code of a lost communicator before it is freed; a
 * launched operation that nobody has awaited fails for the group. Blocks briefly (bounded, also without a master).
 * After the call the handle is void; a second destroy of it is pcclInvalidArgument.
 */
PCCL_EXPORT pcclResult_t pcclDestroyCommunicator(pcclComm_t* comm);

/* ---- communicator: membership ------------------------------------------------------------------------------------ */

/*
 * Vote of all members of all groups. Admits the peers that wait, connects neighbours and agrees on world sizes.
 * pcclInvalidUsage before pcclConnect; pcclPendingAsyncOps while a launched operation is not awaited;
 * pcclUpdateTopologyFailed if we were removed from the run or the master is gone for good.
 */
PCCL_EXPORT pcclResult_t pcclUpdateTopology(pcclComm_t* comm);

/*
 * Vote of all members of all groups, with the same answer for each: are there peers that the next pcclUpdateTopology would
 * admit? Changes nothing. Legal while collectives run. pcclInvalidUsage if not connected.
 */
PCCL_EXPORT pcclResult_t pcclArePeersPending(const pcclComm_t* comm, bool* pending_out);

/*
 * Vote of all members of all groups. Measures the bandwidth of every pair of members (of groups of three or more) that is
 * not known, or known for longer than an hour, in each direction, and gives each group the fastest ring that was found,
 * never one that is worse by what was measured. Blocks until all members have called it, and then for the measurements:
 * tests of at most about a second each, every member in one of them at a time, none begun later than 20 s after the first;
 * what is left is measured by the next call. A pair that cannot be measured is no failure. Any thread may call; later
 * calls cost little while the members stay the same. pcclInvalidUsage before pcclConnect and while we are alone in the run;
 * pcclPendingAsyncOps while a launched operation is not awaited; pcclTopologyOptimizationFailed if we were removed from
 * the run, the master is gone for good, or all other members vanished meanwhile.
 */
PCCL_EXPORT pcclResult_t pcclOptimizeTopology(const pcclComm_t* comm);

/* ---- communicator: collectives ----------------------------------------------------------------------------------- */

/*
 * Reduces `descriptor->count` elements over the members of the group; all of them receive the same bytes.
 * sendbuf == recvbuf reduces in place; buffers that overlap otherwise are pcclInvalidArgument. Any alignment is legal.
 * A null buffer is legal with count 0 only. Equals pcclAllReduceAsync followed by pcclAwaitAsyncReduce and returns what
 * they return. `info_out` (nullable) is filled on success.
 *
 * After a failure an in-place buffer holds its input again; out of place, sendbuf is untouched and recvbuf undefined. The
 * attributes are refreshed already: if the world is still greater than 1, the same call may be made again at once.
 */
PCCL_EXPORT pcclResult_t pcclAllReduce(const void* sendbuf, void* recvbuf, const pcclReduceDescriptor_t* descriptor,
                                       const pcclComm_t* comm, pcclReduceInfo_t* PCCL_NULLABLE info_out);

/*
 * Launches a reduction and returns at once. Both buffers belong to the operation until the matching
 * pcclAwaitAsyncReduce has returned. All members launch the same set of tags, in any order; count, type, operation and,
 * unless it is pcclQuantNone, quantization with its type and hint must agree. A tag may be used again when it was awaited. pcclInvalidUsage before pcclConnect; pcclInvalidArgument for values
 * that cannot work and for a tag that is launched already (the first launch stays valid); pcclTooFewPeers if we are
 * alone in the group or the communicator is lost.
 */
PCCL_EXPORT pcclResult_t pcclAllReduceAsync(const void* sendbuf, void* recvbuf,
                                            const pcclReduceDescriptor_t* descriptor, const pcclComm_t* comm,
                                            pcclAsyncReduceOp_t* reduce_handle_out);

/*
 * Waits for the outcome of a launched reduction, which is the same on every member that survives. Exactly one await per
 * launch. pcclRankConnectionLost if the operation failed for the group (or the tag is not launched, or awaited already);
 * pcclInvalidArgument if the members disagree about count, type, operation or quantization.
 */
PCCL_EXPORT pcclResult_t pcclAwaitAsyncReduce(const pcclAsyncReduceOp_t* reduce_handle,
                                              pcclReduceInfo_t* PCCL_NULLABLE info_out);

/*
 * Reduces `op_count` arrays, each with its own tag, and returns when all are reduced. Votes for all of them at the call, so
 * that members may list them in any order; at most `max_in_flight` of this call run at a time (each member may choose its
 * own number, 1 or more). A tag that fails because a member was lost is tried again by the call itself, with those that
 * remain; all members see the same tags succeed and fail.
 *
 * pcclSuccess only if every buffer is reduced. pcclTooFewPeers if the others are gone, or the communicator is lost; any
 * other failure of a tag (shapes that differ: pcclInvalidArgument) ends the call too, when what runs has come to its end.
 * pcclInternalError on all members if a tag failed 16 times in a row, and for three peer time-outs, although no member was
 * lost: a member has no memory left, or its memory damages results. The log line names the last failure.
 * After a failure an in-place buffer either is reduced or holds its input again, and it is not known which: keep a copy of
 * inputs that have to be used again. pcclInvalidArgument, and nothing is launched: op_count 0, null, max_in_flight below
 * 1, a tag that is launched already or stands twice. pcclInvalidUsage before pcclConnect.
 * `info_out` (nullable), filled on success: the members that took part in the tag decided last, and the bytes of all
 * attempts. Another thread cannot await these tags.
 */
PCCL_EXPORT pcclResult_t pcclAllReduceMultipleWithRetry(const pcclReduceOpDescriptor_t* descriptors, size_t op_count,
                                                        const pcclComm_t* comm,
                                                        pcclReduceInfo_t* PCCL_NULLABLE info_out, int max_in_flight);

/* ---- communicator: shared state ---------------------------------------------------------------------------------- */

/*
 * Vote of the members of the group; afterwards all hold the same content under the same revision. The content that most
 * members hold wins (on a tie that of the longest member); the others receive what differs. Entries are matched by name;
 * a minority with other names, types or counts is removed. A revision is expected to be one more than after the last
 * sync; less receives, more is removed. Alone it succeeds with 0 bytes.
 *
 * Strategies: where one member of the group uses ENFORCE_POPULAR, those that do not are removed. SEND_ONLY goes with
 * RECEIVE_ONLY; of different contents among SEND_ONLY members the most common one wins (on a tie that of the longest
 * member) and the others are removed, as is a SEND_ONLY member whose revision is behind. If all use RECEIVE_ONLY the call
 * fails for all and nobody is removed. Nobody may write to the entries during the call, whatever the strategy.
 *
 * What is received lies beside the entries until all members have it: in memory if it is at most PCCL_MAX_STAGING_BYTES,
 * else all of it in a file without a name under TMPDIR (else /var/tmp or /tmp).
 *
 * pcclInvalidUsage if not connected, or if the sync failed (the entries are then as before); pcclPendingAsyncOps while a
 * launched operation is not awaited; pcclInvalidArgument for values that cannot work, among them CUDA entries in a build
 * without CUDA. `state->revision` is written on success only. `info_out` (nullable) is filled on success.
 */
PCCL_EXPORT pcclResult_t pcclSynchronizeSharedState(const pcclComm_t* comm, pcclSharedState_t* state,
                                                    pcclSharedStateSyncStrategy_t strategy,
                                                    pcclSharedStateSyncInfo_t* PCCL_NULLABLE info_out);

/* ---- master ------------------------------------------------------------------------------------------------------ */

/*
 * Makes a master in *master_out; the caller owns it and ends it with pcclDestroyMaster. Nothing is bound yet. Port 0
 * asks the system for a free port, see pcclGetMasterPort. Several masters and communicators may live in one process.
 */
PCCL_EXPORT pcclResult_t pcclCreateMaster(ccoip_socket_address_t listen_address, pcclMasterInstance_t** master_out);

/*
 * Binds the address and serves in a thread of its own; returns at once. pcclInvalidUsage if the address cannot be bound
 * or the master was run before.
 */
PCCL_EXPORT pcclResult_t pcclRunMaster(pcclMasterInstance_t* master);

/*
 * Makes a running master end the run and stop; does not wait for it. The peers are told, and a journal (PCCL_STATE_DIR)
 * is emptied. Idempotent. pcclInvalidUsage if it was never run.
 */
PCCL_EXPORT pcclResult_t pcclInterruptMaster(pcclMasterInstance_t* master);

/* Blocks until the master has stopped after pcclInterruptMaster. pcclInvalidUsage if it was never run. */
PCCL_EXPORT pcclResult_t pcclMasterAwaitTermination(pcclMasterInstance_t* master);

/*
 * Stops the master if it runs and frees it. With a journal (PCCL_STATE_DIR) the run is kept: peers wait for the next
 * master on it as after a crash, unless pcclInterruptMaster came first. Threads that wait in pcclMasterAwaitTermination
 * return first. Legal in every state, bounded in time. After the call the handle is void.
 */
PCCL_EXPORT pcclResult_t pcclDestroyMaster(pcclMasterInstance_t* master);

/*
 * The port on which the master listens: after pcclRunMaster the real one, also if the address said port 0.
 * pcclInvalidUsage if it was never run. New in 1.1.
 */
PCCL_EXPORT pcclResult_t pcclGetMasterPort(pcclMasterInstance_t* master, uint16_t* port_out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "pccl/ext.h" /* what is new since 1.0: messages, log callback, settings of a communicator, abort, counters */

#endif /* PCCL_H */
