/*
 * pccl/ext.h: what this library offers beyond the interface of PCCL 1.0. pccl.h includes it. It is a file of its own,
 * so that the frozen part stays apart from the part that grows.
 *
 * The rules of pccl.h hold: any thread may call, no function ends the process, every failure writes one log line.
 */
#ifndef PCCL_EXT_H
#define PCCL_EXT_H

#include "../pccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors and version ------------------------------------------------------------------------------------------ */

/*
 * Returns the name of a result as in the source ("pcclRankConnectionLost"). Never null; static, also for unknown
 * values.
 */
PCCL_EXPORT const char* pcclGetErrorName(pcclResult_t result);

/* Returns the meaning of a result as a phrase without a full stop. Never null; static, also for unknown values. */
PCCL_EXPORT const char* pcclGetErrorString(pcclResult_t result);

/*
 * Returns the cause and the remedy of the last failure on `comm`, in whatever thread it happened. This includes the
 * reason why the communicator was removed from the run. While a vote waits for longer than PCCL_VOTE_WARN_S, it names
 * whom the vote waits for and what that peer does instead. With a null `comm` it returns the last failure of the
 * calling thread, for functions that have no communicator.
 *
 * Never null; "" if there was no failure. The text belongs to the calling thread and is valid until this thread calls
 * the function again (with a null `comm`, also only until the next failure in this thread). Returns at once.
 */
PCCL_EXPORT const char* pcclGetLastErrorMessage(const pcclComm_t* PCCL_NULLABLE comm);

/*
 * Returns the version of the library that runs. It may be newer than PCCL_VERSION_MAJOR, _MINOR, _PATCH of the header.
 * Each pointer may be null. Needs no pcclInit. Returns at once.
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

/* `line` has no line end and is valid only during the call. */
typedef void (*pcclLogCallback_t)(pcclLogLevel_t level, const char* line, void* user);

/*
 * Sends all further log lines of this process (of the level in PCCL_LOG_LEVEL and above) to `callback` instead of
 * standard error. Null restores standard error.
 *
 * One thread of the library calls it, a line at a time, and holds no lock. The callback may call any function of this
 * library, and may be slow. When more than 1024 lines wait, further ones are counted instead.
 *
 * Lines that were logged before the call still go where they went before. The call blocks until the former callback
 * runs no more; after that it is not called again. Only a call from within a callback does not wait for that callback.
 * Replace the callback by null before `user` or its code goes away. In a child of fork() lines go to standard error.
 * Needs no pcclInit.
 *
 * Errors: pcclInternalError if no thread can be started. Then the former callback stays.
 */
PCCL_EXPORT pcclResult_t pcclSetLogCallback(pcclLogCallback_t PCCL_NULLABLE callback, void* PCCL_NULLABLE user);

/* ---- communicator ------------------------------------------------------------------------------------------------ */

/* For a number of pcclCommConfig_t: "none". There 0 means "not given". */
#define PCCL_CONFIG_NONE (-1)

/*
 * Settings of one communicator. A field that is 0 or null is not given: then the environment variable named beside it
 * counts, and without that its default (docs/settings.md). A given field overrides the environment. A given value that
 * cannot be used fails the call; in the environment it only causes a warning. Strings are copied.
 *
 * The struct grows at its end. `size` is the size of the struct that the caller was built with: always use
 * PCCL_COMM_CONFIG_INIT. A program that was built with an older, smaller struct works. A program that was built with a
 * newer one works as long as the fields that this library does not have are 0 or null; otherwise pcclInvalidArgument.
 */
typedef struct pcclCommConfig_t {
    size_t size;
    const char* name;                       /* printed before the peer's identity in log lines; at most 64 bytes */
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
 * pcclCreateCommunicator with settings; a null `config` gives the same as pcclCreateCommunicator. It copies everything
 * and does not touch the network. Returns at once, but a name in advertise_address is looked up, which may take some
 * seconds.
 *
 * Errors: pcclInvalidArgument; the log line names the field that cannot be used.
 */
PCCL_EXPORT pcclResult_t pcclCreateCommunicatorWithConfig(const pcclCommCreateParams_t* params,
                                                          const pcclCommConfig_t* PCCL_NULLABLE config,
                                                          pcclComm_t** comm_out);

/*
 * Makes every call that waits on this communicator return. May be called from any thread, also from a log callback, but
 * not from a signal handler. Does nothing on a communicator that is not connected, but makes a pcclConnect that waits
 * fail.
 *
 * The communicator leaves the run and is lost: attributes read 1, waiting calls fail as on any lost communicator, and
 * pcclConnect joins again, as a newcomer. Buffers of operations without an outcome hold their inputs. It is not known
 * whether an operation that was aborted succeeded for the others.
 *
 * Blocks until those calls have their results: some seconds at most, and as long as a decided result is being copied
 * into its buffer.
 */
PCCL_EXPORT pcclResult_t pcclAbort(pcclComm_t* comm);

/*
 * Called about every 50 ms while a call of this thread on a communicator waits. If it returns true, the communicator
 * leaves the run as with pcclAbort, and the call returns what it returns on a lost communicator. The check may call any
 * function of this library that does not wait, and must return normally.
 */
typedef bool (*pcclWaitCheck_t)(void* user);

/*
 * Sets the check of the calling thread; null removes it. Returns at once. It is for hosts whose own signal handlers run
 * only when their interpreter gets a turn. pcclMasterAwaitTermination and the destroy functions do not call the check.
 * Needs no pcclInit.
 */
PCCL_EXPORT pcclResult_t pcclSetWaitCheck(pcclWaitCheck_t PCCL_NULLABLE check, void* PCCL_NULLABLE user);

/*
 * `result` and `info` are as from pcclAwaitAsyncReduce. `message` is the cause of a failure ("" on success) and is
 * valid only during the call.
 */
typedef void (*pcclReduceCallback_t)(pcclResult_t result, const pcclReduceInfo_t* info, const char* message,
                                     void* user);

/*
 * pcclAwaitAsyncReduce without waiting: returns at once, and `callback` is called exactly once when the outcome is
 * there. The buffers belong to the caller again when it is called.
 *
 * A thread of the library that holds no lock calls the callbacks of a communicator one after the other. They may call
 * any function of this library, for example launch the next reduction, and must return normally. While one runs, the
 * next ones wait, and nothing else does. pcclDestroyCommunicator returns after the last callback has returned. Called
 * from within a callback it returns at once, and the remaining callbacks are called afterwards.
 *
 * Errors: those of pcclAwaitAsyncReduce that are known at once. Then the callback is not called.
 */
PCCL_EXPORT pcclResult_t pcclAwaitAsyncReduceThen(const pcclAsyncReduceOp_t* reduce_handle,
                                                  pcclReduceCallback_t callback, void* PCCL_NULLABLE user);

/*
 * Writes the counters of a communicator to `buffer` as one JSON object, terminated by a 0 byte. `*needed_out`
 * (nullable) gets its size with that byte. A null buffer of size 0 asks only for the size. Waits for no other peer.
 * Legal in every state.
 *
 * Counters grow while the communicator exists and count all of its memberships. docs/settings.md describes the fields;
 * more may be added.
 *
 * Errors: pcclInvalidArgument if `size` is smaller than needed. Then nothing is written to `buffer`.
 */
PCCL_EXPORT pcclResult_t pcclGetStats(const pcclComm_t* comm, char* PCCL_NULLABLE buffer, size_t size,
                                      size_t* PCCL_NULLABLE needed_out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PCCL_EXT_H */
