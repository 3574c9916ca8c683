/*
 * A peer that executes the commands on its standard input. For each command it prints one line with the result on
 * standard output. It uses only pccl.h and C99, as a user's program would.
 *
 *   create PORT GROUP [ADDRESS]                          create RESULT
 *   connect | update | destroy                           connect RESULT ...
 *   pending                                              pending RESULT 0|1
 *   attribute N                                          attribute RESULT VALUE
 *   reduce TYPE OP COUNT TAG in|out|odd SEED SEEDS       reduce RESULT WORLD TX RX MATCHES INPUT_INTACT HASH
 *   launch (same)                                        launch RESULT
 *   await TAG                                            await (as reduce)
 *   sync REVISION [receive|send] NAME:TYPE:COUNT:SEED[:u] ...   sync RESULT REVISION TX RX HASH
 *   hash NAME:TYPE:COUNT:SEED ...                        hash 0 HASH
 *   quantized ...                                        see quantized_command.h
 *   quit
 *
 * SEED is the contribution of this peer. SEEDS (a,b,c or -) are those of all members, for the naive reference.
 */
#include "pccl.h"
#include "quantized_command.h"
#include "values.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { slots_max = 256, seeds_max = 64, entries_max = 64 };

typedef struct {
    bool used;
    unsigned char *send_memory, *recv_memory;
    void *send, *recv;
    uint64_t seed, seeds[seeds_max];
    size_t seed_count;
    pcclReduceDescriptor_t descriptor;
    pcclAsyncReduceOp_t handle;
} slot_t;

static pcclComm_t* comm;
static slot_t slots[slots_max];

static slot_t* free_slot(void) {
    for (int i = 0; i < slots_max; ++i) {
        if (!slots[i].used) return &slots[i];
    }
    fprintf(stderr, "no slot left\n");
    exit(3);
}

static void release(slot_t* slot) {
    free(slot->send_memory);
    if (slot->recv_memory != slot->send_memory) free(slot->recv_memory);
    memset(slot, 0, sizeof *slot);
}

static void read_seeds(slot_t* slot, const char* text) {
    slot->seed_count = 0;
    if (strcmp(text, "-") == 0) return;
    while (*text != 0 && slot->seed_count < seeds_max) {
        char* end = NULL;
        slot->seeds[slot->seed_count++] = strtoull(text, &end, 10);
        text = *end == ',' ? end + 1 : end;
    }
}

static slot_t* prepare(const char* arguments) {
    slot_t* slot = free_slot();
    int type = 0, op = 0;
    char place[8], seeds[512];
    size_t count = 0;
    if (sscanf(arguments, "%d %d %zu %" SCNu64 " %7s %" SCNu64 " %511s", &type, &op, &count, &slot->descriptor.tag,
               place, &slot->seed, seeds) != 7) {
        fprintf(stderr, "bad arguments: %s\n", arguments);
        exit(3);
    }
    const size_t shift = strcmp(place, "odd") == 0 ? 1 : 0;
    const size_t bytes = count * value_bytes((pcclDataType_t)type);
    slot->used = true;
    slot->send_memory = malloc(bytes + 2);
    slot->recv_memory = strcmp(place, "in") == 0 ? slot->send_memory : calloc(bytes + 2, 1);
    slot->send = slot->send_memory + shift;
    slot->recv = slot->recv_memory + shift;
    slot->descriptor.count = count;
    slot->descriptor.op = (pcclRedOp_t)op;
    slot->descriptor.src_descriptor.datatype = (pcclDataType_t)type;
    read_seeds(slot, seeds);
    value_fill(slot->send, (pcclDataType_t)type, count, slot->seed);
    return slot;
}

