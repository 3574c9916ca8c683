/*
 * sharded_grid: a model that is too large for one peer (as with FSDP). The peers of group s hold shard s. A row of the
 * grid consists of one peer of each group. Together these peers hold one copy of the model.
 *
 *     pccl-master &  for s in 0 1; do sharded_grid 127.0.0.1:48148 100 $s 2 & sharded_grid 127.0.0.1:48148 100 $s 2 & done
 *
 * Collectives and the shared state concern one group; pcclUpdateTopology is a vote of all groups. A forward pass needs
 * a peer of each shard, so no peer computes until all rows are complete: global world = shards * largest group. If a
 * peer is lost, its group finishes the step without it. Then all peers wait until a new peer has taken its place.
 */
#define _POSIX_C_SOURCE 200809L
#include "setup.h"

#include <unistd.h>

#define SHARD_PARAMETERS 10000

static float shard[SHARD_PARAMETERS], gradient[SHARD_PARAMETERS];

int main(int argc, char** argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s IPV4:PORT STEPS OWN_SHARD SHARDS\n", argv[0]);
        return 2;
    }
    const uint64_t steps = strtoull(argv[2], NULL, 10);
    const int own_shard = atoi(argv[3]), shards = atoi(argv[4]);
    pcclComm_t* comm = join_run(argv[1], (uint32_t)own_shard);
    const float own = (float)(getpid() % 100);
    pcclTensorInfo_t tensor = {"shard", shard, SHARD_PARAMETERS, pcclFloat, pcclDeviceCpu, false};
    pcclSharedState_t state = {0, 1, &tensor};
    const pcclReduceDescriptor_t average = average_of(SHARD_PARAMETERS, 0);
    pcclResult_t problem = pcclSuccess;

    for (int turn = 0; state.revision < steps; ++turn) {
        if (turn > 0) problem = pcclUpdateTopology(comm);
        if (problem != pcclSuccess) break;
        /* Both numbers are those of the last update, equal on all peers of all groups. So all peers decide the same. */
        const int world = attribute(comm, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE);
        if (world < shards * attribute(comm, PCCL_ATTRIBUTE_LARGEST_PEER_GROUP_WORLD_SIZE)) {
            sleep_milliseconds(20);
            continue;
        }
        problem = pcclSynchronizeSharedState(comm, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, NULL);
        if (problem != pcclSuccess) break;

        /* In a real program, the peers of a row gather their shards here (without this library) and compute. */
        for (int i = 0; i < SHARD_PARAMETERS; ++i) gradient[i] = shard[i] - own - (float)(i % 5 + own_shard);

        /* A peer that is alone in its group, from the start or after a loss, uses its own gradient as the average. */
        pcclResult_t reduced;
        do {
            reduced = pcclAllReduce(gradient, gradient, &average, comm, NULL);
        } while (reduced == pcclRankConnectionLost && group_world(comm) > 1);
        for (int i = 0; i < SHARD_PARAMETERS; ++i) shard[i] -= 0.1f * gradient[i];
        state.revision += 1;
        printf("revision %llu, %d peers, shard %d %016llx\n", (unsigned long long)state.revision, world, own_shard,
               content_hash(shard, SHARD_PARAMETERS));
    }
    pcclDestroyCommunicator(comm);
    return problem == pcclSuccess ? 0 : 1;
}
