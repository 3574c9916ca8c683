// pcclAllReduceMultipleWithRetry: whatever the orders, windows and losses, either every buffer is reduced or the result
// is a failure.
#include "local_members.hpp"
#include "process.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <string>

using namespace integration;

namespace {

constexpr std::size_t count_of_tags = 40;

// The tensors of one member. Element i of tag t is seed + t + i % 7, so sums are exact.
struct Tensors {
    std::vector<std::vector<float>> input, output;
    bool in_place = true;
    explicit Tensors(float seed, bool in_place_here = true) : in_place(in_place_here) {
        for (std::size_t t = 0; t < count_of_tags; ++t) {
            std::vector<float> values(t * 700);  // also an empty one
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = seed + static_cast<float>(t + i % 7);
            input.push_back(values);
            output.push_back(in_place ? values : std::vector<float>(values.size()));
        }
    }
    std::vector<pcclReduceOpDescriptor_t> descriptors(std::size_t first, bool backwards) {
        std::vector<pcclReduceOpDescriptor_t> list;
        for (std::size_t k = 0; k < count_of_tags; ++k) {
            const std::size_t t = (first + (backwards ? count_of_tags - k : k)) % count_of_tags;
            list.push_back({in_place ? output[t].data() : input[t].data(), output[t].data(),
                            describe(output[t].size(), t, pcclSum)});
        }
        return list;
    }
    bool is_sum_of(const std::vector<float>& seeds) const {
        for (std::size_t t = 0; t < count_of_tags; ++t) {
            for (std::size_t i = 0; i < output[t].size(); ++i) {
                float sum = 0;
                for (const float seed : seeds) sum += seed + static_cast<float>(t + i % 7);
                if (output[t][i] != sum) return false;
            }
        }
        return true;
    }
};

struct Answer {
    pcclResult_t result = pcclInternalError;
    pcclReduceInfo_t info{};
};

std::thread reduce(Answer& answer, pcclComm_t* comm, std::vector<pcclReduceOpDescriptor_t> list, int window) {
    return std::thread([&answer, comm, list = std::move(list), window] {
        answer.result = pcclAllReduceMultipleWithRetry(list.data(), list.size(), comm, &answer.info, window);
    });
}

}  // namespace

TEST_CASE("members with other orders and other windows reduce everything") {
    LocalRun run(3);
    Tensors a(1), b(2), c(4, false);
    std::array<Answer, 3> answers;
    std::thread threads[] = {reduce(answers[0], run[0], a.descriptors(0, false), 1),
                             reduce(answers[1], run[1], b.descriptors(17, true), 128),
                             reduce(answers[2], run[2], c.descriptors(5, true), 3)};
    for (std::thread& thread : threads) thread.join();
    for (const Answer& answer : answers) {
        CHECK(answer.result == pcclSuccess);
        CHECK(answer.info.local_world_size == 3);
        CHECK(answer.info.tx_bytes > 0);
    }
    CHECK(a.is_sum_of({1, 2, 4}));
    CHECK(b.is_sum_of({1, 2, 4}));
    CHECK(c.is_sum_of({1, 2, 4}));
    CHECK(c.input[39][0] == 43);
    CHECK(pcclUpdateTopology(nullptr) == pcclInvalidArgument);
}

