/*
 * pccl/ext.h: what this library offers beyond the interface of PCCL 1.0. pccl.h includes it, so nobody has to; it is a file
 * of its own so that the frozen part stays apart from the part that grows.
 *
 * The rules of pccl.h hold: any thread, no function ends the process, every failure writes one log line.
 */
#ifndef PCCL_EXT_H
#define PCCL_EXT_H

#include "../pccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors and version ------------------------------------------------------------------------------------------ */

/* The name of a result as in the source ("pcclRankConnectionLost"). Never null, static, also for unknown values. */
PCCL_EXPORT const char* pcclGetErrorName(pcclResult_t result);

/* What a result means, in a sentence without an end. Never null, static, also for unknown values. */
PCCL_EXPORT const char* pcclGetErrorString(pcclResult_t result);

/*
 * Cause and remedy of the last failure on `comm`, by whatever thread; also why it was removed from the run and, while a
 * vote waits for longer than PCCL_VOTE_WARN_S, for whom and what that peer does instead. Without a communicator (null): of
 * the last failure of the calling thread, for functions that have none. "" if there was none; never null.
 * The text is a copy that belongs to the calling thread: valid until this thread calls the function again.
 */
PCCL_EXPORT const char* pcclGetLastErrorMessage(const pcclComm_t* PCCL_NULLABLE comm);

/* The version of the library that runs, which may be newer than PCCL_VERSION_MAJOR, _MINOR, _PATCH of the header. Needs no
 * pcclInit. */
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

/* `line` has no end of line and is valid during the call only. */
typedef void (*pcclLogCallback_t)(pcclLogLevel_t level, const char* line, void* user);

/*
 * From now on all log lines of this process (of the level in PCCL_LOG_LEVEL and above) go to `callback` instead of standard
 * error; null restores that. The callback is called from one thread of ours, a line at a time, that holds no lock: it may
 * call any function of this library, and may be slow; when more than 1024 lines wait, further ones are counted instead.
 *
 * Lines that were logged before the call still go where they went before. When the call has returned, the former callback
 * runs no more and is not called again; only a call from within a callback does not wait for that one. Replace it by null
 * before `user` or the code of the callback goes away. In a child of fork() lines go to standard error. Needs no pcclInit.
 */
PCCL_EXPORT pcclResult_t pcclSetLogCallback(pcclLogCallback_t PCCL_NULLABLE callback, void* PCCL_NULLABLE user);

/* ---- communicator ------------------------------------------------------------------------------------------------ */

/* For a number of pcclCommConfig_t: none, where 0 means "not given". */
#define PCCL_CONFIG_NONE (-1)

/*
 * Settings of one communicator. A field that is 0 or null is not given: then the environment variable named beside it
 * counts, and without that its default (docs/settings.md). What is given here overrides the environment, and a value that
 * cannot be used fails the call, where the environment only warns. Strings are copied.
 *
 * The struct grows at its end. `size` says how much of it the caller knows: always use PCCL_COMM_CONFIG_INIT. A program that
 * was built with an older, smaller struct works; one that was built with a newer one works as long as the fields that this
 * library does not know are 0 or null, else pcclInvalidArgument.
 */
typedef struct pcclCommConfig_t {
    size_t size;
    const char* name;                       /* stands before the peer's identity in log lines; at most 64 bytes */
    const char* bind_address;               /* PCCL_BIND_ADDRESS */
    const char* advertise_address;          /* PCCL_ADVERTISE_ADDRESS */
    const char* port_range;                 /* PCCL_PORT_RANGE */
    const char* tcp_congestion;             /* PCCL_TCP_CONGESTION */
    int64_t peer_timeout_ms;                /* PCCL_PEER_TIMEOUT_MS */
    int64_t master_timeout_ms;              /* PCCL_MASTER_TIMEOUT_MS; PCCL_CONFIG_NONE: calls fail at once */
    int64_t max_scratch_bytes;              /* PCCL_MAX_SCRATCH_BYTES; PCCL_CONFIG_NONE: no limit */
    uint32_t max_concurrent_collective_ops; /* PCCL_MAX_CONCURRENT_COLLECTIVE_OPS */
    uint32_t multiplex_chunk_size;          /* PCCL_MULTIPLEX_CHUNK_SIZE */
    uint32_t num_benchmark_connections;     /* PCCL_NUM_BENCHMARK_CONNECTIONS */
    uint32_t reserved;                      /* 0 */
} pcclCommConfig_t;

