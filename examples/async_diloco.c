/*
 * async_diloco: like diloco (diloco.c), but one step behind. While the pseudo-gradients of a step are averaged, every
 * peer trains the next inner steps. The average is applied after them.
 *
 *     pccl-master &  async_diloco 127.0.0.1:48148 100 &  async_diloco 127.0.0.1:48148 100
 *
 * A newcomer does not have the average that is in flight, and the members admit it before they apply that average. So
 * there are two synchronisations when a peer joins. The first one makes the state equal before the average is applied.
 * Then the members apply the average and send the new state (SEND_ONLY: their state cannot be overwritten). The
 * newcomers receive it (RECEIVE_ONLY: their content does not count). Each synchronisation increments the revision.
 */
#define _POSIX_C_SOURCE 200809L
#include "setup.h"

#include <unistd.h>

#define PARAMETERS 10000
#define INNER_STEPS 20

static float outer[PARAMETERS], momentum[PARAMETERS];
static float local[PARAMETERS], pseudo_gradient[PARAMETERS];
static float average[PARAMETERS]; /* reduced in place; belongs to the operation while `in_flight` */
static pcclAsyncReduceOp_t operation;
static bool in_flight;

static void train(float own) {
    memcpy(local, outer, sizeof local);
    for (int inner = 0; inner < INNER_STEPS; ++inner) {
        for (int i = 0; i < PARAMETERS; ++i) local[i] -= 0.01f * (local[i] - own - (float)(i % 7));
    }
    for (int i = 0; i < PARAMETERS; ++i) pseudo_gradient[i] = outer[i] - local[i];
}

static void apply_average(void) {
    for (int i = 0; i < PARAMETERS; ++i) {
        momentum[i] = 0.9f * momentum[i] + average[i];
        outer[i] -= 0.7f * (average[i] + 0.9f * momentum[i]);
    }
}

static bool launch(const pcclComm_t* comm) {
    const pcclReduceDescriptor_t descriptor = average_of(PARAMETERS, 0);
    return pcclAllReduceAsync(average, average, &descriptor, comm, &operation) == pcclSuccess;
}

/*
 * Waits for the average of the last step. If a peer is lost, launches the reduction again: `average` holds its input
 * then. False: nothing was in flight, or the reduction cannot be repeated (all other peers were lost, for example).
 */
static bool await_average(const pcclComm_t* comm) {
    while (in_flight) {
        const pcclResult_t result = pcclAwaitAsyncReduce(&operation, NULL);
        if (result == pcclSuccess) {
            in_flight = false;
            return true;
        }
        in_flight = result == pcclRankConnectionLost && group_world(comm) > 1 && launch(comm);
    }
    return false;
}

static pcclResult_t synchronize(const pcclComm_t* comm, uint64_t* revision, pcclSharedStateSyncStrategy_t strategy) {
    pcclTensorInfo_t tensors[] = {{"outer", outer, PARAMETERS, pcclFloat, pcclDeviceCpu, false},
                                  {"momentum", momentum, PARAMETERS, pcclFloat, pcclDeviceCpu, false}};
    pcclSharedState_t state = {*revision, 2, tensors};
    const pcclResult_t result = pcclSynchronizeSharedState(comm, &state, strategy, NULL);
    if (result == pcclSuccess) *revision = state.revision + 1;
    return result;
}

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s IPV4:PORT STEPS\n", argv[0]);
        return 2;
    }
    const uint64_t steps = strtoull(argv[2], NULL, 10);
    pcclComm_t* comm = join_run(argv[1], 0);
    const float own = (float)(getpid() % 100);
    uint64_t revision = 0;
    pcclResult_t problem = pcclSuccess;

    for (int turn = 0; revision < steps; ++turn) {
        const bool newcomer = turn == 0;
        bool joined = newcomer, averaged = false;
        if (!newcomer) {
            problem = pcclArePeersPending(comm, &joined); /* allowed while a reduction runs */
            if (problem != pcclSuccess) break;
            train(own); /* while the average of the last step is in flight */
            averaged = await_average(comm);
            if (joined) problem = pcclUpdateTopology(comm);
            if (problem != pcclSuccess) break;
        }
        if (group_world(comm) < 2) {
            if (averaged) apply_average();
            sleep_milliseconds(20);
            continue;
        }
        problem = synchronize(comm, &revision, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR);
        if (problem != pcclSuccess) break;
        if (averaged) apply_average();
        if (joined) {
            /*
             * This fails for the whole group if no member sends, that is, if all are newcomers. They may go on: the
             * first synchronisation has made them equal.
             */
            problem = synchronize(comm, &revision,
                                  newcomer ? PCCL_SHARED_STATE_SYNC_STRATEGY_RECEIVE_ONLY
                                           : PCCL_SHARED_STATE_SYNC_STRATEGY_SEND_ONLY);
            if (problem != pcclSuccess && (!newcomer || group_world(comm) < 2)) break;
            problem = pcclSuccess;
        }
        if (newcomer) train(own);
        memcpy(average, pseudo_gradient, sizeof average);
        in_flight = launch(comm);
        printf("revision %llu, %d peers, outer %016llx momentum %016llx\n", (unsigned long long)revision,
               group_world(comm), content_hash(outer, PARAMETERS), content_hash(momentum, PARAMETERS));
    }
    await_average(comm);
    pcclDestroyCommunicator(comm);
    return problem == pcclSuccess ? 0 : 1;
}
