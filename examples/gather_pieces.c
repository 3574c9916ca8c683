/*
 * gather_pieces: each step every peer has a piece of another size, and all peers get all pieces.
 *
 *     pccl-master &  gather_pieces 127.0.0.1:48148 1000 &  gather_pieces 127.0.0.1:48148 1000
 *
 * This is how peers exchange what they found and what has no fixed size: samples, sequences, errors. Nobody knows
 * beforehand how much the others have. So the peers first gather the sizes, one number each, which costs one vote. Then
 * they gather the pieces into an array of that size. Pieces come in the order of the members' indices, the same at all
 * peers.
 *
 * Peers may be started, killed and started again at any time. A gather succeeds for all remaining peers or for none, so
 * all of them know the same pieces of each step.
 */
#define _POSIX_C_SOURCE 200809L
#include "setup.h"

#include <unistd.h>

#define PEERS_MAX 1024
#define PIECE_MAX 5000

static uint64_t sizes[PEERS_MAX];
static pcclMemberInfo_t members[PEERS_MAX];
static float piece[PIECE_MAX];

static size_t find_samples(uint64_t step) {
    const size_t count = (size_t)(rand() % PIECE_MAX); /* here a real program searches */
    for (size_t i = 0; i < count; ++i) piece[i] = (float)(getpid() % 1000) + (float)(step % 100) * 0.01f + (float)i;
    return count;
}

/* On success `*pieces` holds the pieces of all peers, one behind the other. Its memory is made larger where needed. */
static pcclResult_t gather(const pcclComm_t* comm, size_t count, float** pieces, size_t* room,
                           pcclCollectiveInfo_t* info) {
    const pcclCopyDescriptor_t one = {1, pcclUint64, 0};
    const uint64_t own = count;
    info->members = members;
    info->members_capacity = PEERS_MAX;
    pcclResult_t result = pcclAllGather(&own, sizes, PEERS_MAX, &one, comm, info);
    if (result != pcclSuccess) return result;
    size_t total = 0;
    for (uint32_t i = 0; i < info->local_world_size; ++i) total += sizes[i];
    if (total > *room) {
        float* larger = realloc(*pieces, total * sizeof *larger);
        if (larger == NULL) return pcclInternalError;
        *pieces = larger;
        *room = total;
    }
    /* If a peer dies between the two calls, the second one succeeds without it: it needs less room. */
    const pcclCopyDescriptor_t many = {count, pcclFloat, 0};
    return pcclAllGather(piece, *pieces, total, &many, comm, info);
}

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s IPV4:PORT STEPS\n", argv[0]);
        return 2;
    }
    const uint64_t steps = strtoull(argv[2], NULL, 10);
    pcclComm_t* comm = join_run(argv[1], 0);
    uint64_t samples = 0; /* that the run has found, the same at all peers */
    pcclTensorInfo_t tensor = {"samples", &samples, 1, pcclUint64, pcclDeviceCpu, false};
    pcclSharedState_t state = {0, 1, &tensor};
    float* pieces = NULL;
    size_t room = 0;
    int status = 0;
    srand((unsigned)getpid());

    for (int turn = 0; state.revision < steps && status == 0; ++turn) {
        /* A newcomer returns from pcclConnect at the point after this call, so it skips the call in its first turn. */
        if (turn > 0 && pcclUpdateTopology(comm) != pcclSuccess) status = 1;
        if (status == 0 && group_world(comm) < 2) {
            sleep_milliseconds(20);
            continue;
        }
        if (status != 0 || pcclSynchronizeSharedState(comm, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR,
                                                      NULL) != pcclSuccess) {
            status = 1;
            break;
        }
        const size_t count = find_samples(state.revision);
        pcclCollectiveInfo_t info = {0};
        pcclResult_t gathered;
        /* A lost peer fails the call for all. All others call it again, from the sizes on. */
        do {
            gathered = gather(comm, count, &pieces, &room, &info);
        } while (gathered == pcclRankConnectionLost && group_world(comm) > 1);

        state.revision += 1; /* the step is over, also if we were left alone during it */
        if (gathered == pcclSuccess) {
            size_t total = 0;
            for (uint32_t i = 0; i < info.local_world_size; ++i) total += members[i].count;
            samples += total;
            printf("step %llu, %u peers, %llu samples, these %016llx\n", (unsigned long long)state.revision,
                   info.local_world_size, (unsigned long long)samples, content_hash(pieces, total));
        } else if (gathered != pcclRankConnectionLost && gathered != pcclTooFewPeers) {
            status = 1;
        }
    }
    free(pieces);
    pcclDestroyCommunicator(comm);
    return status;
}
