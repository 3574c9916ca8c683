#include "net-real/descriptors.hpp"

#include <algorithm>
#include <atomic>
#include <pthread.h>
#include <unistd.h>
#include <vector>

namespace pccl::real::descriptors {

namespace {

struct Registry {
    std::mutex mutex;
    std::vector<int> open;
    std::atomic<std::uint64_t> generation{0};
};

// Never destroyed: threads may still close sockets while the process ends.
Registry& registry() {
    static Registry* const the_one = new Registry;
    return *the_one;
}

void before_fork() { registry().mutex.lock(); }
void after_fork_in_parent() { registry().mutex.unlock(); }
void after_fork_in_child() {
    for (const int descriptor : registry().open) ::close(descriptor);
    registry().open.clear();
    registry().generation.fetch_add(1, std::memory_order_relaxed);
    registry().mutex.unlock();
}

}  // namespace

void install() {
    static const int done = [] {
        registry();
        return pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    }();
    (void)done;
}

std::uint64_t fork_generation() { return registry().generation.load(std::memory_order_relaxed); }

std::mutex& guard() { return registry().mutex; }

void track(int descriptor) { registry().open.push_back(descriptor); }

void untrack(int descriptor) {
    auto& open = registry().open;
    const auto found = std::find(open.begin(), open.end(), descriptor);
    if (found == open.end()) return;
    *found = open.back();
    open.pop_back();
}

}  // namespace pccl::real::descriptors
