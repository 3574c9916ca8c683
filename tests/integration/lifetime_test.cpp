// Communicators and masters inside one process over their whole life: destroyed in every state, made ten thousand
// times, used by other threads than the one that connected, several runs side by side, and a fork in the middle.
#include "local_run.hpp"
#include "process.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include <malloc.h>
#include <sys/wait.h>

using namespace integration;

namespace {

const int ports_are_free = setenv("PCCL_PORT_RANGE", "0", 1);
constexpr auto popular = PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR;

pcclComm_t* make(std::uint16_t port, std::uint32_t group = 0) {
    pcclInit();
    pcclComm_t* comm = nullptr;
    const pcclCommCreateParams_t params = params_for(port, group);
    REQUIRE(pcclCreateCommunicator(&params, &comm) == pcclSuccess);
    return comm;
}

// Runs one function per communicator, each on a thread of its own, and counts failures.
int on_threads(const std::vector<std::function<bool()>>& functions) {
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (const auto& function : functions) {
        threads.emplace_back([&failures, &function] {
            if (!function()) ++failures;
        });
    }
    for (std::thread& thread : threads) thread.join();
    return failures;
}

void join(const std::vector<pcclComm_t*>& members, pcclComm_t* newcomer) {
    std::vector<std::function<bool()>> functions{[&] { return pcclConnect(newcomer) == pcclSuccess; }};
    for (pcclComm_t* member : members) {
        functions.push_back([member] {
            for (bool pending = false; !pending;)
                if (pcclArePeersPending(member, &pending) != pcclSuccess) return false;
            return pcclUpdateTopology(member) == pcclSuccess;
        });
    }
    REQUIRE(on_threads(functions) == 0);
}

void join_pair(pcclComm_t* first, pcclComm_t* second, bool first_is_in = false) {
    if (!first_is_in) REQUIRE(pcclConnect(first) == pcclSuccess);
    join({first}, second);
}

pcclResult_t synchronize(pcclComm_t* comm, std::uint64_t revision, float& content) {
    pcclTensorInfo_t info{};
    info.name = "w";
    info.data = &content;
    info.count = 1;
    info.datatype = pcclFloat;
    pcclSharedState_t state{};
    state.revision = revision;
    state.count = 1;
    state.infos = &info;
    return pcclSynchronizeSharedState(comm, &state, popular, nullptr);
}

std::size_t entries_of(const char* directory) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        (void)entry;
        ++count;
    }
    return count;
}

std::size_t open_sockets() {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        if (std::filesystem::read_symlink(entry.path(), gone).string().rfind("socket:", 0) == 0) ++count;
    }
    return count;
}

// The descriptors and threads of this process. Equal before and after means that nothing was left behind.
struct Holdings {
    std::size_t descriptors = entries_of("/proc/self/fd");
    std::size_t threads = entries_of("/proc/self/task");
    friend bool operator==(const Holdings&, const Holdings&) = default;
};

// Counts all arenas. The sanitizers' allocators do not show here; they look for leaks themselves.
std::size_t bytes_in_use() { return mallinfo2().uordblks; }

// Destroys it for good: a second destroy is an error, not a crash.
void expect_destroyed(pcclComm_t* comm) {
    CHECK(pcclDestroyCommunicator(comm) == pcclSuccess);
    CapturedLog silent;
    CHECK(pcclDestroyCommunicator(comm) == pcclInvalidArgument);
}

}  // namespace

TEST_CASE("a communicator may be destroyed in every state and leaves no thread and no descriptor") {
    setenv("PCCL_MASTER_TIMEOUT_MS", "300", 1);
    CapturedLog silent;
    expect_destroyed(make(1));  // what the first communicator sets up for good exists now
    std::thread([] {}).join();  // and what a sanitizer sets up with the first thread
    const Holdings before;
    {
        pcclComm_t* nobody_there = make(1);
        CHECK(pcclConnect(nobody_there) == pcclMasterConnectionFailed);
        expect_destroyed(nobody_there);
    }
    {
        LocalMaster master;
        pcclComm_t* alone = make(master.port());
        REQUIRE(pcclConnect(alone) == pcclSuccess);
        expect_destroyed(alone);

        float content = 1;
        pcclComm_t* stays = make(master.port());
        pcclComm_t* removed = make(master.port());
        join_pair(stays, removed);
        for (const std::uint64_t jump : {0, 6}) {
            float other = 1;
            const pcclResult_t expected = jump == 0 ? pcclSuccess : pcclInvalidUsage;
            CHECK(on_threads({[&] { return synchronize(stays, jump == 0 ? 0 : 1, content) == pcclSuccess; },
                              [&] { return synchronize(removed, jump == 0 ? 0 : 1 + jump, other) == expected; }}) == 0);
        }
        join_pair(stays, removed, true);  // lost, then admitted again
        expect_destroyed(removed);
        CHECK(pcclUpdateTopology(stays) == pcclSuccess);
        expect_destroyed(stays);
    }
    {
        auto master = std::make_unique<LocalMaster>();
        pcclComm_t* orphan = make(master->port());
        REQUIRE(pcclConnect(orphan) == pcclSuccess);
        master.reset();
        CHECK(pcclUpdateTopology(orphan) == pcclUpdateTopologyFailed);
        expect_destroyed(orphan);
    }
    unsetenv("PCCL_MASTER_TIMEOUT_MS");
    CHECK(Holdings() == before);
}

