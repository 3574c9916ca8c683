/*
 * many_tensors: averages the gradients of a model with many tensors, with one call per step. Peers may join and die.
 *
 *   pccl-master --listen 127.0.0.1:48148 &
 *   many_tensors 127.0.0.1 48148 20 &      # as many as you like, at any time; kill some
 *   many_tensors 127.0.0.1 48148 20
 *
 * Each tensor has its own tag, so each peer may list the tensors in another order. For each step the program prints
 * "step N world W hash H": the peers that took part, and a hash of the weights after the step. All peers that take part
 * in a step print the same hash. A peer that is alone waits for others. Exit code 0: all steps are done.
 */
#define _POSIX_C_SOURCE 200809L
#include <pccl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <arpa/inet.h>
#include <unistd.h>

#define TENSORS 24
#define ELEMENTS_MAX 5000

static float weights[TENSORS][ELEMENTS_MAX];
static float gradients[TENSORS][ELEMENTS_MAX];
static size_t elements[TENSORS];

static void wait_a_little(void) {
    const struct timespec pause = {0, 50 * 1000 * 1000};
    nanosleep(&pause, NULL);
}

static unsigned long long hash_of_weights(void) {
    unsigned long long hash = 1469598103934665603ull;
    for (size_t t = 0; t < TENSORS; ++t) {
        const unsigned char* bytes = (const unsigned char*)weights[t];
        for (size_t i = 0; i < elements[t] * sizeof(float); ++i) hash = (hash ^ bytes[i]) * 1099511628211ull;
    }
    return hash;
}

static int synchronize(pcclComm_t* comm, uint64_t* revision) {
    static char names[TENSORS][16];
    pcclTensorInfo_t infos[TENSORS];
    memset(infos, 0, sizeof infos);
    for (size_t t = 0; t < TENSORS; ++t) {
        snprintf(names[t], sizeof names[t], "tensor.%zu", t);
        infos[t].name = names[t];
        infos[t].data = weights[t];
        infos[t].count = elements[t];
        infos[t].datatype = pcclFloat;
        infos[t].device_type = pcclDeviceCpu;
    }
    pcclSharedState_t state = {*revision, TENSORS, infos};
    const pcclResult_t result =
        pcclSynchronizeSharedState(comm, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, NULL);
    *revision = state.revision;
    return result == pcclSuccess;
}

/*
 * Averages all gradients in place with one call. Blocks. The list begins with tensor `first`. After a failure, compute
 * all gradients again: some may be reduced already.
 */
static pcclResult_t average_gradients(pcclComm_t* comm, int first, pcclReduceInfo_t* info) {
    pcclReduceOpDescriptor_t operations[TENSORS];
    memset(operations, 0, sizeof operations);
    for (size_t i = 0; i < TENSORS; ++i) {
        const size_t t = (i + (size_t)first) % TENSORS;
        operations[i].sendbuf = operations[i].recvbuf = gradients[t];
        operations[i].descriptor.count = elements[t];
        operations[i].descriptor.op = pcclAvg;
        operations[i].descriptor.tag = t;
        operations[i].descriptor.src_descriptor.datatype = pcclFloat;
        operations[i].descriptor.quantization_options.quantized_datatype = pcclFloat;
    }
    return pcclAllReduceMultipleWithRetry(operations, TENSORS, comm, info, 1 + first % 8);
}

int main(int argc, char** argv) {
    pcclCommCreateParams_t params;
    memset(&params, 0, sizeof params);
    if (argc != 4 || inet_pton(AF_INET, argv[1], params.master_address.inet.ipv4.data) != 1) {
        fprintf(stderr, "usage: many_tensors MASTER_IPV4 PORT STEPS\n");
        return 2;
    }
    params.master_address.inet.protocol = inetIPv4;
    params.master_address.port = (uint16_t)atoi(argv[2]);
    const uint64_t steps = strtoull(argv[3], NULL, 10);
    for (size_t t = 0; t < TENSORS; ++t) elements[t] = 1 + t * (ELEMENTS_MAX - 1) / TENSORS;

    pcclComm_t* comm = NULL;
    if (pcclInit() != pcclSuccess || pcclCreateCommunicator(&params, &comm) != pcclSuccess) return 1;
    while (pcclConnect(comm) != pcclSuccess) wait_a_little();

    uint64_t revision = 0;
    const int own = (int)(getpid() % TENSORS); /* this peer's training data, and the order of its tensors */
    for (int turn = 0; revision < steps; ++turn) {
        if (turn > 0 && pcclUpdateTopology(comm) != pcclSuccess) {
            int world = 0;
            if (pcclGetAttribute(comm, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &world) == pcclSuccess && world > 1) continue;
            while (pcclConnect(comm) == pcclMasterConnectionFailed) wait_a_little(); /* removed: join again */
        }
        int world = 0;
        if (pcclGetAttribute(comm, PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE, &world) != pcclSuccess) return 1;
        if (world < 2) {
            wait_a_little();
            continue;
        }
        if (!synchronize(comm, &revision)) continue;
        for (size_t t = 0; t < TENSORS; ++t) {
            for (size_t i = 0; i < elements[t]; ++i) gradients[t][i] = (float)(own + 1) / (float)(1 + i + revision);
        }
        pcclReduceInfo_t info;
        const pcclResult_t result = average_gradients(comm, own, &info);
        if (result != pcclSuccess) {
            fprintf(stderr, "the step is given up: %s\n", pcclGetErrorString(result));
            continue;
        }
        for (size_t t = 0; t < TENSORS; ++t) {
            for (size_t i = 0; i < elements[t]; ++i) weights[t][i] -= 0.1f * gradients[t][i];
        }
        ++revision;
        printf("step %llu world %u hash %016llx\n", (unsigned long long)revision, (unsigned)info.local_world_size,
               hash_of_weights());
        fflush(stdout);
    }
    pcclDestroyCommunicator(comm);
    return 0;
}
