/*
 * basic_loop: the smallest complete PCCL program. Start a master, then this program a few times:
 *
 *     pccl-master &  basic_loop 127.0.0.1:48148 &  basic_loop 127.0.0.1:48148
 *
 * A second argument is the number of steps.
 *
 * Each turn admits newcomers, makes the weights equal, averages a gradient and applies it. Peers may be started, killed
 * and started again at any time; the others go on.
 */
#define _POSIX_C_SOURCE 200809L
#include <pccl.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WEIGHTS 1024

static void sleep_milliseconds(long milliseconds) {
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static int parse_address(const char* text, ccoip_socket_address_t* address) {
    unsigned a, b, c, d, port;
    if (sscanf(text, "%u.%u.%u.%u:%u", &a, &b, &c, &d, &port) != 5 || (a | b | c | d) > 255 || port > 65535) return 0;
    address->inet.protocol = inetIPv4;
    address->inet.ipv4.data[0] = (uint8_t)a;
    address->inet.ipv4.data[1] = (uint8_t)b;
    address->inet.ipv4.data[2] = (uint8_t)c;
    address->inet.ipv4.data[3] = (uint8_t)d;
    address->port = (uint16_t)port;
    return 1;
}

static int world_size(const pcclComm_t* comm) {
    int world = 1;
    return pcclGetAttribute(comm, PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE, &world) == pcclSuccess ? world : 1;
}

int main(int argc, char** argv) {
    static float weights[WEIGHTS], gradient[WEIGHTS];
    pcclCommCreateParams_t params = {{{inetIPv4, {{127, 0, 0, 1}}, {{0}}}, 48148}, 0, 0};
    const char* address = argc > 1 ? argv[1] : getenv("PCCL_MASTER");
    if (address != NULL && !parse_address(address, &params.master_address)) {
        fprintf(stderr, "usage: %s [IPV4:PORT of the master [STEPS]]\n", argv[0]);
        return 2;
    }
    const uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
    setvbuf(stdout, NULL, _IOLBF, 0); /* line-buffered, also in a pipe */

    pcclComm_t* comm = NULL;
    if (pcclInit() != pcclSuccess || pcclCreateCommunicator(&params, &comm) != pcclSuccess) return 1;
    if (pcclConnect(comm) != pcclSuccess) {
        fprintf(stderr, "no master there\n");
        pcclDestroyCommunicator(comm);
        return 1;
    }

    pcclTensorInfo_t tensor = {"weights", weights, WEIGHTS, pcclFloat, pcclDeviceCpu, false};
    pcclSharedState_t state = {0, 1, &tensor};
    const pcclReduceDescriptor_t average = {
        WEIGHTS, pcclAvg, 0, {pcclFloat, pcclDistributionNone}, {pcclFloat, pcclQuantNone}};
    int result = 0;
    for (int turn = 0; state.revision < steps; ++turn) {
        /* A newcomer returns from pcclConnect at the point after this call, so it skips the call in its first turn. */
        if (turn > 0 && pcclUpdateTopology(comm) != pcclSuccess) {
            result = 1;
            break;
        }
        if (world_size(comm) < 2) {
            sleep_milliseconds(100);
            continue;
        }

        if (pcclSynchronizeSharedState(comm, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, NULL) !=
            pcclSuccess) {
            result = 1;
            break;
        }

        for (int i = 0; i < WEIGHTS; ++i) gradient[i] = weights[i] - (float)i; /* here a real program computes */

        /* A lost peer fails the operation for all. The gradients are as before: retry with the remaining peers. */
        pcclResult_t reduced;
        do {
            reduced = pcclAllReduce(gradient, gradient, &average, comm, NULL);
        } while (reduced == pcclRankConnectionLost && world_size(comm) > 1);

        if (reduced == pcclSuccess) {
            for (int i = 0; i < WEIGHTS; ++i) weights[i] -= 0.1f * gradient[i];
        }
        state.revision += 1; /* the step is over, also if we were left alone during it */
        printf("revision %llu, %d peers, last weight %.4f\n", (unsigned long long)state.revision, world_size(comm),
               (double)weights[WEIGHTS - 1]);
    }
    pcclDestroyCommunicator(comm);
    return result;
}
