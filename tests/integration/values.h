/*
 * Contents that every peer can compute, and the naive reduction with which the library is compared.
 *
 * Elements are small integers, exact in each of the twelve types and under each operation. So the order in which a ring
 * adds them does not matter, and any deviation is a fault.
 */
#ifndef PCCL_TEST_VALUES_H
#define PCCL_TEST_VALUES_H

#include "pccl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

size_t value_bytes(pcclDataType_t type);

/* Writes `count` elements that depend only on seed and index. `data` may have any alignment. */
void value_fill(void* data, pcclDataType_t type, size_t count, uint64_t seed);

/* True if each element of `data` is the reduction of the contents with these seeds. */
bool value_matches(const void* data, pcclDataType_t type, pcclRedOp_t op, size_t count, const uint64_t* seeds,
                   size_t seed_count);

/* FNV-1a of the bytes, to compare contents. */
uint64_t value_hash(const void* data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
