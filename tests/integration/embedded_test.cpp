// A master and several communicators in one process: groups, threads, and destroying them while calls wait.
#include "local_run.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

using namespace integration;

namespace {

const int ports_are_free = setenv("PCCL_PORT_RANGE", "0", 1);

pcclComm_t* make(std::uint16_t port, std::uint32_t group = 0) {
    pcclInit();
    pcclComm_t* comm = nullptr;
    const pcclCommCreateParams_t params = params_for(port, group);
    REQUIRE(pcclCreateCommunicator(&params, &comm) == pcclSuccess);
    return comm;
}

// Connects `newcomer` while `members` vote until it is admitted.
void admit(const std::vector<pcclComm_t*>& members, pcclComm_t* newcomer) {
    std::atomic<pcclResult_t> joined{pcclInternalError};
    std::thread joining([&] { joined = pcclConnect(newcomer); });
    std::vector<std::thread> voters;
    std::atomic<int> failures{0};
    for (pcclComm_t* member : members) {
        voters.emplace_back([&failures, member] {
            for (bool pending = false; !pending;) {
                if (pcclArePeersPending(member, &pending) != pcclSuccess) {
                    ++failures;
                    return;
                }
            }
            if (pcclUpdateTopology(member) != pcclSuccess) ++failures;
        });
    }
    for (std::thread& voter : voters) voter.join();
    joining.join();
    REQUIRE(failures == 0);
    REQUIRE(joined == pcclSuccess);
}

int world(const pcclComm_t* comm, pcclAttribute_t attribute = PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE) {
    int value = 0;
    return pcclGetAttribute(comm, attribute, &value) == pcclSuccess ? value : -1;
}

}  // namespace

