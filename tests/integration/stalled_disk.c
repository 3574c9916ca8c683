// Preloaded into a master: a disk that takes writes and does not answer. fsync and fdatasync wait, without an error,
// while the file named by PCCL_TEST_STALLED_WHILE exists.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(void) {
    const char* file = getenv("PCCL_TEST_STALLED_WHILE");
    const struct timespec moment = {0, 1000000};
    while (file != NULL && access(file, F_OK) == 0) nanosleep(&moment, NULL);
}

__attribute__((visibility("default"))) int fsync(int descriptor) {
    wait_for_disk();
    int (*const next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return next(descriptor);
}

__attribute__((visibility("default"))) int fdatasync(int descriptor) {
    wait_for_disk();
    int (*const next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return next(descriptor);
}
