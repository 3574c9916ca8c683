/*
 * A peer of the kill test: reduces in place, step after step, retries what fails, and prints the results.
 *
 *   kill_peer PORT INDEX PEERS COUNT STEPS_AFTER
 *
 * Element i of a buffer has a 16-bit lane for each peer. Peer k fills lane k with a number that is never 0 and depends
 * on step, k and i. So the sum shows exactly which peers took part, and that each contribution is there once. For each
 * peer, its lanes are all absent or all right. Prints, each line flushed:
 *   ready WORLD
 *   begin STEP
 *   end STEP ATTEMPT RESULT WORLD LANES VALID RESTORED HASH    (VALID: every lane right; RESTORED: input back after failure)
 *   done STEP
 * It ends STEPS_AFTER steps after the first step that committed with fewer than PEERS members. All survivors must agree
 * which step that was. On a result that the test does not allow it ends at once with exit code 4.
 */
#include "pccl.h"
#include "values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint16_t lane(uint64_t step, unsigned peer, size_t index) {
    uint64_t z = (step * 64 + peer) * 0x9E3779B97F4A7C15u + index * 0xD1B54A32D192ED03u;
    z ^= z >> 29;
    return (uint16_t)(1 + z % 16000);
}

static void fill(uint64_t* data, size_t count, uint64_t step, unsigned peer) {
    for (size_t i = 0; i < count; ++i) data[i] = (uint64_t)lane(step, peer, i) << (16 * peer);
}

static bool is_filled(const uint64_t* data, size_t count, uint64_t step, unsigned peer) {
    for (size_t i = 0; i < count; ++i) {
        if (data[i] != (uint64_t)lane(step, peer, i) << (16 * peer)) return false;
    }
    return true;
}

/*
 * The set of peers in the sum, from its first element. `valid` only if every element is the sum over exactly that set.
 */
static unsigned lanes_of(const uint64_t* data, size_t count, uint64_t step, unsigned peers, bool* valid) {
    unsigned present = 0;
    for (unsigned peer = 0; peer < peers; ++peer) {
        if ((data[0] >> (16 * peer)) & 0xFFFF) present |= 1u << peer;
    }
    *valid = true;
    for (size_t i = 0; i < count && *valid; ++i) {
        uint64_t expected = 0;
        for (unsigned peer = 0; peer < peers; ++peer) {
            if (present & (1u << peer)) expected |= (uint64_t)lane(step, peer, i) << (16 * peer);
        }
        *valid = data[i] == expected;
    }
    return present;
}

static int world_of(const pcclComm_t* comm) {
    int world = 0;
    return pcclGetAttribute(comm, PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE, &world) == pcclSuccess ? world : -1;
}

static pcclComm_t* join(uint16_t port) {
    pcclComm_t* comm = NULL;
    pcclCommCreateParams_t params;
    memset(&params, 0, sizeof params);
    params.master_address.inet.protocol = inetIPv4;
    params.master_address.inet.ipv4.data[0] = 127;
    params.master_address.inet.ipv4.data[3] = 1;
    params.master_address.port = port;
    if (pcclInit() != pcclSuccess || pcclCreateCommunicator(&params, &comm) != pcclSuccess) exit(4);
    if (pcclConnect(comm) != pcclSuccess) exit(4);
    return comm;
}

/* Admits peers turn by turn until all are members. Every member sees the same world in the same turn. */
static void gather(pcclComm_t* comm, int peers) {
    const struct timespec pace = {0, 5000000};
    while (world_of(comm) < peers) {
        nanosleep(&pace, NULL);
        if (pcclUpdateTopology(comm) != pcclSuccess) exit(4);
    }
}

static bool reduce_step(pcclComm_t* comm, uint64_t* data, size_t count, uint64_t step, unsigned index, unsigned peers,
                        uint32_t* world) {
    pcclReduceDescriptor_t descriptor;
    memset(&descriptor, 0, sizeof descriptor);
    descriptor.count = count;
    descriptor.op = pcclSum;
    descriptor.tag = step % 3;
    descriptor.src_descriptor.datatype = pcclUint64;
    fill(data, count, step, index);
    for (int attempt = 0; attempt < 100; ++attempt) {
        pcclReduceInfo_t info = {0};
        bool valid = false;
        const pcclResult_t result = pcclAllReduce(data, data, &descriptor, comm, &info);
        if (result == pcclSuccess) {
            const unsigned lanes = lanes_of(data, count, step, peers, &valid);
            printf("end %" PRIu64 " %d 0 %" PRIu32 " %u %d 1 %016" PRIx64 "\n", step, attempt, info.local_world_size,
                   lanes, valid, value_hash(data, count * sizeof *data));
            *world = info.local_world_size;
            return true;
        }
        printf("end %" PRIu64 " %d %d %d 0 1 %d 0\n", step, attempt, (int)result, world_of(comm),
               is_filled(data, count, step, index));
        if (result != pcclRankConnectionLost || world_of(comm) < 2) return false;
    }
    return false;
}

int main(int argc, char** argv) {
    if (argc != 6) return 2;
    const unsigned index = (unsigned)atoi(argv[2]), peers = (unsigned)atoi(argv[3]);
    const size_t count = strtoul(argv[4], NULL, 10);
    const uint64_t steps_after = strtoul(argv[5], NULL, 10);
    uint64_t* data = malloc(count * sizeof *data);
    uint64_t last_step = UINT64_MAX;
    setvbuf(stdout, NULL, _IOLBF, 0);
    pcclComm_t* comm = join((uint16_t)atoi(argv[1]));
    gather(comm, (int)peers);
    printf("ready %d\n", world_of(comm));
    for (uint64_t step = 0; step != last_step; ++step) {
        uint32_t world = 0;
        printf("begin %" PRIu64 "\n", step);
        if (!reduce_step(comm, data, count, step, index, peers, &world)) return 4;
        printf("done %" PRIu64 "\n", step);
        if (world < peers && last_step == UINT64_MAX) last_step = step + 1 + steps_after;
    }
    free(data);
    return pcclDestroyCommunicator(comm) == pcclSuccess ? 0 : 4;
}
