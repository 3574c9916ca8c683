/*
 * demo_trainer: one peer that trains a small language model of characters together with others, by DiLoCo.
 *
 *     demo_trainer IPV4:PORT STEPS SEED
 *
 * The input is the licence texts under /usr/share/common-licenses. The model has hashed embeddings of the last 1 to 5
 * characters, a hidden layer and a softmax. The shared state is the outer parameters and the outer momentum. An outer
 * step is: local steps of SGD at random places, pseudo-gradient = outer - local, all-reduce AVG, outer Nesterov step,
 * revision + 1. On SIGTERM it finishes the step and leaves.
 *
 * Standard output, one flushed line each:
 *   "joined REVISION RX_BYTES MS"
 *   "reducing STEP"
 *   "failed STEP CODE MS"                      a reduction failed; it is retried
 *   "recovered STEP MS"                        time since that reduction began
 *   "step STEP LOSS HASH WORLD REDUCE_MS"
 *   "left STEP", "finished STEP", "error TEXT CODE"
 */
#define _POSIX_C_SOURCE 200809L
#include <pccl.h>

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { VOCABULARY = 128, ORDERS = 5, WIDTH = 16, ROWS = 1 << 18, INPUTS = ORDERS * WIDTH, HIDDEN = 64 };
enum { LOCAL_EXAMPLES = 6000, HELD_OUT = 2000, LANES = 8 };

typedef struct {
    float embedding[ROWS][WIDTH];
    float to_hidden[INPUTS][HIDDEN];
    float hidden_bias[HIDDEN];
    float to_output[HIDDEN][VOCABULARY];
    float output_bias[VOCABULARY];
} Model;
enum { PARAMETERS = sizeof(Model) / sizeof(float) };

static Model outer, momentum, local, gradient;
static unsigned char* text;
static size_t text_size;
static uint64_t random_state;
static volatile sig_atomic_t leave_requested;

