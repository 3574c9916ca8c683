/*
 * Ends a process with SIGKILL at a chosen byte of what it sends and receives, or of what it writes to its journal.
 * dying.c stands in front of sendmsg, recvmsg and pwrite64, counts what they move, cuts the call with the last byte,
 * and ends the process when that byte has moved. So the death does not depend on the speed of the machine. Bytes in
 * shared memory between peers are not counted.
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that this process has sent and received so far. */
uint64_t bytes_moved(void);
/* The process ends when it has sent and received `bytes` more. With 0, at its next call. */
void die_after(uint64_t bytes);

#ifdef __cplusplus
}
#endif
