// The I/O thread never waits: not for standard error, the disk, the environment's lock or callbacks of the program.
#include "local_members.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <tuple>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

using namespace integration;

namespace {

const int all_lines = setenv("PCCL_LOG_LEVEL", "TRACE", 1);

std::atomic<int> waits_of_io_threads{0};

// Called from replacements of system functions that may wait. I/O threads must not call those.
void check_thread() {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    if (std::strcmp(name, "pccl-io") == 0 || std::strcmp(name, "pccl-master") == 0) ++waits_of_io_threads;
}

// A full pipe that nobody reads, in place of standard error.
class BlockedStandardError {
public:
    BlockedStandardError() : saved_(dup(2)) {
        REQUIRE(pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) == 0);
        const std::array<char, 4096> filling{};
        while (write(ends_[1], filling.data(), filling.size()) > 0) {
        }
        fcntl(ends_[1], F_SETFL, 0);
        dup2(ends_[1], 2);
    }
    ~BlockedStandardError() {
        dup2(saved_, 2);
        close(saved_);
        for (const int end : ends_) close(end);  // lines that still wait to be written get an error
    }
    BlockedStandardError(const BlockedStandardError&) = delete;
    BlockedStandardError& operator=(const BlockedStandardError&) = delete;

private:
    std::array<int, 2> ends_{};
    int saved_;
};

void knock(std::uint16_t port) {
    const int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(stranger, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    const std::array<char, 4096> zeros{};
    REQUIRE(write(stranger, zeros.data(), zeros.size()) > 0);
    // The master closes a connection that sends invalid data.
    std::array<char, 64> answer{};
    while (read(stranger, answer.data(), answer.size()) > 0) {
    }
    close(stranger);
}

bool reduce_together(const LocalRun& run, float first, float second, std::uint64_t tag) {
    std::array<float, 2> values{first, second};
    const pcclReduceDescriptor_t descriptor = describe(1, tag);
    std::atomic<int> failures{0};
    std::thread other(
        [&] { failures += pcclAllReduce(&values[1], &values[1], &descriptor, run[1], nullptr) != pcclSuccess; });
    failures += pcclAllReduce(&values[0], &values[0], &descriptor, run[0], nullptr) != pcclSuccess;
    other.join();
    return failures == 0 && values[0] == first + second && values[1] == first + second;
}

}  // namespace

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" __attribute__((visibility("default"))) char* getenv(const char* name) noexcept {
    check_thread();
    const std::size_t length = std::strlen(name);
    for (char** at = environ; at != nullptr && *at != nullptr; ++at)
        if (std::strncmp(*at, name, length) == 0 && (*at)[length] == '=') return *at + length + 1;
    return nullptr;
}

namespace {

// The state of the disk behind posix_fallocate.
struct Disk {
    std::mutex mutex;
    std::condition_variable changed;
    bool stalls = false;
    std::atomic<int> asked{0};

    void stall(bool now) {
        const std::lock_guard lock(mutex);
        stalls = now;
        changed.notify_all();
    }
    void wait_until_asked() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return asked != 0; });
    }
};
Disk& disk = *new Disk;  // a thread that a test left behind may still return from it

}  // namespace

extern "C" __attribute__((visibility("default"))) int posix_fallocate(int file, off_t offset, off_t length) {
    check_thread();
    std::unique_lock lock(disk.mutex);
    ++disk.asked;
    disk.changed.notify_all();
    disk.changed.wait(lock, [] { return !disk.stalls; });
    return ftruncate(file, offset + length) == 0 ? 0 : errno;
}

TEST_CASE("a standard error that blocks stops neither the master nor a peer") {
    LocalRun run(1);
    {
        const BlockedStandardError blocked;
        knock(run.port());
        run.admit();
        knock(run.port());
        for (int turn = 0; turn < 20; ++turn) REQUIRE(reduce_together(run, 1, 2, 7));
        int value = 0;
        CHECK(pcclGetAttribute(run[0], PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, nullptr) == pcclInvalidArgument);
        CHECK(pcclGetAttribute(run[0], PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &value) == pcclSuccess);
        CHECK(value == 2);
    }
    REQUIRE(reduce_together(run, 3, 4, 8));
    CHECK(waits_of_io_threads == 0);
}

