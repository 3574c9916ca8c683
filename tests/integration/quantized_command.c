/* See quantized_command.h. Uses only pccl.h, as a user's program would. */
#include "quantized_command.h"

#include "values.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

void flush_subnormals(void) {
#if defined(__SSE__)
    _mm_setcsr(_mm_getcsr() | 0x0040); /* denormals are zeros */
#endif
}

typedef struct {
    pcclDataType_t type;
    size_t count;
    char kind[16];
    unsigned members;
} contents_t;

/* A subnormal number of so many units. It is copied without arithmetic, because this thread may treat it as zero. */
static void put_units(void* data, pcclDataType_t type, uint64_t units) { memcpy(data, &units, value_bytes(type)); }

static uint64_t units_of(unsigned member) { return 6000 * (uint64_t)(member + 1); }

/* The value of `member` at `index`. */
static double input_at(const contents_t* contents, unsigned member, size_t index) {
    uint64_t mixed = (index + 1) * 0x9E3779B97F4A7C15u + member * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 29)) * 0x94D049BB133111EBu;
    const double unit = (double)(mixed >> 40) / 16777216.0; /* 0 to 1, exact in a float */
    if (strcmp(contents->kind, "constant") == 0) return 42.0 + member;
    if (strcmp(contents->kind, "negative") == 0) return -1000.0 - 100.0 * floor(unit * 1024) / 1024;
    if (strcmp(contents->kind, "nan") == 0 && index == 3 && member == 0) return (double)NAN;
    if (strcmp(contents->kind, "infinite") == 0 && index == 3) return member == 0 ? (double)INFINITY : 1.0;
    return 2 * unit - 1;
}

static void put(void* data, pcclDataType_t type, size_t index, double value) {
    const float narrow = (float)value;
    if (type == pcclFloat)
        memcpy((char*)data + 4 * index, &narrow, 4);
    else
        memcpy((char*)data + 8 * index, &value, 8);
}

static double get(const void* data, pcclDataType_t type, size_t index) {
    float narrow = 0;
    double value = 0;
    if (type == pcclFloat) {
        memcpy(&narrow, (const char*)data + 4 * index, 4);
        return narrow;
    }
    memcpy(&value, (const char*)data + 8 * index, 8);
    return value;
}

static double combine(pcclRedOp_t op, double a, double b) {
    switch (op) {
    case pcclProd: return a * b;
    case pcclMax: return a > b ? a : b;
    case pcclMin: return a < b ? a : b;
    default: return a + b;
    }
}

static double steps_of(const pcclQuantizationOptions_t* options) {
    double bits = 8;
    if (options->quantized_datatype == pcclUint4) bits = 4;
    if (options->quantized_datatype == pcclUint16 || options->quantized_datatype == pcclInt16) bits = 16;
    if (options->quantized_datatype == pcclUint32 || options->quantized_datatype == pcclInt32) bits = 32;
    if (options->quantized_datatype == pcclUint64) bits = 64;
    return options->algorithm == pcclQuantMinMax ? exp2(bits) - 1 : exp2(bits - 1) - 1;
}

