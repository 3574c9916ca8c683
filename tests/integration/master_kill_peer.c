/*
 * A peer of the master kill test. It runs the usual loop (look for newcomers, admit them, synchronize, reduce) while
 * its master is killed and started again, and prints the results. It never gives up the master, so nothing may be lost.
 *
 *   master_kill_peer PORT INDEX PEERS COUNT TURNS
 *
 * Prints, each line flushed:
 *   ready
 *   turn N WORLD REVISION STATE-HASH REDUCE-HASH ATTEMPTS   after each turn: equal on all peers except ATTEMPTS
 * Each turn: are_peers_pending, update_topology, sync (revision N), and three reductions of different sizes, launched
 * together. Each one is retried until it commits with the value that PEERS members give. It ends with exit code 4 and a
 * line on standard error on any result that a run without a lost member does not allow: a failed sync, a world that
 * shrinks, a wrong sum.
 */
#include "pccl.h"
#include "values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { reductions = 3, state_count = 5000, attempts_max = 200 };

static unsigned peers;
static pcclComm_t* comm;

static void require(bool good, const char* what, uint64_t turn, int result) {
    if (good) return;
    fprintf(stderr, "turn %" PRIu64 ": %s (result %d)\n", turn, what, result);
    exit(4);
}

static int world(void) {
    int value = 0;
    return pcclGetAttribute(comm, PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE, &value) == pcclSuccess ? value : -1;
}

static void join(uint16_t port) {
    pcclCommCreateParams_t params;
    memset(&params, 0, sizeof params);
    params.master_address.inet.protocol = inetIPv4;
    params.master_address.inet.ipv4.data[0] = 127;
    params.master_address.inet.ipv4.data[3] = 1;
    params.master_address.port = port;
    require(pcclInit() == pcclSuccess && pcclCreateCommunicator(&params, &comm) == pcclSuccess, "create", 0, 0);
    const pcclResult_t result = pcclConnect(comm);
    require(result == pcclSuccess, "connect", 0, (int)result);
}

/* Admits waiting peers. All members see the same world in the same call. */
static void update(uint64_t turn) {
    bool pending = false;
    pcclResult_t result = pcclArePeersPending(comm, &pending);
    require(result == pcclSuccess, "are_peers_pending", turn, (int)result);
    result = pcclUpdateTopology(comm);
    require(result == pcclSuccess, "update_topology", turn, (int)result);
}

static uint64_t term(uint64_t turn, unsigned peer, unsigned tag, size_t index) {
    uint64_t z = (turn * 8 + tag) * 0x9E3779B97F4A7C15u + peer * 0xBF58476D1CE4E5B9u + index * 0xD1B54A32D192ED03u;
    z ^= z >> 29;
    return z;
}

static void fill(uint64_t* data, size_t count, uint64_t turn, unsigned peer, unsigned tag) {
    for (size_t i = 0; i < count; ++i) data[i] = term(turn, peer, tag, i);
}

static bool is_sum(const uint64_t* data, size_t count, uint64_t turn, unsigned tag) {
    for (size_t i = 0; i < count; ++i) {
        uint64_t sum = 0;
        for (unsigned peer = 0; peer < peers; ++peer) sum += term(turn, peer, tag, i);
        if (data[i] != sum) return false;
    }
    return true;
}

static bool is_filled(const uint64_t* data, size_t count, uint64_t turn, unsigned peer, unsigned tag) {
    for (size_t i = 0; i < count; ++i) {
        if (data[i] != term(turn, peer, tag, i)) return false;
    }
    return true;
}

static pcclReduceDescriptor_t describe(size_t count, unsigned tag) {
    pcclReduceDescriptor_t descriptor;
    memset(&descriptor, 0, sizeof descriptor);
    descriptor.count = count;
    descriptor.op = pcclSum;
    descriptor.tag = tag;
    descriptor.src_descriptor.datatype = pcclUint64;
    descriptor.quantization_options.quantized_datatype = pcclUint64;
    return descriptor;
}

