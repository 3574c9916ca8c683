/*
 * concurrent_reduces: several all-reduces at a time, each with its own tag, and the retry of those that failed.
 *
 *     pccl-master &  concurrent_reduces 127.0.0.1 48148 2 &  concurrent_reduces 127.0.0.1 48148 2
 *
 * The third argument is how many peers to wait for. Tags may be launched and awaited in any order on any peer.
 */
#define _POSIX_C_SOURCE 200809L
#include <pccl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TENSORS 8
#define ELEMENTS 100000

static float tensors[TENSORS][ELEMENTS];

static int world_size(const pcclComm_t* comm) {
    int world = 1;
    return pcclGetAttribute(comm, PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE, &world) == pcclSuccess ? world : 1;
}

/* Reduces all tensors in place. Relaunches those that failed with a lost peer, until all are done or we are alone. */
static pcclResult_t reduce_all(const pcclComm_t* comm) {
    int done[TENSORS] = {0};
    int missing = TENSORS;
    while (missing > 0) {
        pcclAsyncReduceOp_t running[TENSORS];
        int launched[TENSORS] = {0};
        pcclResult_t problem = pcclSuccess;
        for (int i = 0; i < TENSORS && problem == pcclSuccess; ++i) {
            if (done[i]) continue;
            const pcclReduceDescriptor_t sum = {
                ELEMENTS, pcclSum, (uint64_t)i, {pcclFloat, pcclDistributionNone}, {pcclFloat, pcclQuantNone}};
            problem = pcclAllReduceAsync(tensors[i], tensors[i], &sum, comm, &running[i]);
            launched[i] = problem == pcclSuccess;
        }
        /* Every launched operation must be awaited, also after a problem: until then the library owns the buffers. */
        for (int i = TENSORS - 1; i >= 0; --i) {
            if (!launched[i]) continue;
            const pcclResult_t result = pcclAwaitAsyncReduce(&running[i], NULL);
            if (result == pcclSuccess) {
                done[i] = 1;
                missing -= 1;
            } else if (result != pcclRankConnectionLost) {
                problem = result;
            }
        }
        if (problem != pcclSuccess) return problem;
    }
    return pcclSuccess;
}

int main(int argc, char** argv) {
    pcclCommCreateParams_t params = {{{inetIPv4, {{127, 0, 0, 1}}, {{0}}}, 48148}, 0, 0};
    unsigned a, b, c, d;
    if (argc != 4 || sscanf(argv[1], "%u.%u.%u.%u", &a, &b, &c, &d) != 4 || (a | b | c | d) > 255) {
        fprintf(stderr, "usage: %s IPV4 PORT PEERS\n", argv[0]);
        return 2;
    }
    const uint8_t octets[4] = {(uint8_t)a, (uint8_t)b, (uint8_t)c, (uint8_t)d};
    memcpy(params.master_address.inet.ipv4.data, octets, sizeof octets);
    params.master_address.port = (uint16_t)atoi(argv[2]);
    const int peers = atoi(argv[3]);

    pcclComm_t* comm = NULL;
    if (pcclInit() != pcclSuccess || pcclCreateCommunicator(&params, &comm) != pcclSuccess) return 1;
    pcclResult_t result = pcclConnect(comm);
    while (result == pcclSuccess && world_size(comm) < peers) {
        const struct timespec pause = {0, 20000000};
        nanosleep(&pause, NULL);
        result = pcclUpdateTopology(comm);
    }
    for (int i = 0; i < TENSORS; ++i) {
        for (int k = 0; k < ELEMENTS; ++k) tensors[i][k] = (float)(i + 1);
    }
    if (result == pcclSuccess) result = reduce_all(comm);
    if (result == pcclSuccess) {
        for (int i = 0; i < TENSORS; ++i) printf("tensor %d: %g\n", i, (double)tensors[i][ELEMENTS - 1]);
    } else {
        fprintf(stderr, "failed with code %d\n", (int)result);
    }
    pcclDestroyCommunicator(comm);
    return result == pcclSuccess ? 0 : 1;
}