TEST_CASE("ten thousand communicators and masters made and destroyed leave no thread, no descriptor and no byte") {
    const auto turns = [](int count) {
        for (int turn = 0; turn < count; ++turn) {
            pcclMasterInstance_t* master = nullptr;
            pcclComm_t* comm = make(1, static_cast<std::uint32_t>(turn));
            REQUIRE(pcclCreateMaster(loopback(0), &master) == pcclSuccess);
            REQUIRE(pcclDestroyCommunicator(comm) == pcclSuccess);
            REQUIRE(pcclDestroyMaster(master) == pcclSuccess);
        }
    };
    turns(1000);
    const Holdings before;
    const std::size_t bytes = bytes_in_use();
    turns(10'000);
    CHECK(Holdings() == before);
    CHECK(bytes_in_use() < bytes + 10'000);  // less than one byte per turn
}

TEST_CASE("hundreds of communicators connected and destroyed leave no thread, no descriptor and no byte") {
    const MasterProcess master;  // in another process: within limits, a master remembers which peers have left
    const auto turns = [&](int count) {
        for (int turn = 0; turn < count; ++turn) {
            pcclComm_t* comm = make(master.port());
            REQUIRE(pcclConnect(comm) == pcclSuccess);
            REQUIRE(pcclDestroyCommunicator(comm) == pcclSuccess);
        }
    };
    turns(100);
    const Holdings before;
    const std::size_t bytes = bytes_in_use();
    turns(300);
    CHECK(Holdings() == before);
    CHECK(bytes_in_use() < bytes + 3'000);  // less than ten bytes per turn
}

TEST_CASE("one thread launches, another one awaits in another order, a third one pumps votes") {
    LocalMaster master;
    pcclComm_t* const first = make(master.port());
    pcclComm_t* const second = make(master.port());
    join_pair(first, second);
    constexpr std::size_t tags = 48;  // more than run at a time
    std::array<std::vector<std::vector<float>>, 2> data;
    std::array<std::vector<pcclAsyncReduceOp_t>, 2> handles;
    std::array<std::array<std::atomic<bool>, tags>, 2> launched{};
    std::vector<std::function<bool()>> functions;
    for (std::size_t side = 0; side < 2; ++side) {
        pcclComm_t* const comm = side == 0 ? first : second;
        handles[side].resize(tags);
        for (std::size_t tag = 0; tag < tags; ++tag)
            data[side].emplace_back(1000 + 700 * tag, static_cast<float>(tag + side));
        functions.push_back([&, side, comm] {
            for (std::size_t i = 0; i < tags; ++i) {
                const std::size_t tag = side == 0 ? i : tags - 1 - i;
                std::vector<float>& buffer = data[side][tag];
                const pcclReduceDescriptor_t descriptor = describe(buffer.size(), tag);
                if (pcclAllReduceAsync(buffer.data(), buffer.data(), &descriptor, comm, &handles[side][tag]) !=
                    pcclSuccess)
                    return false;
                launched[side][tag] = true;
            }
            return true;
        });
        functions.push_back([&, side] {
            for (std::size_t i = 0; i < tags; ++i) {
                const std::size_t tag = (i * 29 + 7 * side) % tags;  // neither of the two launch orders
                while (!launched[side][tag]) std::this_thread::yield();
                if (pcclAwaitAsyncReduce(&handles[side][tag], nullptr) != pcclSuccess) return false;
            }
            return true;
        });
        functions.push_back([comm] {
            for (int turn = 0; turn < 20; ++turn) {
                bool pending = true;
                if (pcclArePeersPending(comm, &pending) != pcclSuccess || pending) return false;
            }
            return true;
        });
    }
    CHECK(on_threads(functions) == 0);
    CHECK(data[0] == data[1]);
    for (std::size_t tag = 0; tag < tags; ++tag)
        CHECK(data[0][tag] == std::vector<float>(1000 + 700 * tag, static_cast<float>(2 * tag + 1)));
    CHECK(pcclDestroyCommunicator(first) == pcclSuccess);
    CHECK(pcclDestroyCommunicator(second) == pcclSuccess);
}

TEST_CASE("one thread launches while another one waits for what the other member launches only after that") {
    LocalMaster master;
    pcclComm_t* const first = make(master.port());
    pcclComm_t* const second = make(master.port());
    join_pair(first, second);
    constexpr std::uint64_t turns = 50;
    std::atomic<std::uint64_t> waiting{0}, launched{0};
    const auto wait_for = [](const std::atomic<std::uint64_t>& counter, std::uint64_t value) {
        while (counter < value) std::this_thread::yield();
    };
    std::vector<float> early(turns, 1), late(turns, 1);
    const auto launch = [&](float& value, std::uint64_t tag) {
        const pcclReduceDescriptor_t descriptor = describe(1, tag);
        pcclAsyncReduceOp_t handle{};
        return pcclAllReduceAsync(&value, &value, &descriptor, first, &handle) == pcclSuccess;
    };
    const auto await = [&](std::uint64_t tag) {
        const pcclAsyncReduceOp_t handle{first, tag};
        return pcclAwaitAsyncReduce(&handle, nullptr) == pcclSuccess;
    };
    CHECK(on_threads({[&] {
                          for (std::uint64_t turn = 0; turn < turns; ++turn) {
                              if (!launch(early[turn], 2 * turn)) return false;
                              launched = 2 * turn + 1;
                              wait_for(waiting, turn + 1);
                              if (!launch(late[turn], 2 * turn + 1)) return false;
                              launched = 2 * turn + 2;
                          }
                          return true;
                      },
                      [&] {
                          for (std::uint64_t turn = 0; turn < turns; ++turn) {
                              wait_for(launched, 2 * turn + 1);
                              waiting = turn + 1;
                              if (!await(2 * turn) || !await(2 * turn + 1)) return false;
                          }
                          return true;
                      },
                      [&] {
                          for (std::uint64_t tag = 0; tag < 2 * turns; ++tag) {
                              wait_for(launched, tag / 2 * 2 + 2);
                              float value = 2;
                              const pcclReduceDescriptor_t descriptor = describe(1, tag);
                              if (pcclAllReduce(&value, &value, &descriptor, second, nullptr) != pcclSuccess ||
                                  value != 3)
                                  return false;
                          }
                          return true;
                      }}) == 0);
    CHECK(early == std::vector<float>(turns, 3));
    CHECK(late == std::vector<float>(turns, 3));
    CHECK(pcclDestroyCommunicator(first) == pcclSuccess);
    CHECK(pcclDestroyCommunicator(second) == pcclSuccess);
}

TEST_CASE("each call on another thread than the one before, all of which have ended") {
    LocalMaster master;
    std::array<pcclComm_t*, 2> comm{};
    std::thread([&] { comm = {make(master.port()), make(master.port())}; }).join();
    std::thread([&] { join_pair(comm[0], comm[1]); }).join();
    std::array<float, 2> content{3, 4};
    for (std::uint64_t revision = 0; revision < 3; ++revision) {
        CHECK(on_threads({[&] { return synchronize(comm[0], revision, content[0]) == pcclSuccess; },
                          [&] { return synchronize(comm[1], revision, content[1]) == pcclSuccess; }}) == 0);
        CHECK(content == std::array<float, 2>{3, 3});
        CHECK(on_threads({[&] { return pcclUpdateTopology(comm[0]) == pcclSuccess; },
                          [&] { return pcclUpdateTopology(comm[1]) == pcclSuccess; }}) == 0);
    }
    CHECK(on_threads({[&] { return pcclDestroyCommunicator(comm[0]) == pcclSuccess; },
                      [&] { return pcclDestroyCommunicator(comm[1]) == pcclSuccess; }}) == 0);
}

TEST_CASE("several runs in one process do not see each other") {
    std::array<LocalMaster, 3> masters;
    std::vector<std::vector<pcclComm_t*>> runs;
    for (const LocalMaster& master : masters) {
        // Worlds of 2, 3 and 4, so that a number of another run is noticed.
        std::vector<pcclComm_t*> members{make(master.port())};
        REQUIRE(pcclConnect(members.front()) == pcclSuccess);
        while (members.size() < runs.size() + 2) {
            pcclComm_t* const newcomer = make(master.port());
            join(members, newcomer);
            members.push_back(newcomer);
        }
        runs.push_back(members);
    }
    std::vector<std::function<bool()>> functions;
    for (std::size_t run = 0; run < runs.size(); ++run) {
        for (pcclComm_t* comm : runs[run]) {
            const int members = static_cast<int>(runs[run].size());
            functions.push_back([comm, run, members] {
                for (int turn = 0; turn < 20; ++turn) {
                    int world = 0;
                    std::vector<float> data(10'000, static_cast<float>(run + 1));
                    const pcclReduceDescriptor_t descriptor = describe(data.size(), 5);
                    const auto sum = static_cast<float>(members) * static_cast<float>(run + 1);
                    if (pcclAllReduce(data.data(), data.data(), &descriptor, comm, nullptr) != pcclSuccess ||
                        data != std::vector<float>(10'000, sum) ||
                        pcclGetAttribute(comm, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &world) != pcclSuccess ||
                        world != members)
                        return false;
                }
                return true;
            });
        }
    }
    CHECK(on_threads(functions) == 0);
    for (const auto& run : runs)
        for (pcclComm_t* comm : run) CHECK(pcclDestroyCommunicator(comm) == pcclSuccess);
}

namespace {

// In the child: the number of the first wrong result, 0 if none is wrong.
int use_what_the_parent_made(pcclComm_t* comm, pcclMasterInstance_t* master) {
    int value = 0;
    bool pending = false;
    float content = 0;
    std::uint16_t port = 0;
    pcclAsyncReduceOp_t handle{comm, 1};
    const pcclReduceDescriptor_t descriptor = describe(1, 2);
    std::array<char, 64> text{};
    pcclReduceOpDescriptor_t operation{};
    operation.sendbuf = operation.recvbuf = &content;
    operation.descriptor = descriptor;
    const std::array results{
        pcclOptimizeTopology(comm),
        pcclAllReduceMultipleWithRetry(&operation, 1, comm, nullptr, 1),
        pcclAbort(comm),
        pcclGetStats(comm, text.data(), text.size(), nullptr),
        pcclConnect(comm),
        pcclGetAttribute(comm, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &value),
        pcclUpdateTopology(comm),
        pcclArePeersPending(comm, &pending),
        pcclAllReduce(&content, &content, &descriptor, comm, nullptr),
        pcclAllReduceAsync(&content, &content, &descriptor, comm, &handle),
        pcclAwaitAsyncReduce(&handle, nullptr),
        synchronize(comm, 0, content),
        pcclRunMaster(master),
        pcclInterruptMaster(master),
        pcclMasterAwaitTermination(master),
        pcclGetMasterPort(master, &port),
    };
    for (std::size_t i = 0; i < results.size(); ++i)
        if (results[i] != pcclInvalidUsage) return static_cast<int>(i) + 1;
    if (pcclDestroyCommunicator(comm) != pcclSuccess) return 51;
    if (pcclDestroyMaster(master) != pcclSuccess) return 52;
    if (open_sockets() != 0) return 53;  // a socket kept here would hide the parent's death from its peers
    if (entries_of("/proc/self/task") != 1) return 54;
#ifndef __SANITIZE_THREAD__  // ThreadSanitizer ends a forked child that starts a thread
    LocalMaster own_master;
    const pcclCommCreateParams_t params = params_for(own_master.port());
    pcclComm_t* own = nullptr;
    if (!own_master.runs() || pcclCreateCommunicator(&params, &own) != pcclSuccess) return 55;
    if (pcclConnect(own) != pcclSuccess || pcclDestroyCommunicator(own) != pcclSuccess) return 56;
#endif
    return 0;
}

}  // namespace

TEST_CASE("after a fork the child may do nothing with what its parent made, and anything with what it makes itself") {
    CapturedLog silent;
    LocalMaster master;
    pcclComm_t* const first = make(master.port());
    pcclComm_t* const second = make(master.port());
    join_pair(first, second);
    std::array<float, 2> data{1, 2};
    const pcclReduceDescriptor_t descriptor = describe(1, 1);
    pcclAsyncReduceOp_t running{};
    REQUIRE(pcclAllReduceAsync(&data[0], &data[0], &descriptor, first, &running) == pcclSuccess);
    const pid_t child = fork();
    if (child == 0) {
        if (pcclDestroyCommunicator(second) != pcclSuccess) _exit(60);
        _exit(use_what_the_parent_made(first, master.handle()));
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    // The parent's operation is not affected.
    CHECK(pcclAllReduce(&data[1], &data[1], &descriptor, second, nullptr) == pcclSuccess);
    CHECK(pcclAwaitAsyncReduce(&running, nullptr) == pcclSuccess);
    CHECK(data == std::array<float, 2>{3, 3});
    CHECK(pcclDestroyCommunicator(first) == pcclSuccess);
    CHECK(pcclDestroyCommunicator(second) == pcclSuccess);
}