static bool is_good(const contents_t* contents, const pcclReduceDescriptor_t* descriptor, const void* result) {
    const double unit = contents->type == pcclFloat ? exp2(-23) : exp2(-52);
    const bool spoilt = strcmp(contents->kind, "nan") == 0 || strcmp(contents->kind, "infinite") == 0;
    double lowest = 0, highest = 0;
    for (unsigned member = 0; member < contents->members; ++member) {
        for (size_t i = 0; i < contents->count; ++i) {
            const double value = input_at(contents, member, i);
            if (!isfinite(value)) continue;
            if ((member == 0 && i == 0) || value < lowest) lowest = value;
            if ((member == 0 && i == 0) || value > highest) highest = value;
        }
    }
    /*
     * The spread of sums is at most that of `members` inputs. For these contents, other operations spread no farther.
     */
    const bool is_subnormal = strcmp(contents->kind, "subnormal") == 0;
    const bool is_constant = strcmp(contents->kind, "constant") == 0 || is_subnormal;
    const double spread = is_constant ? 0 : (highest - lowest) * contents->members;
    double bound = 0;
    for (unsigned hop = 0; hop < contents->members; ++hop)
        bound += (spread + 2 * bound) / steps_of(&descriptor->quantization_options) / 2;
    bound += 16 * unit * contents->members * fmax(fabs(lowest), fabs(highest)) * contents->members;
    for (size_t i = 0; i < contents->count; ++i) {
        double exact = input_at(contents, 0, i);
        for (unsigned member = 1; member < contents->members; ++member)
            exact = combine(descriptor->op, exact, input_at(contents, member, i));
        if (descriptor->op == pcclAvg) exact /= contents->members;
        const double got = get(result, contents->type, i);
        if (is_constant) {
            unsigned char expected[8];
            put(expected, contents->type, 0, exact);
            if (is_subnormal) {
                uint64_t units = 0;
                for (unsigned member = 0; member < contents->members; ++member) units += units_of(member);
                put_units(expected, contents->type, descriptor->op == pcclAvg ? units / contents->members : units);
            }
            const size_t bytes = value_bytes(contents->type);
            if (memcmp(expected, (const char*)result + i * bytes, bytes) != 0) return false;
        } else if (spoilt && isnan(got)) {
            /* In the block of the element that is not finite. */
        } else if (spoilt && i == 3) {
            return false;
        } else if (!(fabs(got - exact) <= bound)) {
            fprintf(stderr, "element %zu is %.17g, exact %.17g, bound %.3g\n", i, got, exact, bound);
            return false;
        }
    }
    return true;
}

void do_quantized(pcclComm_t* comm, const char* arguments) {
    pcclReduceDescriptor_t descriptor;
    contents_t contents;
    memset(&descriptor, 0, sizeof descriptor);
    memset(&contents, 0, sizeof contents);
    int type = 0, algorithm = 0, codes = 0, hint = 0, op = 0;
    unsigned member = 0;
    char place[8];
    if (sscanf(arguments, "%d %zu %" SCNu64 " %7s %d %d %d %d %15s %u %u", &type, &contents.count, &descriptor.tag,
               place, &algorithm, &codes, &hint, &op, contents.kind, &member, &contents.members) != 11) {
        fprintf(stderr, "bad arguments: %s\n", arguments);
        exit(3);
    }
    contents.type = (pcclDataType_t)type;
    descriptor.count = contents.count;
    descriptor.op = (pcclRedOp_t)op;
    descriptor.src_descriptor.datatype = contents.type;
    descriptor.src_descriptor.distribution_hint = (pcclDistributionHint_t)hint;
    descriptor.quantization_options.algorithm = (pcclQuantizationAlgorithm_t)algorithm;
    descriptor.quantization_options.quantized_datatype = (pcclDataType_t)codes;
    const size_t bytes = contents.count * value_bytes(contents.type);
    unsigned char* before = malloc(bytes + 1);
    unsigned char* send = malloc(bytes + 1);
    unsigned char* receive = strcmp(place, "in") == 0 ? send : calloc(bytes + 1, 1);
    if (contents.type == pcclFloat || contents.type == pcclDouble) {
        for (size_t i = 0; i < contents.count; ++i) {
            if (strcmp(contents.kind, "subnormal") == 0)
                put_units(send + i * value_bytes(contents.type), contents.type, units_of(member));
            else
                put(send, contents.type, i, input_at(&contents, member, i));
        }
    } else {
        memset(send, 0, bytes);
    }
    memcpy(before, send, bytes);
    pcclReduceInfo_t info;
    memset(&info, 0, sizeof info);
    const pcclResult_t result = pcclAllReduce(send, receive, &descriptor, comm, &info);
    const bool intact = (send == receive && result == pcclSuccess) || memcmp(before, send, bytes) == 0;
    const bool good = result == pcclSuccess && is_good(&contents, &descriptor, receive);
    printf("quantized %d %" PRIu64 " %" PRIu64 " %d %d %016" PRIx64 "\n", (int)result, info.tx_bytes, info.rx_bytes,
           good, intact, value_hash(receive, bytes));
    if (receive != send) free(receive);
    free(send);
    free(before);
}
