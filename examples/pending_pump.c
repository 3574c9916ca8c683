/*
 * pending_pump: reductions that cross the borders of steps, on a thread of their own.
 *
 *     pccl-master &  pending_pump 127.0.0.1:48148 1000 &  pending_pump 127.0.0.1:48148 1000
 *
 * pcclUpdateTopology requires that every operation is awaited. So a program that calls it in each step has nothing in
 * flight between steps. pcclArePeersPending is a small vote with the same answer for all, and it is legal while
 * reductions run. Only if the answer is yes, all peers wait for the running reduction, admit the newcomers, and
 * synchronise the state. So the revision counts synchronisations, and the number of the step is part of the state.
 */
#define _POSIX_C_SOURCE 200809L
#include "setup.h"

#include <pthread.h>
#include <unistd.h>

#define WEIGHTS 20000

typedef struct {
    pcclComm_t* comm;
    pthread_t thread;
    bool running;
    uint64_t tag;
    pcclResult_t result;
    float gradient[WEIGHTS];
} reduction_t;

static float weights[WEIGHTS];
static uint64_t step;
static reduction_t reduction;

static void* run_reduction(void* unused) {
    const pcclReduceDescriptor_t average = average_of(WEIGHTS, reduction.tag);
    (void)unused;
    /* A lost peer fails the operation for all. The gradient is as before: the others retry without any other call. */
    do {
        reduction.result = pcclAllReduce(reduction.gradient, reduction.gradient, &average, reduction.comm, NULL);
    } while (reduction.result == pcclRankConnectionLost && group_world(reduction.comm) > 1);
    return NULL;
}

static bool start_reduction(void) {
    reduction.tag = step;
    reduction.running = pthread_create(&reduction.thread, NULL, run_reduction, NULL) == 0;
    return reduction.running;
}

/* Applies the gradients of the last step. A step in which we were left alone is abandoned. */
static void finish_reduction(void) {
    if (!reduction.running) return;
    pthread_join(reduction.thread, NULL);
    reduction.running = false;
    if (reduction.result != pcclSuccess) return;
    for (int i = 0; i < WEIGHTS; ++i) weights[i] -= 0.1f * reduction.gradient[i];
}

static pcclResult_t synchronize(pcclComm_t* comm, uint64_t* revision) {
    pcclTensorInfo_t tensors[] = {{"weights", weights, WEIGHTS, pcclFloat, pcclDeviceCpu, false},
                                  {"step", &step, 1, pcclUint64, pcclDeviceCpu, false}};
    pcclSharedState_t state = {*revision, 2, tensors};
    const pcclResult_t result =
        pcclSynchronizeSharedState(comm, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, NULL);
    if (result == pcclSuccess) *revision = state.revision + 1;
    return result;
}

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s IPV4:PORT STEPS\n", argv[0]);
        return 2;
    }
    const uint64_t steps = strtoull(argv[2], NULL, 10);
    pcclComm_t* comm = reduction.comm = join_run(argv[1], 0);
    const float own = (float)(getpid() % 100); /* stands for the data that only this peer has */
    uint64_t revision = 0;
    pcclResult_t problem = pcclSuccess;

    for (int turn = 0; step < steps && problem == pcclSuccess; ++turn) {
        bool pending = false;
        if (turn > 0) problem = pcclArePeersPending(comm, &pending);
        if (problem == pcclSuccess && pending) {
            finish_reduction();
            problem = pcclUpdateTopology(comm);
        }
        /* A peer that has just joined is at the point after that update. */
        if (problem == pcclSuccess && (pending || turn == 0)) problem = synchronize(comm, &revision);
        if (problem != pcclSuccess) break;
        if (group_world(comm) < 2) {
            finish_reduction();
            sleep_milliseconds(20);
            continue;
        }

        static float gradient[WEIGHTS]; /* computed while the reduction of the last step still runs */
        for (int i = 0; i < WEIGHTS; ++i) gradient[i] = weights[i] - own - (float)(i % 10);
        finish_reduction();
        memcpy(reduction.gradient, gradient, sizeof gradient);
        if (!start_reduction()) problem = pcclInternalError;
        step += 1;
        printf("step %llu, %d peers, weights %016llx\n", (unsigned long long)step, group_world(comm),
               content_hash(weights, WEIGHTS));
    }
    finish_reduction();
    pcclDestroyCommunicator(comm);
    return problem == pcclSuccess ? 0 : 1;
}