static void report_reduce(const char* command, slot_t* slot, pcclResult_t result, const pcclReduceInfo_t* info) {
    const pcclDataType_t type = slot->descriptor.src_descriptor.datatype;
    const size_t count = slot->descriptor.count, bytes = count * value_bytes(type);
    bool intact = true, matches = false;
    if (slot->send != slot->recv || result != pcclSuccess) {
        unsigned char* before = malloc(bytes + 1);
        value_fill(before, type, count, slot->seed);
        intact = memcmp(before, slot->send, bytes) == 0;
        free(before);
    }
    if (result == pcclSuccess && slot->seed_count > 0) {
        matches = value_matches(slot->recv, type, slot->descriptor.op, count, slot->seeds, slot->seed_count);
    }
    printf("%s %d %" PRIu32 " %" PRIu64 " %" PRIu64 " %d %d %016" PRIx64 "\n", command, (int)result,
           info->local_world_size, info->tx_bytes, info->rx_bytes, matches, intact, value_hash(slot->recv, bytes));
    release(slot);
}

static void do_reduce(const char* arguments) {
    slot_t* slot = prepare(arguments);
    pcclReduceInfo_t info = {0};
    const pcclResult_t result = pcclAllReduce(slot->send, slot->recv, &slot->descriptor, comm, &info);
    report_reduce("reduce", slot, result, &info);
}

static void do_launch(const char* arguments) {
    slot_t* slot = prepare(arguments);
    const pcclResult_t result = pcclAllReduceAsync(slot->send, slot->recv, &slot->descriptor, comm, &slot->handle);
    printf("launch %d\n", (int)result);
    if (result != pcclSuccess) release(slot);
}

static void do_await(const char* arguments) {
    const uint64_t tag = strtoull(arguments, NULL, 10);
    pcclReduceInfo_t info = {0};
    for (int i = 0; i < slots_max; ++i) {
        if (!slots[i].used || slots[i].handle.tag != tag) continue;
        const pcclResult_t result = pcclAwaitAsyncReduce(&slots[i].handle, &info);
        report_reduce("await", &slots[i], result, &info);
        return;
    }
    const pcclAsyncReduceOp_t handle = {comm, tag};
    printf("await %d 0 0 0 0 1 0\n", (int)pcclAwaitAsyncReduce(&handle, &info));
}

static size_t make_entries(char* arguments, pcclTensorInfo_t* infos) {
    size_t count = 0;
    for (char* word = strtok(arguments, " "); word != NULL && count < entries_max; word = strtok(NULL, " ")) {
        pcclTensorInfo_t* info = &infos[count++];
        char* rest = strchr(word, ':');
        uint64_t seed = 0;
        int type = 0;
        char flag = 0;
        memset(info, 0, sizeof *info);
        *rest++ = 0;
        info->name = word;
        sscanf(rest, "%d:%zu:%" SCNu64 ":%c", &type, &info->count, &seed, &flag);
        info->datatype = (pcclDataType_t)type;
        info->allow_content_inequality = flag == 'u';
        info->data = malloc(info->count * value_bytes(info->datatype) + 1);
        value_fill(info->data, info->datatype, info->count, seed);
    }
    return count;
}

static uint64_t hash_and_free(pcclTensorInfo_t* infos, size_t count) {
    uint64_t hash = 0;
    for (size_t i = 0; i < count; ++i) {
        hash = hash * 31 + value_hash(infos[i].data, infos[i].count * value_bytes(infos[i].datatype));
        free(infos[i].data);
    }
    return hash;
}

/* "sync REVISION [receive|send] entries": the strategy, if it is not ENFORCE_POPULAR. */
static pcclSharedStateSyncStrategy_t take_strategy(char** rest) {
    static const char* const names[] = {" receive ", " send "};
    for (int i = 0; i < 2; ++i) {
        const size_t length = strlen(names[i]);
        if (strncmp(*rest, names[i], length) != 0) continue;
        *rest += length;
        return i == 0 ? PCCL_SHARED_STATE_SYNC_STRATEGY_RECEIVE_ONLY : PCCL_SHARED_STATE_SYNC_STRATEGY_SEND_ONLY;
    }
    return PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR;
}

