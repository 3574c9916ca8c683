/*
 * Shared by several examples: `PROGRAM IPV4:PORT STEPS`, a communicator that has joined the run of that master, and
 * three helpers. basic_loop.c shows the same in full.
 */
#ifndef PCCL_EXAMPLES_SETUP_H
#define PCCL_EXAMPLES_SETUP_H

#include <pccl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline void sleep_milliseconds(long milliseconds) {
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Returns 1 also on a lost communicator, so that loops of the kind "retry while there are others" end. */
static inline int attribute(const pcclComm_t* comm, pcclAttribute_t which) {
    int value = 1;
    return pcclGetAttribute(comm, which, &value) == pcclSuccess ? value : 1;
}

static inline int group_world(const pcclComm_t* comm) { return attribute(comm, PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE); }

/*
 * Ends the program on a wrong address or if there is no master. Returns when the members of the run have admitted us.
 */
static inline pcclComm_t* join_run(const char* address, uint32_t group) {
    unsigned a = 0, b = 0, c = 0, d = 0, port = 0;
    pcclCommCreateParams_t params;
    pcclComm_t* comm = NULL;
    memset(&params, 0, sizeof params);
    if (sscanf(address, "%u.%u.%u.%u:%u", &a, &b, &c, &d, &port) != 5 || (a | b | c | d) > 255 || port > 65535) {
        fprintf(stderr, "%s is not an IPv4 address with a port\n", address);
        exit(2);
    }
    const uint8_t octets[4] = {(uint8_t)a, (uint8_t)b, (uint8_t)c, (uint8_t)d};
    memcpy(params.master_address.inet.ipv4.data, octets, sizeof octets);
    params.master_address.inet.protocol = inetIPv4;
    params.master_address.port = (uint16_t)port;
    params.peer_group = group;
    setvbuf(stdout, NULL, _IOLBF, 0); /* line-buffered, also in a pipe */
    if (pcclInit() != pcclSuccess || pcclCreateCommunicator(&params, &comm) != pcclSuccess) exit(1);
    if (pcclConnect(comm) != pcclSuccess) {
        fprintf(stderr, "cannot join the run of %s\n", address);
        pcclDestroyCommunicator(comm);
        exit(1);
    }
    return comm;
}

static inline pcclReduceDescriptor_t average_of(size_t elements, uint64_t tag) {
    const pcclReduceDescriptor_t descriptor = {
        elements, pcclAvg, tag, {pcclFloat, pcclDistributionNone}, {pcclFloat, pcclQuantNone}};
    return descriptor;
}

/* A short hash of the content, to compare peers. */
static inline unsigned long long content_hash(const float* data, size_t count) {
    const unsigned char* bytes = (const unsigned char*)data;
    unsigned long long hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < count * sizeof *data; ++i) hash = (hash ^ bytes[i]) * 0x100000001B3u;
    return hash;
}

#endif