#define PCCL_COMM_CONFIG_INIT                                                                                          \
    { sizeof(pcclCommConfig_t), NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0 }

/*
 * pcclCreateCommunicator with settings; a null `config` equals it. Copies everything, touches no network (a name in
 * advertise_address is resolved, which may take some seconds). pcclInvalidArgument names the field that cannot be used.
 */
PCCL_EXPORT pcclResult_t pcclCreateCommunicatorWithConfig(const pcclCommCreateParams_t* params,
                                                          const pcclCommConfig_t* PCCL_NULLABLE config,
                                                          pcclComm_t** comm_out);

/*
 * Makes every call that waits on this communicator return, from any thread, also from a log callback (but not from a signal
 * handler). The communicator leaves the run and is lost: attributes read 1, waiting calls fail as on any lost communicator,
 * buffers of operations that did not come to an outcome hold their inputs, and pcclConnect joins again, as a newcomer.
 * Whether an operation that was aborted succeeded for the others is not known. Blocks until those calls have their results
 * (some seconds at most, and as long as a result that was decided is copied into its buffer). Does nothing on a communicator that is not connected; makes a pcclConnect that waits fail.
 */
PCCL_EXPORT pcclResult_t pcclAbort(pcclComm_t* comm);

/*
 * Asked about every 50 ms while a call of this thread on a communicator waits; true: the call is to end. Then the
 * communicator leaves the run as with pcclAbort, and the call returns what it returns on a lost communicator. The check may
 * call any function of this library that does not wait, and must return normally.
 */
typedef bool (*pcclWaitCheck_t)(void* user);

/*
 * Sets the check of the calling thread, or takes it away (null). For hosts whose own signal handlers run only when their
 * interpreter gets a turn. It does not concern pcclMasterAwaitTermination and the destroy functions. Needs no pcclInit.
 */
PCCL_EXPORT pcclResult_t pcclSetWaitCheck(pcclWaitCheck_t PCCL_NULLABLE check, void* PCCL_NULLABLE user);

/* `result` and `info` as from pcclAwaitAsyncReduce; `message` is the cause of a failure ("" on success), valid during the
 * call. */
typedef void (*pcclReduceCallback_t)(pcclResult_t result, const pcclReduceInfo_t* info, const char* message,
                                     void* user);

/*
 * pcclAwaitAsyncReduce that does not wait: returns at once, and `callback` is called exactly once when the outcome is there.
 * The callbacks of a communicator come one after the other from a thread of ours that holds no lock. They may call any
 * function of this library, launch the next reduction for example, and must return normally; while one runs, the next ones
 * wait, and nothing else does. pcclDestroyCommunicator returns when the last callback has returned. Only from within a
 * callback it returns at once: those that are still to come are called afterwards. If the function fails, for the reasons of
 * pcclAwaitAsyncReduce that are known at once, the callback is not called.
 */
PCCL_EXPORT pcclResult_t pcclAwaitAsyncReduceThen(const pcclAsyncReduceOp_t* reduce_handle,
                                                  pcclReduceCallback_t callback, void* PCCL_NULLABLE user);

/*
 * Counters of a communicator as one JSON object, terminated by a 0 byte. *needed_out (nullable) gets its size with that
 * byte. If `size` is smaller, nothing is written and the result is pcclInvalidArgument; a null buffer of size 0 asks for the
 * size only. Counters grow while the communicator exists and count all of its memberships. Legal in every state. The fields
 * are described in docs/settings.md; more may come.
 */
PCCL_EXPORT pcclResult_t pcclGetStats(const pcclComm_t* comm, char* PCCL_NULLABLE buffer, size_t size,
                                      size_t* PCCL_NULLABLE needed_out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PCCL_EXT_H */