TEST_CASE("two communicators and their master in one process") {
    LocalMaster master;
    REQUIRE(master.runs());
    pcclComm_t* first = make(master.port());
    pcclComm_t* second = make(master.port());
    REQUIRE(pcclConnect(first) == pcclSuccess);
    admit({first}, second);
    CHECK(world(first) == 2);
    CHECK(world(second) == 2);

    std::vector<float> a(100'000, 1.5f);
    std::vector<float> b(100'000, 2.0f);
    const pcclReduceDescriptor_t descriptor = describe(a.size(), 4, pcclAvg);
    pcclAsyncReduceOp_t operation{};
    REQUIRE(pcclAllReduceAsync(a.data(), a.data(), &descriptor, first, &operation) == pcclSuccess);
    CHECK(operation.comm == first);
    CHECK(operation.tag == 4);
    pcclReduceInfo_t info{};
    CHECK(pcclAllReduce(b.data(), b.data(), &descriptor, second, &info) == pcclSuccess);
    CHECK(info.local_world_size == 2);
    CHECK(pcclAwaitAsyncReduce(&operation, nullptr) == pcclSuccess);
    CHECK(a == b);
    CHECK(a.front() == 1.75f);
    CHECK(a.back() == 1.75f);
    CHECK(pcclDestroyCommunicator(first) == pcclSuccess);
    CHECK(pcclDestroyCommunicator(second) == pcclSuccess);
}

TEST_CASE("many threads reduce on one communicator at a time") {
    LocalMaster master;
    pcclComm_t* first = make(master.port());
    pcclComm_t* second = make(master.port());
    REQUIRE(pcclConnect(first) == pcclSuccess);
    admit({first}, second);
    constexpr int threads_per_side = 8;
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < threads_per_side; ++t) {
        for (pcclComm_t* comm : {first, second}) {
            threads.emplace_back([&failures, comm, t] {
                for (int turn = 0; turn < 20; ++turn) {
                    std::vector<double> data(1000 + static_cast<std::size_t>(t), t + 1.0);
                    const pcclReduceDescriptor_t descriptor =
                        describe(data.size(), static_cast<std::uint64_t>(t), pcclSum, pcclDouble);
                    if (pcclAllReduce(data.data(), data.data(), &descriptor, comm, nullptr) != pcclSuccess) ++failures;
                    if (data.front() != 2 * (t + 1.0) || data.back() != 2 * (t + 1.0)) ++failures;
                }
            });
        }
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(failures == 0);
    CHECK(pcclDestroyCommunicator(second) == pcclSuccess);
    CHECK(pcclDestroyCommunicator(first) == pcclSuccess);
}

TEST_CASE("destroying while other threads wait: they return, in every kind of call") {
    LocalMaster master;
    // Turns differ in how far the waiting call is at the destruction: not yet made, in the call, in the vote.
    for (int turn = 0; turn < 25; ++turn) {
        const int kind = turn % 5;
        const auto head_start = std::chrono::microseconds(turn / 5 * (turn / 5) * 200);
        pcclComm_t* first = make(master.port());
        pcclComm_t* second = make(master.port());
        REQUIRE(pcclConnect(first) == pcclSuccess);
        pcclComm_t* waiting = first;
        if (kind != 4) admit({first}, second);
        if (kind == 4) waiting = second;  // its connect waits for the vote of the first
        std::vector<float> data(1000, 1.0f);
        std::atomic<pcclResult_t> result{pcclSuccess};
        std::atomic<bool> entered{false};
        std::thread waiter([&] {
            bool pending = false;
            float content = 0;
            pcclTensorInfo_t info{};
            info.name = "w";
            info.data = &content;
            info.count = 1;
            info.datatype = pcclFloat;
            pcclSharedState_t state{};
            state.count = 1;
            state.infos = &info;
            const pcclReduceDescriptor_t descriptor = describe(data.size(), 1);
            entered = true;
            switch (kind) {
            case 0: result = pcclUpdateTopology(waiting); break;
            case 1: result = pcclArePeersPending(waiting, &pending); break;
            case 2: result = pcclAllReduce(data.data(), data.data(), &descriptor, waiting, nullptr); break;
            case 3:
                result = pcclSynchronizeSharedState(waiting, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR,
                                                    nullptr);
                break;
            default: result = pcclConnect(waiting); break;
            }
        });
        // Wherever the call is, it must return with a failure.
        while (!entered) std::this_thread::yield();
        std::this_thread::sleep_for(head_start);
        CHECK(pcclDestroyCommunicator(waiting) == pcclSuccess);
        waiter.join();
        INFO("kind " << kind);
        CHECK(result != pcclSuccess);
        if (kind == 2) CHECK(data == std::vector<float>(1000, 1.0f));
        CHECK(pcclDestroyCommunicator(waiting == first ? second : first) == pcclSuccess);
    }
}

TEST_CASE("destroying with launched operations that nobody awaited") {
    LocalMaster master;
    pcclComm_t* first = make(master.port());
    pcclComm_t* second = make(master.port());
    REQUIRE(pcclConnect(first) == pcclSuccess);
    admit({first}, second);
    std::vector<float> a(200'000, 1.0f);
    std::vector<float> b(200'000, 1.0f);
    const pcclReduceDescriptor_t descriptor = describe(a.size(), 4);
    pcclAsyncReduceOp_t left_behind{};
    pcclAsyncReduceOp_t operation{};
    REQUIRE(pcclAllReduceAsync(a.data(), a.data(), &descriptor, first, &left_behind) == pcclSuccess);
    REQUIRE(pcclAllReduceAsync(b.data(), b.data(), &descriptor, second, &operation) == pcclSuccess);
    CHECK(pcclDestroyCommunicator(first) == pcclSuccess);
    CHECK(pcclAwaitAsyncReduce(&left_behind, nullptr) == pcclInvalidArgument);
    const pcclResult_t result = pcclAwaitAsyncReduce(&operation, nullptr);
    CHECK((result == pcclSuccess || result == pcclRankConnectionLost || result == pcclTooFewPeers));
    if (result != pcclSuccess) CHECK(b == std::vector<float>(200'000, 1.0f));
    CHECK(pcclDestroyCommunicator(second) == pcclSuccess);
}

TEST_CASE("shared states that are odd but legal: no entry, a name that is no UTF-8") {
    LocalMaster master;
    pcclComm_t* first = make(master.port());
    pcclComm_t* second = make(master.port());
    REQUIRE(pcclConnect(first) == pcclSuccess);
    admit({first}, second);
    std::array<std::array<double, 100>, 2> content{};
    content[0].fill(1.0);
    content[1].fill(2.0);
    for (const std::vector<const char*>& names : {std::vector<const char*>{}, std::vector<const char*>{"w"},
                                                  std::vector<const char*>{"gewicht-\xfc\xff", "w"}}) {
        std::array<pcclResult_t, 2> results{};
        std::array<std::uint64_t, 2> revisions{};
        const auto sync = [&](std::size_t side, pcclComm_t* comm) {
            std::vector<pcclTensorInfo_t> infos(names.size());
            for (std::size_t i = 0; i < names.size(); ++i) {
                infos[i].name = names[i];
                infos[i].data = content[side].data() + i * 50;
                infos[i].count = 50;
                infos[i].datatype = pcclDouble;
            }
            pcclSharedState_t state{};
            state.revision = names.size();  // 0, 1, 2: the lists grow by one
            state.count = infos.size();
            state.infos = infos.empty() ? nullptr : infos.data();
            results[side] =
                pcclSynchronizeSharedState(comm, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, nullptr);
            revisions[side] = state.revision;
        };
        std::thread other(sync, 1, second);
        sync(0, first);
        other.join();
        INFO(names.size() << " entries");
        CHECK(results[0] == pcclSuccess);
        CHECK(results[1] == pcclSuccess);
        CHECK(revisions[0] == names.size());
        CHECK(revisions[1] == names.size());
    }
    CHECK(content[0] == content[1]);
    CHECK(content[1].front() == 1.0);  // on a tie the content of the member that was admitted first
    CHECK(pcclDestroyCommunicator(first) == pcclSuccess);
    CHECK(pcclDestroyCommunicator(second) == pcclSuccess);
}

TEST_CASE("masters: several at a time, destroyed while somebody waits for their end") {
    LocalMaster one;
    LocalMaster two;
    REQUIRE(one.runs());
    REQUIRE(two.runs());
    CHECK(one.port() != two.port());
    pcclComm_t* left = make(one.port());
    pcclComm_t* right = make(two.port());
    CHECK(pcclConnect(left) == pcclSuccess);
    CHECK(pcclConnect(right) == pcclSuccess);
    CHECK(world(left) == 1);
    pcclMasterInstance_t* third = nullptr;
    REQUIRE(pcclCreateMaster(loopback(0), &third) == pcclSuccess);
    REQUIRE(pcclRunMaster(third) == pcclSuccess);
    std::atomic<bool> entered{false};
    std::thread waiter([&] {
        entered = true;
        pcclMasterAwaitTermination(third);  // the result depends on which call comes first
    });
    while (!entered) std::this_thread::yield();
    CHECK(pcclDestroyMaster(third) == pcclSuccess);
    waiter.join();
    CHECK(pcclDestroyCommunicator(left) == pcclSuccess);
    CHECK(pcclDestroyCommunicator(right) == pcclSuccess);
}