/* Launches all that are not done, awaits them, and repeats until all are done. Returns the number of rounds. */
static unsigned reduce_all(uint64_t** data, const size_t* counts, uint64_t turn, unsigned index) {
    bool done[reductions] = {false};
    for (unsigned round = 1; round <= attempts_max; ++round) {
        pcclAsyncReduceOp_t handles[reductions];
        bool again = false;
        for (unsigned tag = 0; tag < reductions; ++tag) {
            if (done[tag]) continue;
            const pcclReduceDescriptor_t descriptor = describe(counts[tag], tag);
            fill(data[tag], counts[tag], turn, index, tag);
            const pcclResult_t result = pcclAllReduceAsync(data[tag], data[tag], &descriptor, comm, &handles[tag]);
            require(result == pcclSuccess, "launch", turn, (int)result);
        }
        for (unsigned tag = 0; tag < reductions; ++tag) {
            if (done[tag]) continue;
            pcclReduceInfo_t info;
            const pcclResult_t result = pcclAwaitAsyncReduce(&handles[tag], &info);
            if (result == pcclSuccess) {
                require(info.local_world_size == peers, "a member is missing in the sum", turn, (int)tag);
                require(is_sum(data[tag], counts[tag], turn, tag), "the sum is wrong", turn, (int)tag);
                done[tag] = true;
                continue;
            }
            require(result == pcclRankConnectionLost, "await", turn, (int)result);
            require(is_filled(data[tag], counts[tag], turn, index, tag), "the input is not as before", turn, (int)tag);
            again = true;
        }
        if (!again) return round;
    }
    require(false, "no end of retries", turn, 0);
    return 0;
}

int main(int argc, char** argv) {
    if (argc != 6) return 2;
    const unsigned index = (unsigned)atoi(argv[2]);
    peers = (unsigned)atoi(argv[3]);
    const size_t count = strtoul(argv[4], NULL, 10);
    const uint64_t turns = strtoul(argv[5], NULL, 10);
    const size_t counts[reductions] = {1 + count / 100, count, count / 3 + 1};
    uint64_t* data[reductions];
    uint64_t state[state_count];
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned tag = 0; tag < reductions; ++tag) data[tag] = malloc(counts[tag] * sizeof(uint64_t));
    memset(state, 0, sizeof state);
    join((uint16_t)atoi(argv[1]));
    const struct timespec pace = {0, 5000000};
    while (world() < (int)peers) {
        nanosleep(&pace, NULL);
        update(0);
    }
    printf("ready\n");
    for (uint64_t turn = 1; turn <= turns; ++turn) {
        update(turn);
        const int members = world(); /* read here: at the end of the turn the master may be stopped and the world 1 */
        require(members == (int)peers, "the world has changed", turn, members);
        pcclTensorInfo_t tensor = {"state", state, state_count, pcclUint64, pcclDeviceCpu, false};
        pcclSharedState_t shared = {turn, 1, &tensor};
        pcclSharedStateSyncInfo_t moved;
        const pcclResult_t result =
            pcclSynchronizeSharedState(comm, &shared, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, &moved);
        require(result == pcclSuccess, "sync", turn, (int)result);
        require(shared.revision == turn, "a revision was lost", turn, (int)shared.revision);
        require(moved.rx_bytes == 0, "equal state was sent again", turn, 0);
        const unsigned rounds = reduce_all(data, counts, turn, index);
        for (size_t i = 0; i < state_count; ++i) state[i] = state[i] * 3 + data[1][i % counts[1]];
        printf("turn %" PRIu64 " %d %" PRIu64 " %016" PRIx64 " %016" PRIx64 " %u\n", turn, members, shared.revision,
               value_hash(state, sizeof state), value_hash(data[2], counts[2] * sizeof(uint64_t)), rounds);
    }
    return pcclDestroyCommunicator(comm) == pcclSuccess ? 0 : 4;
}
