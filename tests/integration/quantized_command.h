/*
 * The command of integration_peer that reduces quantized elements:
 *
 *   quantized TYPE COUNT TAG in|out ALGORITHM CODES HINT OP KIND MEMBER MEMBERS
 *       quantized RESULT TX RX GOOD INTACT HASH
 *
 * KIND selects contents that every peer can compute, so that it can compute the exact result: constant, negative,
 * spread, nan, infinite, subnormal. GOOD: each element is within the error that the hops may make, or is what pccl.h
 * defines for NaN and infinity.
 */
#ifndef PCCL_TEST_QUANTIZED_COMMAND_H
#define PCCL_TEST_QUANTIZED_COMMAND_H

#include "pccl.h"

void do_quantized(pcclComm_t* comm, const char* arguments);

/* From now on this thread and those that it starts treat subnormal numbers as zero, as some numeric libraries do. */
void flush_subnormals(void);

#endif