static void do_sync(char* arguments) {
    pcclTensorInfo_t infos[entries_max];
    pcclSharedStateSyncInfo_t info = {0};
    pcclSharedState_t state = {0};
    char* rest = NULL;
    state.revision = strtoull(arguments, &rest, 10);
    const pcclSharedStateSyncStrategy_t strategy = take_strategy(&rest);
    state.infos = infos;
    state.count = make_entries(rest, infos);
    const pcclResult_t result = pcclSynchronizeSharedState(comm, &state, strategy, &info);
    const uint64_t hash = hash_and_free(infos, state.count);
    printf("sync %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %016" PRIx64 "\n", (int)result, state.revision, info.tx_bytes,
           info.rx_bytes, hash);
}

static void do_hash(char* arguments) {
    pcclTensorInfo_t infos[entries_max];
    const size_t count = make_entries(arguments, infos);
    printf("hash 0 %016" PRIx64 "\n", hash_and_free(infos, count));
}

static void do_create(const char* arguments) {
    unsigned port = 0, group = 0;
    char host[64] = "127.0.0.1";
    pcclCommCreateParams_t params;
    memset(&params, 0, sizeof params);
    sscanf(arguments, "%u %u %63s", &port, &group, host);
    params.master_address.inet.protocol = strchr(host, ':') != NULL ? inetIPv6 : inetIPv4;
    if (params.master_address.inet.protocol == inetIPv6)
        inet_pton(AF_INET6, host, params.master_address.inet.ipv6.data);
    else
        inet_pton(AF_INET, host, params.master_address.inet.ipv4.data);
    params.master_address.port = (uint16_t)port;
    params.peer_group = group;
    printf("create %d\n", (int)pcclCreateCommunicator(&params, &comm));
}

static void run(const char* command, char* arguments) {
    int value = 0;
    bool pending = false;
    if (strcmp(command, "create") == 0)
        do_create(arguments);
    else if (strcmp(command, "connect") == 0)
        printf("connect %d\n", (int)pcclConnect(comm));
    else if (strcmp(command, "update") == 0)
        printf("update %d\n", (int)pcclUpdateTopology(comm));
    else if (strcmp(command, "optimize") == 0)
        printf("optimize %d\n", (int)pcclOptimizeTopology(comm));
    else if (strcmp(command, "destroy") == 0)
        printf("destroy %d\n", (int)pcclDestroyCommunicator(comm));
    else if (strcmp(command, "pending") == 0) {
        const pcclResult_t result = pcclArePeersPending(comm, &pending);
        printf("pending %d %d\n", (int)result, pending);
    } else if (strcmp(command, "attribute") == 0) {
        const pcclResult_t result = pcclGetAttribute(comm, (pcclAttribute_t)atoi(arguments), &value);
        printf("attribute %d %d\n", (int)result, value);
    } else if (strcmp(command, "reduce") == 0)
        do_reduce(arguments);
    else if (strcmp(command, "launch") == 0)
        do_launch(arguments);
    else if (strcmp(command, "await") == 0)
        do_await(arguments);
    else if (strcmp(command, "sync") == 0)
        do_sync(arguments);
    else if (strcmp(command, "hash") == 0)
        do_hash(arguments);
    else if (strcmp(command, "quantized") == 0)
        do_quantized(comm, arguments);
    else
        printf("unknown %s\n", command);
}

int main(void) {
    char line[4096], command[32];
    if (getenv("PCCL_TEST_FLUSH_SUBNORMALS") != NULL) flush_subnormals();
    pcclInit();
    while (fgets(line, sizeof line, stdin) != NULL) {
        int used = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%31s %n", command, &used) != 1) continue;
        if (strcmp(command, "quit") == 0) break;
        run(command, line + used);
        fflush(stdout);
    }
    return 0;
}
