// See bare_ring.hpp. A peer sends its own part first, then what it has received, in order of arrival. In the first half
// of the steps it adds its own input to what it receives. So the next byte may leave if `sent` is less than the size of
// the own part plus `processed` (received bytes that are ready to be forwarded). These two counters drive the loop.
#include "bare_ring.hpp"

#include "statistics.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pccl::bench {

namespace {

// Received bytes are added in pieces of this size, so that they are still in the cache.
constexpr std::size_t segment_bytes = 256 * 1024;

// The result of one peer process, in memory shared with the parent. All 0 until the peer has finished.
struct Report {
    bool completed;
    double cpu_seconds;       // of the measured iterations
    std::size_t extra_bytes;  // peak memory beyond the buffers
};

// target = a + b. Adds eight floats at a time explicitly, so that the speed does not depend on the compiler's
// vectorization.
void add_arrays(float* target, const float* a, const float* b, std::size_t count) {
    typedef float Lanes __attribute__((vector_size(32)));
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        Lanes x, y;
        std::memcpy(&x, a + i, sizeof x);
        std::memcpy(&y, b + i, sizeof y);
        x += y;
        std::memcpy(target + i, &x, sizeof x);
    }
    for (; i < count; ++i) target[i] = a[i] + b[i];
}

// A range of the vector, in bytes.
struct Part {
    std::size_t begin;
    std::size_t end;
    std::size_t size() const { return end - begin; }
};

class RingPeer {
public:
    RingPeer(unsigned rank, const RingOptions& options, int previous, int next, float* buffer, const float* source,
             float* scratch)
        : rank_(rank), peers_(options.peers), elements_(options.bytes / sizeof(float)), previous_(previous),
          next_(next), target_(reinterpret_cast<char*>(buffer)), source_(reinterpret_cast<const char*>(source)),
          scratch_(reinterpret_cast<char*>(scratch)) {}

    // One all-reduce: peers - 1 steps that reduce, then peers - 1 steps that distribute the result. False if a
    // connection fails, or if nothing moves for 10 s.
    bool run() {
        const unsigned steps = 2 * (peers_ - 1);
        const std::size_t own = part(rank_).size();
        unsigned send_step = 0, receive_step = 0;
        std::size_t sent_in_step = 0, sent = 0;
        std::size_t received_in_step = 0, processed = 0;
        std::size_t gathered = 0;  // received bytes of the current segment, in scratch_, not added yet
        while (send_step < steps || receive_step < steps) {
            bool moved = false;
            if (receive_step < steps) {
                const Part incoming = part(rank_ + 2 * peers_ - 1 - receive_step);
                const bool reducing = receive_step < peers_ - 1;
                const std::size_t rest = incoming.size() - received_in_step - gathered;
                char* place = reducing ? scratch_ + gathered : target_ + incoming.begin + received_in_step;
                const std::size_t room = reducing ? std::min(rest, segment_bytes - gathered) : rest;
                const ssize_t got = room == 0 ? 0 : recv(previous_, place, room, 0);
                if (got < 0 && errno != EAGAIN && errno != EINTR) return false;
                if (got == 0 && room != 0) return false;
                if (got > 0 || room == 0) {
                    moved = true;
                    const std::size_t bytes = static_cast<std::size_t>(got);
                    std::size_t done = bytes;
                    if (reducing) {
                        gathered += bytes;
                        done = 0;
                        if (gathered == segment_bytes || received_in_step + gathered == incoming.size()) {
                            add(incoming.begin + received_in_step, gathered);
                            done = gathered;
                            gathered = 0;
                        }
                    }
                    received_in_step += done;
                    processed += done;
                    if (received_in_step == incoming.size()) {
                        ++receive_step;
                        received_in_step = 0;
                    }
                }
            }
            const std::size_t sendable = own + processed - sent;
            if (send_step < steps) {
                const Part outgoing = part(rank_ + 2 * peers_ - send_step);
                const std::size_t rest = std::min({outgoing.size() - sent_in_step, sendable, segment_bytes});
                const char* from = (send_step == 0 ? source_ : target_) + outgoing.begin + sent_in_step;
                const ssize_t put = rest == 0 ? 0 : send(next_, from, rest, MSG_NOSIGNAL);
                if (put < 0 && errno != EAGAIN && errno != EINTR) return false;
                if (put > 0) {
                    moved = true;
                    sent += static_cast<std::size_t>(put);
                    sent_in_step += static_cast<std::size_t>(put);
                }
                if (sent_in_step == outgoing.size()) {
                    moved = true;
                    ++send_step;
                    sent_in_step = 0;
                }
            }
            if (!moved && !wait(receive_step < steps, send_step < steps && own + processed > sent)) return false;
        }
        return true;
    }

private:
    Part part(unsigned index) const {
        const std::size_t i = index % peers_;
        return {elements_ * i / peers_ * sizeof(float), elements_ * (i + 1) / peers_ * sizeof(float)};
    }

    void add(std::size_t offset, std::size_t bytes) {
        auto* target = reinterpret_cast<float*>(target_ + offset);
        const auto* source = reinterpret_cast<const float*>(source_ + offset);
        const auto* incoming = reinterpret_cast<const float*>(scratch_);
        add_arrays(target, source, incoming, bytes / sizeof(float));
    }

    bool wait(bool for_input, bool for_output) {
        pollfd fds[2] = {{previous_, static_cast<short>(for_input ? POLLIN : 0), 0},
                         {next_, static_cast<short>(for_output ? POLLOUT : 0), 0}};
        return poll(fds, 2, 10'000) > 0 || errno == EINTR;
    }

    unsigned rank_, peers_;
    std::size_t elements_;
    int previous_, next_;
    char* target_;
    const char* source_;
    char* scratch_;
};

void make_fast(int socket, const std::string& congestion_control) {
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!congestion_control.empty()) {
        setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, congestion_control.data(),
                   static_cast<socklen_t>(congestion_control.size()));
    }
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
}

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
    const int next = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (next < 0 || connect(next, reinterpret_cast<const sockaddr*>(&next_address), sizeof next_address) != 0)
        return false;
    const int previous = accept(listener, nullptr, nullptr);
    if (previous < 0) return false;
    make_fast(next, options.congestion_control);
    make_fast(previous, options.congestion_control);
    const std::size_t elements = options.bytes / sizeof(float);
    auto* buffer = static_cast<float*>(map_memory(options.bytes + 4096, MAP_PRIVATE));
    auto* separate = options.in_place ? buffer : static_cast<float*>(map_memory(options.bytes + 4096, MAP_PRIVATE));
    auto* scratch = static_cast<float*>(map_memory(segment_bytes, MAP_PRIVATE));
    if (buffer == nullptr || separate == nullptr || scratch == nullptr) return false;
    std::fill_n(buffer, elements, 0.0f);
    std::fill_n(separate, elements, static_cast<float>(rank + 1));
    RingPeer peer(rank, options, previous, next, buffer, separate, scratch);
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
        listeners[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
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