namespace {

// Reductions of two members. On each member the callback of one reduction launches the next one.
struct Chain {
    pcclComm_t* comm = nullptr;
    std::array<float, 3> values{};
    std::uint64_t left = 0;
    std::promise<void> ended;
    std::atomic<int> failures{0};

    void launch() {
        values.fill(1);
        const pcclReduceDescriptor_t descriptor = describe(values.size(), left);
        pcclAsyncReduceOp_t handle{};
        if (pcclAllReduceAsync(values.data(), values.data(), &descriptor, comm, &handle) == pcclSuccess &&
            pcclAwaitAsyncReduceThen(&handle, &Chain::reduced, this) == pcclSuccess)
            return;
        ++failures;
        ended.set_value();
    }
    static void reduced(pcclResult_t result, const pcclReduceInfo_t*, const char*, void* user) {
        auto& self = *static_cast<Chain*>(user);
        if (result != pcclSuccess || self.values != std::array<float, 3>{2, 2, 2}) ++self.failures;
        // Calls that need the I/O thread or the network.
        std::array<char, 4096> text{};
        if (pcclGetStats(self.comm, text.data(), text.size(), nullptr) != pcclSuccess ||
            std::strstr(text.data(), "\"connects\":1") == nullptr)
            ++self.failures;
        int world = 0;
        if (pcclGetAttribute(self.comm, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &world) != pcclSuccess || world != 2)
            ++self.failures;
        bool pending = true;
        if (pcclArePeersPending(self.comm, &pending) != pcclSuccess || pending) ++self.failures;
        if (--self.left != 0)
            self.launch();
        else
            self.ended.set_value();
    }
};

struct Counted {
    std::atomic<int> calls{0};
    pcclComm_t* to_destroy = nullptr;
    pcclResult_t destroyed = pcclInternalError;
    pcclResult_t result = pcclSuccess;  // of the last call
    std::mutex mutex;
    std::condition_variable changed;

    static void called(pcclResult_t outcome, const pcclReduceInfo_t*, const char*, void* user) {
        auto& self = *static_cast<Counted*>(user);
        if (pcclComm_t* comm = std::exchange(self.to_destroy, nullptr)) self.destroyed = pcclDestroyCommunicator(comm);
        const std::lock_guard lock(self.mutex);
        ++self.calls;
        self.result = outcome;
        self.changed.notify_all();
    }
    bool reached(int count) {
        std::unique_lock lock(mutex);
        return changed.wait_for(lock, std::chrono::seconds(60), [&] { return calls == count; });
    }
};

}  // namespace

TEST_CASE("a callback launches the next reduction, reads counters and votes") {
    LocalRun run(2);
    std::array<Chain, 2> chains;
    for (std::size_t i = 0; i < chains.size(); ++i) {
        chains[i].comm = run[i];
        chains[i].left = 50;
        chains[i].launch();
    }
    for (Chain& chain : chains) {
        auto ended = chain.ended.get_future();
        REQUIRE(ended.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
        CHECK(chain.failures == 0);
        CHECK(chain.left == 0);
    }
    CHECK(waits_of_io_threads == 0);
}

TEST_CASE("a callback that does not return holds up no reduction") {
    // The callback may use them until the run has ended.
    std::promise<void> release;
    std::shared_future<void> released = release.get_future().share();
    LocalRun run(2);
    std::array<float, 2> values{1, 2};
    const pcclReduceDescriptor_t descriptor = describe(1, 3);
    std::thread other([&] { pcclAllReduce(&values[1], &values[1], &descriptor, run[1], nullptr); });
    pcclAsyncReduceOp_t handle{};
    REQUIRE(pcclAllReduceAsync(&values[0], &values[0], &descriptor, run[0], &handle) == pcclSuccess);
    REQUIRE(pcclAwaitAsyncReduceThen(
                &handle,
                [](pcclResult_t, const pcclReduceInfo_t*, const char*, void* user) {
                    static_cast<std::shared_future<void>*>(user)->wait();
                },
                &released) == pcclSuccess);
    other.join();
    for (int turn = 0; turn < 5; ++turn) REQUIRE(reduce_together(run, 5, 6, 9));
    release.set_value();
}

TEST_CASE("a callback destroys its communicator, and each of the others is still called once") {
    LocalRun run(2);
    pcclComm_t* const victim = run.take(1);
    Counted counted;
    std::array<float, 4> values{1, 2, 3, 4};
    // The other member takes no part, so only the end of the communicator completes these.
    for (std::size_t i = 0; i < values.size(); ++i) {
        const pcclReduceDescriptor_t descriptor = describe(1, 20 + i);
        pcclAsyncReduceOp_t handle{};
        REQUIRE(pcclAllReduceAsync(&values[i], &values[i], &descriptor, victim, &handle) == pcclSuccess);
        REQUIRE(pcclAwaitAsyncReduceThen(&handle, &Counted::called, &counted) == pcclSuccess);
    }
    counted.to_destroy = victim;
    CHECK(pcclAbort(victim) == pcclSuccess);
    CHECK(counted.reached(4));
    CHECK(counted.destroyed == pcclSuccess);
    CHECK(values == std::array<float, 4>{1, 2, 3, 4});
    CHECK(pcclAbort(victim) == pcclInvalidArgument);
}

TEST_CASE("destroy returns when every callback has run") {
    LocalRun run(2);
    pcclComm_t* const victim = run.take(1);
    Counted counted;
    std::array<float, 8> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
        const pcclReduceDescriptor_t descriptor = describe(1, 20 + i);
        pcclAsyncReduceOp_t handle{};
        REQUIRE(pcclAllReduceAsync(&values[i], &values[i], &descriptor, victim, &handle) == pcclSuccess);
        REQUIRE(pcclAwaitAsyncReduceThen(&handle, &Counted::called, &counted) == pcclSuccess);
    }
    CHECK(pcclDestroyCommunicator(victim) == pcclSuccess);
    CHECK(counted.calls == 8);
}

