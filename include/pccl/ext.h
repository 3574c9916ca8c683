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
} pcclCommConfig_t;

#define PCCL_COMM_CONFIG_INIT                                                                                          \
    { sizeof(pcclCommConfig_t), NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, NULL }

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
 * operation is being copied into its buffer.
 */
PCCL_EXPORT pcclResult_t pcclAbort(pcclComm_t* comm);

/*
 * The library calls it about every 50 ms while a call of its thread on a communicator waits. If it returns true, the
 * communicator leaves the run as with pcclAbort, and the call returns what it returns on a lost communicator. The check
 * may call any function of this library that does not wait. It must return: no exception, no longjmp.
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
