/*
 * diloco: each peer trains on its own for many inner steps, then the peers agree on one outer step.
 *
 *     pccl-master &  diloco 127.0.0.1:48148 100 &  diloco 127.0.0.1:48148 100
 *
 * The shared state is the outer parameters and the momentum of the outer optimiser: a newcomer needs both. The peers
 * average the pseudo-gradient, outer - local. Every peer applies the same average to the same state. So after the
 * synchronisation in which a newcomer receives the state, only pseudo-gradients are sent.
 */
#define _POSIX_C_SOURCE 200809L
#include "setup.h"

#include <unistd.h>

#define PARAMETERS 10000
#define INNER_STEPS 20

static float outer[PARAMETERS], momentum[PARAMETERS];
static float local[PARAMETERS], pseudo_gradient[PARAMETERS];

/* Stands for training: gradient descent towards the optimum of this peer's data. */
static void train(float own) {
    memcpy(local, outer, sizeof local);
    for (int inner = 0; inner < INNER_STEPS; ++inner) {
        for (int i = 0; i < PARAMETERS; ++i) local[i] -= 0.01f * (local[i] - own - (float)(i % 7));
    }
    for (int i = 0; i < PARAMETERS; ++i) pseudo_gradient[i] = outer[i] - local[i];
}

/* Nesterov momentum. All peers do the same arithmetic in the same order. */
static void outer_step(void) {
    for (int i = 0; i < PARAMETERS; ++i) {
        momentum[i] = 0.9f * momentum[i] + pseudo_gradient[i];
        outer[i] -= 0.7f * (pseudo_gradient[i] + 0.9f * momentum[i]);
    }
}

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s IPV4:PORT STEPS\n", argv[0]);
        return 2;
    }
    const uint64_t steps = strtoull(argv[2], NULL, 10);
    pcclComm_t* comm = join_run(argv[1], 0);
    const float own = (float)(getpid() % 100);
    pcclTensorInfo_t tensors[] = {{"outer", outer, PARAMETERS, pcclFloat, pcclDeviceCpu, false},
                                  {"momentum", momentum, PARAMETERS, pcclFloat, pcclDeviceCpu, false}};
    pcclSharedState_t state = {0, 2, tensors};
    const pcclReduceDescriptor_t average = average_of(PARAMETERS, 0);
    pcclResult_t problem = pcclSuccess;

    for (int turn = 0; state.revision < steps; ++turn) {
        if (turn > 0) problem = pcclUpdateTopology(comm);
        if (problem != pcclSuccess) break;
        if (group_world(comm) < 2) {
            sleep_milliseconds(20);
            continue;
        }
        problem = pcclSynchronizeSharedState(comm, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, NULL);
        if (problem != pcclSuccess) break;

        train(own);
        pcclResult_t reduced;
        do {
            reduced = pcclAllReduce(pseudo_gradient, pseudo_gradient, &average, comm, NULL);
        } while (reduced == pcclRankConnectionLost && group_world(comm) > 1);
        if (reduced == pcclSuccess) outer_step();
        state.revision += 1;
        printf("revision %llu, %d peers, outer %016llx momentum %016llx\n", (unsigned long long)state.revision,
               group_world(comm), content_hash(outer, PARAMETERS), content_hash(momentum, PARAMETERS));
    }
    pcclDestroyCommunicator(comm);
    return problem == pcclSuccess ? 0 : 1;
}