TEST_CASE("a disk that stalls fails the synchronization, removes nobody and stops no I/O thread") {
    pcclCommConfig_t config = PCCL_COMM_CONFIG_INIT;
    config.peer_timeout_ms = 2000;
    const Variable no_memory("PCCL_MAX_STAGING_BYTES", "0");
    LocalRun run(2, &config);
    std::array<std::vector<float>, 2> weights{std::vector<float>(100'000, 1.0f), std::vector<float>(100'000, 0.0f)};
    const auto synchronize = [&](std::size_t member) {
        pcclTensorInfo_t tensor{"weights", weights[member].data(), weights[member].size(),
                                pcclFloat, pcclDeviceCpu,          false};
        pcclSharedState_t state{};
        state.count = 1;
        state.infos = &tensor;
        return pcclSynchronizeSharedState(run[member], &state,
                                          member == 0 ? PCCL_SHARED_STATE_SYNC_STRATEGY_SEND_ONLY
                                                      : PCCL_SHARED_STATE_SYNC_STRATEGY_RECEIVE_ONLY,
                                          nullptr);
    };
    const auto together = [&] {
        auto first = std::async(std::launch::async, [&] { return synchronize(0); });
        const pcclResult_t second = synchronize(1);
        return std::array{first.get(), second};
    };
    disk.asked = 0;
    disk.stall(true);
    std::thread watcher([&] {
        disk.wait_until_asked();
        // The I/O thread that receives answers this, so it does not wait for the disk.
        std::array<char, 4096> text{};
        CHECK(pcclGetStats(run[1], text.data(), text.size(), nullptr) == pcclSuccess);
        CHECK(std::strstr(text.data(), "\"connects\":1") != nullptr);
    });
    const auto failed = together();
    watcher.join();
    CHECK(failed[0] != pcclSuccess);
    CHECK(failed[1] != pcclSuccess);
    CHECK(std::string(pcclGetLastErrorMessage(run[1])).find("disk space") != std::string::npos);
    CHECK(weights[1] == std::vector<float>(100'000, 0.0f));
    for (std::size_t member = 0; member < 2; ++member) {
        int world = 0;
        CHECK(pcclGetAttribute(run[member], PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &world) == pcclSuccess);
        CHECK(world == 2);
    }
    // At most two files are started (abandoned_stagings_max), however often it is retried: each leaves a thread behind.
    for (int again = 0; again < 3; ++again) CHECK(together()[1] != pcclSuccess);
    CHECK(disk.asked == 2);
    disk.stall(false);
    auto done = together();
    for (int again = 0; again < 1000 && done[1] != pcclSuccess; ++again) done = together();  // until those have ended
    CHECK(done == std::array{pcclSuccess, pcclSuccess});
    CHECK(weights[1] == weights[0]);
    CHECK(waits_of_io_threads == 0);
}

TEST_CASE("a communicator is destroyed while the disk stalls") {
    const Variable no_memory("PCCL_MAX_STAGING_BYTES", "0");
    LocalRun run(2);
    const std::array comms{run[0], run[1]};
    std::array<pcclResult_t, 2> results{};
    std::array<float, 2> weights{1, 0};
    disk.asked = 0;
    disk.stall(true);
    std::vector<std::thread> threads;
    for (std::size_t member = 0; member < 2; ++member) {
        threads.emplace_back([&, member] {
            pcclTensorInfo_t tensor{"weights", &weights[member], 1, pcclFloat, pcclDeviceCpu, false};
            pcclSharedState_t state{};
            state.count = 1;
            state.infos = &tensor;
            results[member] = pcclSynchronizeSharedState(comms[member], &state,
                                                         PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, nullptr);
        });
    }
    disk.wait_until_asked();
    CHECK(pcclDestroyCommunicator(run.take(1)) == pcclSuccess);
    CHECK(pcclDestroyCommunicator(run.take(0)) == pcclSuccess);
    for (std::thread& thread : threads) thread.join();
    CHECK(results[1] != pcclSuccess);
    CHECK(weights == std::array<float, 2>{1, 0});
    disk.stall(false);
}

TEST_CASE("the time-out of the master's run is that of every connection") {
    const auto master = [] {
        const Variable longer("PCCL_PEER_TIMEOUT_MS", "120000");
        return std::make_unique<LocalMaster>();
    }();
    // Whether all connections have it, and how many there are. One that is not open yet (TLS) gets it then.
    const auto look = [] {
        int connections = 0;
        bool all = true;
        for (int descriptor = 3; descriptor < 256; ++descriptor) {
            sockaddr_storage remote{};
            socklen_t length = sizeof remote;
            unsigned int timeout_ms = 0;
            socklen_t size = sizeof timeout_ms;
            if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&remote), &length) != 0 ||
                remote.ss_family == AF_UNIX ||
                getsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, &size) != 0)
                continue;
            ++connections;
            all = all && timeout_ms == 240'000;
        }
        return std::pair{connections, all};
    };
    LocalRun run(2, nullptr, master->port());
    REQUIRE(reduce_together(run, 1, 2, 7));
    const auto hang_guard = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    auto [connections, all] = look();
    while (!all && std::chrono::steady_clock::now() < hang_guard) {
        std::this_thread::yield();
        std::tie(connections, all) = look();
    }
    CHECK(all);
    CHECK(connections >= 4);  // at least both ends of the control links
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Sanitizers have their own allocators and copies.

