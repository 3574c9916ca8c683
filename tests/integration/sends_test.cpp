// pcclSend and pcclRecv over loopback: every pair of three members, small and large arrays, both directions with one
// tag, calls that must fail, and ends that are lost before and after they have called.
#include "arrays.hpp"
#include "local_members.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>

using namespace integration;

namespace {

pcclResult_t in_thread(const std::function<pcclResult_t()>& other, const std::function<pcclResult_t()>& own,
                       pcclResult_t& others) {
    std::thread thread([&] { others = other(); });
    const pcclResult_t result = own();
    thread.join();
    return result;
}

bool last_message_has(const pcclComm_t* comm, const char* text) {
    return std::string(pcclGetLastErrorMessage(comm)).find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("three members: an array of any size goes from each to each other") {
    const LocalRun run(3);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{800'000}}) {
        for (std::size_t from = 0; from < 3; ++from) {
            for (std::size_t to = 0; to < 3; ++to) {
                if (from == to) continue;
                const pcclPeerId_t sender = id_of(run[from]), receiver = id_of(run[to]);
                const Values sent = drawn(count, from * 3 + to), before = sent;
                Values got(count + 3, 77);
                const pcclCopyDescriptor_t out{count, type, 5}, in{got.size(), type, 5};
                pcclMemberInfo_t members[2][2];
                pcclCollectiveInfo_t infos[2]{};
                infos[0].tx_bytes = ~std::uint64_t{0};
                for (int i = 0; i < 2; ++i) {
                    infos[i].members = members[i];
                    infos[i].members_capacity = 2;
                }
                // If threads wait for a processor, a connection may seem to stall, and its bytes are sent again.
                for (int tries = 20; tries != 0 && infos[0].tx_bytes != count * sizeof(std::uint32_t); --tries) {
                    pcclResult_t received = pcclInternalError;
                    CHECK(in_thread([&] { return pcclRecv(got.data(), &sender, &in, run[to], &infos[1]); },
                                    [&] { return pcclSend(sent.data(), &receiver, &out, run[from], &infos[0]); },
                                    received) == pcclSuccess);
                    CHECK(received == pcclSuccess);
                }
                Values expected = before;
                expected.resize(count + 3, 77);
                CHECK(got == expected);
                CHECK(sent == before);
                for (std::uint32_t i = 0; i < 2; ++i) {
                    CHECK(infos[i].local_world_size == 2);
                    CHECK(infos[i].local_index == i);
                    CHECK(same(members[i][0].peer, sender));
                    CHECK(same(members[i][1].peer, receiver));
                    CHECK(members[i][1].count == count);
                }
                CHECK(infos[0].tx_bytes == count * sizeof(std::uint32_t));
                CHECK(infos[1].rx_bytes == count * sizeof(std::uint32_t));
            }
        }
    }
}

TEST_CASE("both directions of a pair and other collectives use one tag at the same time") {
    const LocalRun run(3);
    for (const std::size_t count : {std::size_t{100}, std::size_t{200'000}}) {
        Values sent[2] = {drawn(count, 1), drawn(count, 2)}, got[2] = {Values(count), Values(count)};
        Values sums[3] = {drawn(count, 0), drawn(count, 0), drawn(count, 0)};
        const pcclCopyDescriptor_t copy{count, type, 7};
        const pcclReduceDescriptor_t reduce = describe(count, 7, pcclSum, type);
        pcclAsyncReduceOp_t handles[7];
        for (int i = 0; i < 2; ++i) {
            const pcclPeerId_t other = id_of(run[1 - i]);
            REQUIRE(pcclSendAsync(sent[i].data(), &other, &copy, run[i], &handles[i]) == pcclSuccess);
            REQUIRE(pcclRecvAsync(got[i].data(), &other, &copy, run[i], &handles[2 + i]) == pcclSuccess);
        }
        for (int i = 0; i < 3; ++i) {
            std::uint32_t* const sum = sums[i].data();
            REQUIRE(pcclAllReduceAsync(sum, sum, &reduce, run[i], &handles[4 + i]) == pcclSuccess);
        }
        for (int i = 0; i < 4; ++i) CHECK(pcclAwaitCollective(&handles[i], nullptr) == pcclSuccess);
        for (int i = 4; i < 7; ++i) CHECK(pcclAwaitAsyncReduce(&handles[i], nullptr) == pcclSuccess);
        CHECK(got[0] == sent[1]);
        CHECK(got[1] == sent[0]);
        CHECK(sums[2] != drawn(count, 0));
        CHECK(pcclAwaitCollective(&handles[0], nullptr) == pcclRankConnectionLost);
    }
}

TEST_CASE("a callback gets the two ends of a send") {
    const LocalRun run(2);
    struct Told {
        std::promise<std::pair<pcclResult_t, std::uint64_t>> promise;
        static void tell(pcclResult_t result, const pcclCollectiveInfo_t* info, const char*, void* user) {
            static_cast<Told*>(user)->promise.set_value({result, info->members[1].count});
        }
    } told;
    const Values sent = drawn(10, 1);
    Values got(12);
    const pcclPeerId_t first = id_of(run[0]), second = id_of(run[1]);
    const pcclCopyDescriptor_t out{10, type, 1}, in{12, type, 1};
    pcclAsyncReduceOp_t sends{}, receives{};
    REQUIRE(pcclRecvAsync(got.data(), &first, &in, run[1], &receives) == pcclSuccess);
    REQUIRE(pcclAwaitCollectiveThen(&receives, &Told::tell, &told) == pcclSuccess);
    REQUIRE(pcclSendAsync(sent.data(), &second, &out, run[0], &sends) == pcclSuccess);
    CHECK(pcclAwaitCollective(&sends, nullptr) == pcclSuccess);
    CHECK(told.promise.get_future().get() == std::pair{pcclSuccess, std::uint64_t{10}});
}

TEST_CASE("a send that cannot be is refused to both ends, and their arrays are as before") {
    const LocalRun run(2);
    const pcclPeerId_t first = id_of(run[0]), second = id_of(run[1]);
    const Values sent = drawn(8, 1);
    Values got(8, 77);
    pcclResult_t received = pcclInternalError;
    pcclCopyDescriptor_t out{8, type, 1}, in{7, type, 1};
    CHECK(in_thread([&] { return pcclRecv(got.data(), &first, &in, run[1], nullptr); },
                    [&] { return pcclSend(sent.data(), &second, &out, run[0], nullptr); },
                    received) == pcclInvalidArgument);
    CHECK(received == pcclInvalidArgument);
    for (int i = 0; i < 2; ++i)
        CHECK(last_message_has(run[i], "has room for 7 elements, and the pieces for it have 8"));
    in = {8, pcclFloat, 1};
    CHECK(in_thread([&] { return pcclRecv(got.data(), &first, &in, run[1], nullptr); },
                    [&] { return pcclSend(sent.data(), &second, &out, run[0], nullptr); },
                    received) == pcclInvalidArgument);
    CHECK(received == pcclInvalidArgument);
    CHECK(last_message_has(run[0], "data type"));
    CHECK(got == Values(8, 77));
    CHECK(sent == drawn(8, 1));

    pcclPeerId_t nobody{}, stranger{};
    stranger.bytes[3] = 1;
    CHECK(pcclSend(sent.data(), &stranger, &out, run[0], nullptr) == pcclRankConnectionLost);
    CHECK(last_message_has(run[0], "is not a member of the group"));
    CHECK(pcclRecv(got.data(), &stranger, &out, run[0], nullptr) == pcclRankConnectionLost);
    CHECK(pcclSend(sent.data(), &first, &out, run[0], nullptr) == pcclInvalidArgument);
    CHECK(last_message_has(run[0], "cannot send to itself"));
    CHECK(pcclRecv(got.data(), &second, &out, run[1], nullptr) == pcclInvalidArgument);
    CHECK(pcclSend(sent.data(), &nobody, &out, run[0], nullptr) == pcclInvalidArgument);
    CHECK(pcclSend(sent.data(), nullptr, &out, run[0], nullptr) == pcclInvalidArgument);
    CHECK(pcclSend(nullptr, &second, &out, run[0], nullptr) == pcclInvalidArgument);
    CHECK(pcclRecv(nullptr, &second, &out, run[0], nullptr) == pcclInvalidArgument);
    CHECK(pcclRecv(got.data(), &second, nullptr, run[0], nullptr) == pcclInvalidArgument);
    CHECK(pcclSendAsync(sent.data(), &second, &out, run[0], nullptr) == pcclInvalidArgument);
    CHECK(pcclRecvAsync(got.data(), &second, &out, run[0], nullptr) == pcclInvalidArgument);
    const int strange = 99;
    std::memcpy(&out.datatype, &strange, sizeof strange);
    CHECK(pcclSend(sent.data(), &second, &out, run[0], nullptr) == pcclInvalidArgument);

    // A second one of this pair with this tag; the first one stays valid.
    out = {8, type, 3};
    pcclAsyncReduceOp_t handle{}, again{};
    REQUIRE(pcclSendAsync(sent.data(), &second, &out, run[0], &handle) == pcclSuccess);
    CHECK(pcclSendAsync(sent.data(), &second, &out, run[0], &again) == pcclInvalidArgument);
    CHECK(last_message_has(run[0], "tag 3 is launched already"));
    CHECK(pcclUpdateTopology(run[0]) == pcclPendingAsyncOps);
    CHECK(pcclRecv(got.data(), &first, &out, run[1], nullptr) == pcclSuccess);
    CHECK(pcclAwaitCollective(&handle, nullptr) == pcclSuccess);
    CHECK(got == sent);
}

TEST_CASE("nobody waits for an end of a send that is gone, whoever called first") {
    for (const bool called_first : {true, false}) {
        for (const bool receives : {true, false}) {
            LocalRun run(3);
            const std::size_t count = 100'000;
            const pcclPeerId_t other = id_of(run[1]), self = id_of(run[0]);
            const Values sent = drawn(count, 1);
            Values array = receives ? Values(count, 77) : sent, theirs(count);
            const Values before = array;
            const pcclCopyDescriptor_t copy{count, type, 1};
            pcclAsyncReduceOp_t handle{}, lost{};
            const auto launch = [&] {
                return receives ? pcclRecvAsync(array.data(), &other, &copy, run[0], &handle)
                                : pcclSendAsync(array.data(), &other, &copy, run[0], &handle);
            };
            if (called_first) REQUIRE(launch() == pcclSuccess);
            pcclComm_t* const gone = run.take(1);
            CHECK(pcclAbort(gone) == pcclSuccess);
            // The one that has gone cannot launch any more.
            CHECK(pcclSendAsync(theirs.data(), &self, &copy, gone, &lost) == pcclTooFewPeers);
            if (!called_first) REQUIRE(launch() == pcclSuccess);
            CHECK(pcclAwaitCollective(&handle, nullptr) == pcclRankConnectionLost);
            CHECK(array == before);
            CHECK(pcclDestroyCommunicator(gone) == pcclSuccess);
            // The others go on.
            const pcclPeerId_t third = id_of(run[1]);
            Values got(count);
            pcclResult_t received = pcclInternalError;
            CHECK(in_thread([&] { return pcclRecv(got.data(), &self, &copy, run[1], nullptr); },
                            [&] { return pcclSend(sent.data(), &third, &copy, run[0], nullptr); },
                            received) == pcclSuccess);
            CHECK(received == pcclSuccess);
            CHECK(got == sent);
        }
    }
}

TEST_CASE("a member that must forward more than its limit of scratch memory is named to both ends") {
    pcclCommConfig_t config = PCCL_COMM_CONFIG_INIT;
    config.max_scratch_bytes = 1u << 20;
    LocalRun run(2);
    run.admit(&config);
    const std::size_t count = 2'000'000;  // 8 MB
    const pcclCopyDescriptor_t copy{count, type, 1};
    const Values sent = drawn(count, 1);
    // In one of the two directions the third member lies between the two.
    int refused = 0;
    for (int from = 0; from < 2; ++from) {
        const pcclPeerId_t sender = id_of(run[from]), receiver = id_of(run[1 - from]);
        Values got(count, 77);
        pcclResult_t received = pcclInternalError;
        const pcclResult_t result =
            in_thread([&] { return pcclRecv(got.data(), &sender, &copy, run[1 - from], nullptr); },
                      [&] { return pcclSend(sent.data(), &receiver, &copy, run[from], nullptr); }, received);
        CHECK(received == result);
        if (result == pcclSuccess) {
            CHECK(got == sent);
            continue;
        }
        ++refused;
        CHECK(result == pcclInvalidUsage);
        for (int i = 0; i < 2; ++i) CHECK(last_message_has(run[i], "PCCL_MAX_SCRATCH_BYTES"));
        CHECK(got == Values(count, 77));
    }
    CHECK(refused == 1);
}
