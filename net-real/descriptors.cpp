#include "net-real/descriptors.hpp"

#include "core/base/limits.hpp"

#include <algorithm>
#include <atomic>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace pccl::real::descriptors {

namespace {

struct Registry {
    std::mutex mutex;
    std::vector<int> open;
    std::atomic<std::uint64_t> generation{0};
    std::atomic<std::uint64_t> forks{0};
};

// Never destroyed: threads may still close sockets while the process ends.
Registry& registry() {
    static Registry* const the_one = new Registry;
    return *the_one;
}

void before_fork() { registry().mutex.lock(); }
void after_fork_in_parent() {
    registry().forks.fetch_add(1, std::memory_order_relaxed);
    registry().mutex.unlock();
}
void after_fork_in_child() {
    for (const int descriptor : registry().open) ::close(descriptor);
    registry().open.clear();
    registry().generation.fetch_add(1, std::memory_order_relaxed);
    registry().mutex.unlock();
}

}  // namespace

// See make_logger() in log.cpp.
[[gnu::constructor]] void install() {
    static const int done = [] {
        registry();
        return pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    }();
    (void)done;
}

std::uint64_t forks() { return registry().forks.load(std::memory_order_relaxed); }

std::uint64_t fork_generation() { return registry().generation.load(std::memory_order_relaxed); }

std::size_t process_limit() {
    constexpr std::size_t usual = 1024;
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return usual;
    return static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_cur, 1u << 20));
}

void fit(core::Limits& limits) {
    const auto available = static_cast<std::uint32_t>(process_limit());
    limits.unregistered_links_max = std::min(limits.unregistered_links_max, std::max(available / 8, 8u));
    limits.newcomer_links_max = std::clamp(available / 2, 16u, 8192u);
}

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