namespace {

constexpr std::size_t large_copy = 4u << 20;
std::atomic<bool> copies_are_slow{false};
std::atomic<int> slow_copies{0};
std::atomic<bool> workers_have_no_memory{false};
std::atomic<bool> io_threads_have_no_memory{false};
thread_local int allocations_left = -1;  // of this thread; -1: no limit

bool this_thread_is(const char* other) {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    return std::strcmp(name, other) == 0;
}

bool on_worker() { return this_thread_is("pccl-work"); }

}  // namespace

extern "C" __attribute__((visibility("default"))) void* memmove(void* target, const void* source, std::size_t length) {
    // Each large copy ends with up to two pages that are copied by this function.
    if (length >= 4096 && copies_are_slow && on_worker()) {
        // The first one of each worker takes longer than a caller waits for an end without an answer.
        timespec memory{slow_copies++ < 4 ? 2 : 0, 500'000'000};
        nanosleep(&memory, nullptr);
    }
    auto* to = static_cast<volatile unsigned char*>(target);
    const auto* from = static_cast<const volatile unsigned char*>(source);
    if (to <= from) {
        for (std::size_t i = 0; i < length; ++i) to[i] = from[i];
    } else {
        for (std::size_t i = length; i != 0; --i) to[i - 1] = from[i - 1];
    }
    return target;
}

