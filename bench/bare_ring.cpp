// The peers of bare_ring.hpp: processes with one thread each. ring_peer.hpp is the ring itself.
#include "bare_ring.hpp"

#include "ring_peer.hpp"
#include "statistics.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pccl::bench {

namespace {

// The result of one peer process, in memory shared with the parent. All 0 until the peer has finished.
struct Report {
    bool completed;
    double cpu_seconds;       // of the measured iterations
    std::size_t extra_bytes;  // peak memory beyond the buffers
};

void* map_memory(std::size_t bytes, int sharing) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

double own_cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

// The whole work of one peer process: connects, runs all iterations, and writes `report` and `times_ms` (an array of
// options.iterations values). False on any failure, or if a result is wrong.
bool serve(unsigned rank, const RingOptions& options, int listener, const sockaddr_in& next_address, Report& report,
           double* times_ms) {
    const int next = ring_socket(options.congestion_control);
    if (next < 0 || connect(next, reinterpret_cast<const sockaddr*>(&next_address), sizeof next_address) != 0)
        return false;
    const int previous = accept(listener, nullptr, nullptr);
    if (previous < 0) return false;
    prepare_ring_socket(next);
    prepare_ring_socket(previous);
    const std::size_t elements = options.bytes / sizeof(float);
    auto* buffer = static_cast<float*>(map_memory(options.bytes + 4096, MAP_PRIVATE));
    auto* separate = options.in_place ? buffer : static_cast<float*>(map_memory(options.bytes + 4096, MAP_PRIVATE));
    auto* scratch = static_cast<float*>(map_memory(ring_segment_bytes, MAP_PRIVATE));
    if (buffer == nullptr || separate == nullptr || scratch == nullptr) return false;
    std::fill_n(buffer, elements, 0.0f);
    std::fill_n(separate, elements, static_cast<float>(rank + 1));
    RingPeer peer(rank, options.peers, elements, previous, next, buffer, separate, scratch);
    reset_peak_resident();
    const std::size_t before_bytes = resident_bytes();

    const unsigned total = options.warmup + options.iterations;
    const auto expected = static_cast<float>(options.peers * (options.peers + 1) / 2);
    double cpu_before = own_cpu_seconds();
    for (unsigned i = 0; i < total; ++i) {
        if (i == options.warmup) cpu_before = own_cpu_seconds();
        const std::int64_t start = monotonic_ns();
        if (!peer.run()) return false;
        if (i >= options.warmup) times_ms[i - options.warmup] = static_cast<double>(monotonic_ns() - start) * 1e-6;
        if (i == 0) {
            if (elements != 0 && (buffer[0] != expected || buffer[elements - 1] != expected)) return false;
            if (options.in_place) std::fill_n(buffer, elements, 0.0f);  // else the sums grow with each iteration
        }
    }
    report.cpu_seconds = own_cpu_seconds() - cpu_before;
    const std::size_t peak = peak_resident_bytes();
    report.extra_bytes = peak > before_bytes ? peak - before_bytes : 0;
    report.completed = true;
    return true;
}

}  // namespace

RingMeasurement measure_bare_ring(const RingOptions& options) {
    RingMeasurement result;
    if (options.peers < 2 || options.peers > 64 || options.iterations == 0) {
        result.error = "2..64 peers and at least one iteration";
        return result;
    }
    const std::size_t shared_bytes =
        options.peers * sizeof(Report) + options.iterations * sizeof(double) * options.peers;
    auto* reports = static_cast<Report*>(map_memory(shared_bytes, MAP_SHARED));
    if (reports == nullptr) {
        result.error = "out of memory";
        return result;
    }
    auto* times = reinterpret_cast<double*>(reports + options.peers);

    std::vector<int> listeners(options.peers, -1);
    std::vector<sockaddr_in> addresses(options.peers);
    bool ready = true;
    for (unsigned i = 0; i < options.peers; ++i) {
        addresses[i].sin_family = AF_INET;
        addresses[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof(sockaddr_in);
        auto* address = reinterpret_cast<sockaddr*>(&addresses[i]);
        listeners[i] = ring_socket(options.congestion_control);
        ready = ready && listeners[i] >= 0 && bind(listeners[i], address, length) == 0 &&
                listen(listeners[i], 4) == 0 && getsockname(listeners[i], address, &length) == 0;
    }
    std::vector<pid_t> children;
    for (unsigned rank = 0; ready && rank < options.peers; ++rank) {
        const pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            signal(SIGINT, SIG_DFL);
            alarm(options.timeout_seconds);
            const bool good = serve(rank, options, listeners[rank], addresses[(rank + 1) % options.peers],
                                    reports[rank], times + rank * options.iterations);
            _exit(good ? 0 : 1);
        }
        if (child < 0)
            ready = false;
        else
            children.push_back(child);
    }
    for (const int listener : listeners)
        if (listener >= 0) close(listener);
    if (!ready)
        for (const pid_t child : children) kill(child, SIGKILL);
    for (const pid_t child : children)
        while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
        }

    result.completed = ready;
    for (unsigned rank = 0; rank < options.peers; ++rank) {
        result.completed = result.completed && reports[rank].completed;
        result.cpu_seconds += reports[rank].cpu_seconds;
        result.extra_bytes = std::max(result.extra_bytes, reports[rank].extra_bytes);
    }
    if (result.completed) {
        result.times_ms.assign(times, times + options.iterations);
        std::sort(result.times_ms.begin(), result.times_ms.end());
    } else {
        result.error = ready ? "a peer failed or ran into the time limit" : "sockets or processes could not be made";
    }
    munmap(reports, shared_bytes);
    return result;
}

}  // namespace pccl::bench