TEST_CASE("single launches of the other members serve as well") {
    LocalRun run(2);
    Tensors a(1), b(2);
    Answer answer;
    std::thread thread = reduce(answer, run[0], a.descriptors(3, false), 4);
    const std::vector<pcclReduceOpDescriptor_t> list = b.descriptors(9, true);
    std::vector<pcclAsyncReduceOp_t> handles(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
        REQUIRE(pcclAllReduceAsync(list[i].sendbuf, list[i].recvbuf, &list[i].descriptor, run[1], &handles[i]) ==
                pcclSuccess);
    for (const pcclAsyncReduceOp_t& handle : handles) CHECK(pcclAwaitAsyncReduce(&handle, nullptr) == pcclSuccess);
    thread.join();
    CHECK(answer.result == pcclSuccess);
    CHECK(a.is_sum_of({1, 2}));
    CHECK(b.is_sum_of({1, 2}));
}

TEST_CASE("a member that goes in the middle is made up for, and the last one is told that it is alone") {
    LocalRun run(3);
    Tensors a(1), b(2), c(4);
    std::array<Answer, 3> answers;
    // The third member launches only some of the tags, so that the call cannot end before this member leaves.
    std::vector<pcclReduceOpDescriptor_t> part = c.descriptors(0, false);
    part.resize(count_of_tags / 2);
    pcclComm_t* third = run.take(2);
    for (const pcclReduceOpDescriptor_t& one : part) {
        pcclAsyncReduceOp_t handle;
        REQUIRE(pcclAllReduceAsync(one.sendbuf, one.recvbuf, &one.descriptor, third, &handle) == pcclSuccess);
    }
    std::thread first = reduce(answers[0], run[0], a.descriptors(0, false), 2);
    std::thread second = reduce(answers[1], run[1], b.descriptors(20, false), 5);
    for (const pcclReduceOpDescriptor_t& one : part) {
        const pcclAsyncReduceOp_t handle{third, one.descriptor.tag};
        CHECK(pcclAwaitAsyncReduce(&handle, nullptr) == pcclSuccess);
    }
    CHECK(pcclDestroyCommunicator(third) == pcclSuccess);
    first.join();
    second.join();
    CHECK(answers[0].result == pcclSuccess);
    CHECK(answers[1].result == pcclSuccess);
    CHECK(answers[0].info.local_world_size == 2);
    CHECK(std::equal(a.output.begin(), a.output.end(), b.output.begin()));
    // Tags of the first half have three members, the others two. The sums show which.
    CHECK(a.output[1][0] == 1 + 2 + 4 + 3 * 1);
    CHECK(a.output[39][0] == 1 + 2 + 2 * 39);

    Tensors alone(1);
    pcclComm_t* other = run.take(1);
    Answer left;
    std::thread waiting = reduce(left, run[0], alone.descriptors(0, false), 2);
    CHECK(pcclDestroyCommunicator(other) == pcclSuccess);
    waiting.join();
    CHECK(left.result == pcclTooFewPeers);
    CHECK(alone.output == alone.input);
}

TEST_CASE("the master dies under the call: no buffer is said to be reduced that is not") {
    const Variable short_wait("PCCL_MASTER_TIMEOUT_MS", "500");
    MasterProcess master;
    LocalRun run(2, nullptr, master.port());
    Tensors a(1), b(2);
    Answer answer;
    std::thread waiting = reduce(answer, run[0], a.descriptors(0, false), 3);
    // Half of the tags are reduced. The other half waits for a member that never launches it.
    std::vector<pcclReduceOpDescriptor_t> part = b.descriptors(0, false);
    part.resize(count_of_tags / 2);
    for (const pcclReduceOpDescriptor_t& one : part)
        CHECK(pcclAllReduce(one.sendbuf, one.recvbuf, &one.descriptor, run[1], nullptr) == pcclSuccess);
    master.signal(SIGKILL);
    waiting.join();
    CHECK(answer.result == pcclTooFewPeers);
    const auto both = [](std::size_t t) {
        std::vector<float> sums(t * 700);
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = 3 + 2 * static_cast<float>(t + i % 7);
        return sums;
    };
    for (std::size_t t = 0; t < count_of_tags; ++t) {
        if (t < part.size()) CHECK((a.output[t] == both(t) || a.output[t] == a.input[t]));
        if (t >= part.size()) CHECK(a.output[t] == a.input[t]);
    }
    Answer later;
    reduce(later, run[0], a.descriptors(0, false), 3).join();
    CHECK(later.result == pcclTooFewPeers);
}

TEST_CASE("shapes that differ end the call on all members") {
    LocalRun run(2);
    Tensors a(1), b(2);
    std::vector<pcclReduceOpDescriptor_t> list = a.descriptors(0, false);
    list[7].descriptor.op = pcclMax;
    std::array<Answer, 2> answers;
    std::thread threads[] = {reduce(answers[0], run[0], list, 2),
                             reduce(answers[1], run[1], b.descriptors(11, true), 2)};
    for (std::thread& thread : threads) thread.join();
    CHECK(answers[0].result == pcclInvalidArgument);
    CHECK(answers[1].result == pcclInvalidArgument);
    CHECK(a.output[7] == a.input[7]);
    CHECK(std::string(pcclGetLastErrorMessage(run[1])).find("operation") != std::string::npos);
    // Nothing is left over: the same tags work again.
    Tensors c(1), d(2);
    std::thread again[] = {reduce(answers[0], run[0], c.descriptors(0, false), 2),
                           reduce(answers[1], run[1], d.descriptors(0, false), 2)};
    for (std::thread& thread : again) thread.join();
    CHECK(answers[0].result == pcclSuccess);
    CHECK(answers[1].result == pcclSuccess);
    CHECK(c.is_sum_of({1, 2}));
}

TEST_CASE("arguments of the call for many tags") {
    LocalRun run(1);
    std::vector<float> values(8);
    pcclReduceOpDescriptor_t one{values.data(), values.data(), describe(values.size(), 1)};
    const pcclReduceOpDescriptor_t twice[] = {one, one};
    pcclComm_t* fresh = nullptr;
    const pcclCommCreateParams_t params = params_for(run.port());
    REQUIRE(pcclCreateCommunicator(&params, &fresh) == pcclSuccess);
    CHECK(pcclAllReduceMultipleWithRetry(nullptr, 1, run[0], nullptr, 1) == pcclInvalidArgument);
    CHECK(pcclAllReduceMultipleWithRetry(&one, 0, run[0], nullptr, 1) == pcclInvalidArgument);
    CHECK(pcclAllReduceMultipleWithRetry(&one, 1, nullptr, nullptr, 1) == pcclInvalidArgument);
    CHECK(pcclAllReduceMultipleWithRetry(&one, 1, run[0], nullptr, 0) == pcclInvalidArgument);
    CHECK(pcclAllReduceMultipleWithRetry(&one, 1, run[0], nullptr, -3) == pcclInvalidArgument);
    CHECK(pcclAllReduceMultipleWithRetry(twice, 2, run[0], nullptr, 1) == pcclInvalidArgument);
    CHECK(pcclAllReduceMultipleWithRetry(&one, 1, fresh, nullptr, 1) == pcclInvalidUsage);
    CHECK(pcclAllReduceMultipleWithRetry(&one, 1, run[0], nullptr, 1) == pcclTooFewPeers);
    one.recvbuf = nullptr;
    CHECK(pcclAllReduceMultipleWithRetry(&one, 1, run[0], nullptr, 1) == pcclInvalidArgument);
    CHECK(std::string(pcclGetLastErrorMessage(run[0])).find("descriptor 0: recvbuf") != std::string::npos);
    pcclDestroyCommunicator(fresh);
}