__attribute__((noinline)) void* operator new(std::size_t size) {
    if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
    if (workers_have_no_memory && on_worker()) throw std::bad_alloc();
    if (io_threads_have_no_memory && this_thread_is("pccl-io")) throw std::bad_alloc();
    if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
    throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

TEST_CASE("a communicator that ends while a large result is copied leaves all of it, or the input") {
    LocalRun run(2);
    constexpr std::size_t count = 8 * large_copy / sizeof(float);
    std::vector<float> mine(count, 1.0f), other(count, 2.0f), result(count);
    const pcclReduceDescriptor_t descriptor = describe(count, 5);
    slow_copies = 0;
    copies_are_slow = true;
    pcclResult_t reduced = pcclInternalError;
    std::thread partner([&] { pcclAllReduce(other.data(), result.data(), &descriptor, run[1], nullptr); });
    std::thread reducer(
        [&, comm = run[0]] { reduced = pcclAllReduce(mine.data(), mine.data(), &descriptor, comm, nullptr); });
    while (slow_copies == 0) std::this_thread::yield();  // the result is decided now
    SECTION("destroyed") { CHECK(pcclDestroyCommunicator(run.take(0)) == pcclSuccess); }
    SECTION("aborted") { CHECK(pcclAbort(run[0]) == pcclSuccess); }
    reducer.join();
    partner.join();
    copies_are_slow = false;
    CHECK(reduced == pcclSuccess);
    CHECK((mine == std::vector<float>(count, 3.0f)));  // not as an expression of Catch, whose text would be long
}

TEST_CASE("a call that runs out of memory fails, and what was launched can still be awaited") {
    LocalRun run(2);
    for (int turn = 0; turn < 60; ++turn) {
        std::array<float, 2> values{1, 2};
        const auto tag = static_cast<std::uint64_t>(turn);
        const pcclReduceDescriptor_t descriptor = describe(1, tag);
        std::thread other(
            [&] { CHECK(pcclAllReduce(&values[1], &values[1], &descriptor, run[1], nullptr) == pcclSuccess); });
        pcclAsyncReduceOp_t handle{};
        allocations_left = turn / 2;
        pcclResult_t result = pcclAllReduceAsync(&values[0], &values[0], &descriptor, run[0], &handle);
        allocations_left = -1;
        if (result != pcclSuccess) {
            CHECK(result == pcclInternalError);
            result = pcclAllReduceAsync(&values[0], &values[0], &descriptor, run[0], &handle);
        }
        REQUIRE(result == pcclSuccess);
        if (turn % 2 == 0) {
            allocations_left = turn / 2;
            result = pcclAwaitAsyncReduce(&handle, nullptr);
            allocations_left = -1;
            if (result == pcclInternalError) result = pcclAwaitAsyncReduce(&handle, nullptr);
        } else {
            Counted counted;
            allocations_left = turn / 2;
            result = pcclAwaitAsyncReduceThen(&handle, &Counted::called, &counted);
            allocations_left = -1;
            if (result == pcclInternalError) result = pcclAwaitAsyncReduceThen(&handle, &Counted::called, &counted);
            CHECK(counted.reached(1));
        }
        CHECK(result == pcclSuccess);
        other.join();
        CHECK(values == std::array<float, 2>{3, 3});
    }
}

TEST_CASE("callbacks are called although the I/O thread has no memory") {
    LocalRun run(2);
    float value = 1;
    const pcclReduceDescriptor_t descriptor = describe(1, 1);
    pcclAsyncReduceOp_t handle{};
    REQUIRE(pcclAllReduceAsync(&value, &value, &descriptor, run[0], &handle) == pcclSuccess);
    Counted counted;
    REQUIRE(pcclAwaitAsyncReduceThen(&handle, &Counted::called, &counted) == pcclSuccess);
    io_threads_have_no_memory = true;
    bool pending = false;
    CHECK(pcclArePeersPending(run[0], &pending) == pcclInternalError);
    CHECK(counted.reached(1));
    io_threads_have_no_memory = false;
    CHECK(counted.result == pcclInternalError);
}

TEST_CASE("workers without memory still hash and copy") {
    LocalRun run(2);
    constexpr std::size_t count = 16u << 20;
    std::vector<float> first(count, 1.0f), second(count, 2.0f);
    const pcclReduceDescriptor_t descriptor = describe(count, 5);
    workers_have_no_memory = true;
    std::thread other([&] { pcclAllReduce(second.data(), second.data(), &descriptor, run[1], nullptr); });
    CHECK(pcclAllReduce(first.data(), first.data(), &descriptor, run[0], nullptr) == pcclSuccess);
    other.join();
    workers_have_no_memory = false;
    CHECK(first == std::vector<float>(count, 3.0f));
    CHECK(second == first);
}
#endif
