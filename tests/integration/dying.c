// See dying.h. Also preloaded into masters: then PCCL_TEST_DIE_AFTER_BYTES or PCCL_TEST_DIE_AFTER_JOURNAL_BYTES arms it
// before the first byte.
#define _GNU_SOURCE
#include "dying.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

enum { parts_max = 64 };

struct Counter {
    atomic_ullong moved;   // bytes so far
    atomic_ullong deadly;  // the process ends when `moved` reaches it
};
static struct Counter network = {0, UINT64_MAX}, journal = {0, UINT64_MAX};

static void arm_from_environment(struct Counter* counter, const char* variable) {
    const char* text = getenv(variable);
    if (text != NULL) atomic_store(&counter->deadly, strtoull(text, NULL, 10));
}

__attribute__((constructor)) static void arm(void) {
    arm_from_environment(&network, "PCCL_TEST_DIE_AFTER_BYTES");
    arm_from_environment(&journal, "PCCL_TEST_DIE_AFTER_JOURNAL_BYTES");
}

SHOWN uint64_t bytes_moved(void) { return atomic_load(&network.moved); }

SHOWN void die_after(uint64_t bytes) { atomic_store(&network.deadly, atomic_load(&network.moved) + bytes); }

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

// How many of these bytes may move before the end. At least one, unless that end is now.
static size_t before_the_end(struct Counter* counter, size_t bytes) {
    const uint64_t now = atomic_load(&counter->moved), end = atomic_load(&counter->deadly);
    if (now >= end) die();
    return end - now < bytes ? (size_t)(end - now) : bytes;
}

static ssize_t count(struct Counter* counter, ssize_t result) {
    if (result <= 0) return result;
    const uint64_t bytes = (uint64_t)result;
    if (atomic_fetch_add(&counter->moved, bytes) + bytes >= atomic_load(&counter->deadly)) die();
    return result;
}

// The same message, cut to what may still move. Its parts are copied to `parts` if they have to be changed.
static struct msghdr cut(const struct msghdr* message, struct iovec* parts) {
    struct msghdr shorter = *message;
    size_t bytes = 0;
    for (size_t i = 0; i < message->msg_iovlen; ++i) bytes += message->msg_iov[i].iov_len;
    const size_t allowed = bytes == 0 ? 0 : before_the_end(&network, bytes);
    if (allowed == bytes || message->msg_iovlen > parts_max) return shorter;
    memcpy(parts, message->msg_iov, message->msg_iovlen * sizeof *parts);
    size_t left = allowed, used = 0;
    for (; left > 0; ++used) {
        if (parts[used].iov_len > left) parts[used].iov_len = left;
        left -= parts[used].iov_len;
    }
    shorter.msg_iov = parts;
    shorter.msg_iovlen = used;
    return shorter;
}

// The function of the system library that has this name.
static void* next_of(_Atomic(void*)* known, const char* name) {
    void* next = atomic_load(known);
    if (next == NULL) atomic_store(known, next = dlsym(RTLD_NEXT, name));
    return next;
}

SHOWN ssize_t sendmsg(int descriptor, const struct msghdr* message, int flags) {
    static _Atomic(void*) known;
    ssize_t (*const next)(int, const struct msghdr*, int) =
        (ssize_t(*)(int, const struct msghdr*, int))next_of(&known, "sendmsg");
    struct iovec parts[parts_max];
    const struct msghdr shorter = cut(message, parts);
    return count(&network, next(descriptor, &shorter, flags));
}

SHOWN ssize_t recvmsg(int descriptor, struct msghdr* message, int flags) {
    static _Atomic(void*) known;
    ssize_t (*const next)(int, struct msghdr*, int) =
        (ssize_t(*)(int, struct msghdr*, int))next_of(&known, "recvmsg");
    struct iovec parts[parts_max];
    struct msghdr shorter = cut(message, parts);
    const ssize_t result = next(descriptor, &shorter, flags);
    message->msg_flags = shorter.msg_flags;
    message->msg_controllen = shorter.msg_controllen;
    message->msg_namelen = shorter.msg_namelen;
    return flags & MSG_PEEK ? result : count(&network, result);
}

// A record of the journal may be torn. SQLite calls it by its other name.
SHOWN ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off_t offset);
SHOWN ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off_t offset) {
    static _Atomic(void*) known;
    ssize_t (*const next)(int, const void*, size_t, off_t) =
        (ssize_t(*)(int, const void*, size_t, off_t))next_of(&known, "pwrite64");
    return count(&journal, next(descriptor, bytes, size == 0 ? 0 : before_the_end(&journal, size), offset));
}