static void on_terminate(int signal_number) {
    (void)signal_number;
    leave_requested = 1;
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static uint32_t random_number(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static int compare_names(const void* a, const void* b) { return strcmp((const char*)a, (const char*)b); }

/* Reads all regular files of the directory in the order of their names. Skips links: their targets are read anyway. */
static int read_texts(const char* directory) {
    char names[256][256];
    size_t count = 0;
    DIR* listing = opendir(directory);
    if (listing == NULL) return 0;
    for (struct dirent* entry; count < 256 && (entry = readdir(listing)) != NULL;) {
        snprintf(names[count], sizeof names[count], "%s", entry->d_name);
        ++count;
    }
    closedir(listing);
    qsort(names, count, sizeof names[0], compare_names);
    for (size_t i = 0; i < count; ++i) {
        char path[512];
        struct stat status;
        snprintf(path, sizeof path, "%s/%.255s", directory, names[i]);
        if (lstat(path, &status) != 0 || !S_ISREG(status.st_mode)) continue;
        unsigned char* larger = realloc(text, text_size + (size_t)status.st_size);
        FILE* file = fopen(path, "rb");
        if (larger != NULL) text = larger;
        if (larger != NULL && file != NULL) text_size += fread(text + text_size, 1, (size_t)status.st_size, file);
        if (file != NULL) fclose(file);
    }
    for (size_t i = 0; i < text_size; ++i) text[i] &= VOCABULARY - 1;
    return text_size > 10 * HELD_OUT;
}

static void context_rows(size_t position, uint32_t rows[ORDERS]) {
    uint32_t hash = 2166136261u;
    for (unsigned order = 0; order < ORDERS; ++order) {
        hash = (hash ^ text[position - 1 - order]) * 16777619u;
        rows[order] = ((hash ^ (hash >> 15)) * 2654435761u + order) % ROWS;
    }
}

static float dot(const float* a, const float* b, int count) {
    float lanes[LANES] = {0}, sum = 0;
    for (int i = 0; i < count; i += LANES) {
        for (int k = 0; k < LANES; ++k) lanes[k] += a[i + k] * b[i + k];
    }
    for (int k = 0; k < LANES; ++k) sum += lanes[k];
    return sum;
}

static void add_scaled(float* target, float factor, const float* source, int count) {
    for (int i = 0; i < count; ++i) target[i] += factor * source[i];
}

/* Returns the loss at one place of the text. With a rate, it also does one step of SGD there. */
static float visit(Model* model, size_t position, float rate) {
    uint32_t rows[ORDERS];
    float input[INPUTS], hidden[HIDDEN], output[VOCABULARY], hidden_error[HIDDEN], input_error[INPUTS];
    context_rows(position, rows);
    for (int order = 0; order < ORDERS; ++order) {
        memcpy(input + order * WIDTH, model->embedding[rows[order]], sizeof model->embedding[0]);
    }
    memcpy(hidden, model->hidden_bias, sizeof hidden);
    for (int i = 0; i < INPUTS; ++i) add_scaled(hidden, input[i], model->to_hidden[i], HIDDEN);
    for (int j = 0; j < HIDDEN; ++j) hidden[j] = tanhf(hidden[j]);
    memcpy(output, model->output_bias, sizeof output);
    for (int j = 0; j < HIDDEN; ++j) add_scaled(output, hidden[j], model->to_output[j], VOCABULARY);
    float largest = output[0], total = 0;
    for (int c = 1; c < VOCABULARY; ++c) largest = output[c] > largest ? output[c] : largest;
    for (int c = 0; c < VOCABULARY; ++c) total += output[c] = expf(output[c] - largest);
    for (int c = 0; c < VOCABULARY; ++c) output[c] /= total;
    const unsigned target = text[position];
    const float loss = -logf(output[target] + 1e-20f);
    if (rate == 0) return loss;

    output[target] -= 1; /* now the error of the logits */
    for (int j = 0; j < HIDDEN; ++j) {
        hidden_error[j] = dot(output, model->to_output[j], VOCABULARY) * (1 - hidden[j] * hidden[j]);
        add_scaled(model->to_output[j], -rate * hidden[j], output, VOCABULARY);
    }
    add_scaled(model->output_bias, -rate, output, VOCABULARY);
    for (int i = 0; i < INPUTS; ++i) {
        input_error[i] = dot(hidden_error, model->to_hidden[i], HIDDEN);
        add_scaled(model->to_hidden[i], -rate * input[i], hidden_error, HIDDEN);
    }
    add_scaled(model->hidden_bias, -rate, hidden_error, HIDDEN);
    for (int order = 0; order < ORDERS; ++order) {
        add_scaled(model->embedding[rows[order]], -5 * rate, input_error + order * WIDTH, WIDTH);
    }
    return loss;
}

/* Peers need not start with equal values: the first synchronisation makes them equal. */
static void initialise(Model* model) {
    float* values = (float*)model;
    for (size_t i = 0; i < PARAMETERS; ++i) values[i] = ((float)(random_number() % 20001) / 10000 - 1) * 0.1f;
}

static float held_out_loss(void) {
    double sum = 0;
    for (size_t i = 0; i < HELD_OUT; ++i) sum += visit(&outer, text_size - HELD_OUT + i, 0);
    return (float)(sum / HELD_OUT);
}

static uint64_t content_hash(uint64_t revision) {
    uint64_t hash = 14695981039346656037u ^ revision, word;
    for (size_t i = 0; i + sizeof word <= sizeof(Model); i += sizeof word) {
        memcpy(&word, (const char*)&outer + i, sizeof word);
        hash = (hash ^ word) * 1099511628211u;
        memcpy(&word, (const char*)&momentum + i, sizeof word);
        hash = (hash ^ word) * 1099511628211u;
    }
    return hash ^ (hash >> 32);
}

static int world_size(const pcclComm_t* comm) {
    int world = 1;
    return pcclGetAttribute(comm, PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE, &world) == pcclSuccess ? world : 1;
}

/* Local steps, then the pseudo-gradient. */
static void train_locally(void) {
    memcpy(&local, &outer, sizeof local);
    for (int i = 0; i < LOCAL_EXAMPLES; ++i) {
        visit(&local, ORDERS + random_number() % (text_size - HELD_OUT - ORDERS), 0.02f);
    }
    float* delta = (float*)&gradient;
    for (size_t i = 0; i < PARAMETERS; ++i) delta[i] = ((const float*)&outer)[i] - ((const float*)&local)[i];
}

/* Nesterov momentum; element by element, so that equal inputs give equal bytes on all peers. */
static void outer_step(void) {
    for (size_t i = 0; i < PARAMETERS; ++i) {
        float* velocity = (float*)&momentum + i;
        const float delta = ((const float*)&gradient)[i];
        *velocity = 0.8f * *velocity + delta;
        ((float*)&outer)[i] -= 0.5f * (delta + 0.8f * *velocity);
    }
}

/* Averages the gradient in place. Retries while peers are lost, at most 20 times. */
static pcclResult_t average_gradient(const pcclComm_t* comm, unsigned long long step) {
    const pcclReduceDescriptor_t average = {
        PARAMETERS, pcclAvg, 0, {pcclFloat, pcclDistributionNone}, {pcclFloat, pcclQuantNone}};
    const double begin = now_ms();
    int failures = 0;
    for (;;) {
        printf("reducing %llu\n", step);
        const pcclResult_t result = pcclAllReduce(&gradient, &gradient, &average, comm, NULL);
        if (result == pcclSuccess && failures > 0) printf("recovered %llu %.1f\n", step, now_ms() - begin);
        if (result == pcclSuccess) return result;
        printf("failed %llu %d %.1f\n", step, (int)result, now_ms() - begin);
        if (result != pcclRankConnectionLost || world_size(comm) < 2 || ++failures > 20) return result;
    }
}

static int stop_with_error(const char* what, pcclResult_t result) {
    printf("error %s %d\n", what, (int)result);
    return 1;
}

static int train(pcclComm_t* comm, unsigned long long steps) {
    pcclTensorInfo_t tensors[2] = {{"outer", &outer, PARAMETERS, pcclFloat, pcclDeviceCpu, false},
                                   {"momentum", &momentum, PARAMETERS, pcclFloat, pcclDeviceCpu, false}};
    pcclSharedState_t state = {0, 2, tensors};
    pcclResult_t result;
    const double begin = now_ms();
    double alone_since = begin;
    int synchronised = 0;
    for (int turn = 0; state.revision < steps; ++turn) {
        if (leave_requested) {
            printf("left %llu\n", (unsigned long long)state.revision);
            return 0;
        }
        /* A newcomer is already at the point after this call. */
        if (turn > 0 && (result = pcclUpdateTopology(comm)) != pcclSuccess) return stop_with_error("topology", result);
        if (world_size(comm) < 2) {
            const struct timespec pause = {0, 20000000};
            nanosleep(&pause, NULL);
            if (now_ms() - alone_since > 30000) return stop_with_error("alone", pcclTooFewPeers);
            continue;
        }
        alone_since = now_ms();
        pcclSharedStateSyncInfo_t received = {0, 0};
        result = pcclSynchronizeSharedState(comm, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, &received);
        if (result != pcclSuccess) return stop_with_error("synchronise", result);
        if (!synchronised) {
            printf("joined %llu %llu %.1f\n", (unsigned long long)state.revision, (unsigned long long)received.rx_bytes,
                   now_ms() - begin);
        } else if (received.rx_bytes != 0) {
            return stop_with_error("parity: state was received in a later step", pcclInternalError);
        }
        synchronised = 1;

        train_locally();
        const double reduce_begin = now_ms();
        result = average_gradient(comm, state.revision + 1);
        const double reduce_ms = now_ms() - reduce_begin;
        if (result == pcclSuccess)
            outer_step();
        else if (result != pcclRankConnectionLost && result != pcclTooFewPeers)
            return stop_with_error("reduce", result);
        state.revision += 1;
        printf("step %llu %.4f %016llx %d %.1f\n", (unsigned long long)state.revision, (double)held_out_loss(),
               (unsigned long long)content_hash(state.revision), world_size(comm), reduce_ms);
    }
    printf("finished %llu\n", (unsigned long long)state.revision);
    return 0;
}

int main(int argc, char** argv) {
    pcclCommCreateParams_t params = {{{inetIPv4, {{0}}, {{0}}}, 0}, 0, 0};
    unsigned a, b, c, d, port;
    if (argc != 4 || sscanf(argv[1], "%u.%u.%u.%u:%u", &a, &b, &c, &d, &port) != 5) {
        fprintf(stderr, "usage: %s IPV4:PORT STEPS SEED\n", argv[0]);
        return 2;
    }
    const uint8_t octets[4] = {(uint8_t)a, (uint8_t)b, (uint8_t)c, (uint8_t)d};
    memcpy(params.master_address.inet.ipv4.data, octets, sizeof octets);
    params.master_address.port = (uint16_t)port;
    random_state = strtoull(argv[3], NULL, 10);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    struct sigaction action = {0};
    action.sa_handler = on_terminate;
    sigaction(SIGTERM, &action, NULL);
    if (!read_texts("/usr/share/common-licenses")) return stop_with_error("no licence texts", pcclInvalidUsage);
    initialise(&outer);

    pcclComm_t* comm = NULL;
    pcclResult_t result = pcclInit();
    if (result == pcclSuccess) result = pcclCreateCommunicator(&params, &comm);
    if (result == pcclSuccess) result = pcclConnect(comm);
    const int status =
        result == pcclSuccess ? train(comm, strtoull(argv[2], NULL, 10)) : stop_with_error("connect", result);
    pcclDestroyCommunicator(comm);
    free(text);
    return status;
}
