// What hosts in other languages use of pccl/ext.h: ending a wait, and outcomes through callbacks.
#include "local_members.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>

using namespace integration;

namespace {

pcclReduceDescriptor_t sum_of(std::size_t count, std::uint64_t tag = 0) {
    return {count, pcclSum, tag, {pcclFloat, pcclDistributionNone}, {pcclFloat, pcclQuantNone}};
}

// Answers false a few times, then true.
struct Patience {
    int questions_left = 3;
    std::thread::id asked_on;
    static bool check(void* user) {
        auto& self = *static_cast<Patience*>(user);
        self.asked_on = std::this_thread::get_id();
        return --self.questions_left <= 0;
    }
};

class Told {
public:
    static void tell(pcclResult_t result, const pcclReduceInfo_t* info, const char* message, void* user) {
        auto& self = *static_cast<Told*>(user);
        const std::lock_guard lock(self.mutex_);
        ++self.times_;
        self.result_ = result;
        self.world_ = info->local_world_size;
        self.message_ = message;
        self.changed_.notify_all();
    }
    bool wait() {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return times_ != 0; });
    }
    int times() {
        const std::lock_guard lock(mutex_);
        return times_;
    }
    pcclResult_t result() const { return result_; }
    std::uint32_t world() const { return world_; }
    const std::string& message() const { return message_; }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int times_ = 0;
    pcclResult_t result_ = pcclInternalError;
    std::uint32_t world_ = 0;
    std::string message_;
};

}  // namespace

TEST_CASE("A check of the waiting thread ends a vote that nobody else casts", "[host]") {
    LocalRun run(2);
    Patience patience;
    REQUIRE(pcclSetWaitCheck(&Patience::check, &patience) == pcclSuccess);
    pcclComm_t* comm = run.take(0);
    CHECK(pcclUpdateTopology(comm) == pcclUpdateTopologyFailed);
    CHECK(patience.questions_left == 0);
    CHECK(patience.asked_on == std::this_thread::get_id());
    int world = 0;
    REQUIRE(pcclGetAttribute(comm, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &world) == pcclSuccess);
    CHECK(world == 1);
    REQUIRE(pcclSetWaitCheck(nullptr, nullptr) == pcclSuccess);
    run.rejoin(comm);  // it can be used again
    CHECK(pcclDestroyCommunicator(comm) == pcclSuccess);
}

TEST_CASE("A check ends a reduction with its input back, and concerns its own thread only", "[host]") {
    LocalRun run(3);
    std::vector<float> array(1000, 1.0F), other(1000, 2.0F);
    const pcclReduceDescriptor_t sum = sum_of(array.size());
    std::thread second([&] {
        pcclReduceInfo_t info{};
        CHECK(pcclAllReduce(other.data(), other.data(), &sum, run[1], &info) == pcclRankConnectionLost);
    });
    Patience patience;
    REQUIRE(pcclSetWaitCheck(&Patience::check, &patience) == pcclSuccess);
    CHECK(pcclAllReduce(array.data(), array.data(), &sum, run[0], nullptr) != pcclSuccess);
    REQUIRE(pcclSetWaitCheck(nullptr, nullptr) == pcclSuccess);
    // The third member never reduced. When it leaves, the operation of the second one fails.
    pcclDestroyCommunicator(run.take(2));
    second.join();
    CHECK(array == std::vector<float>(1000, 1.0F));
    CHECK(other == std::vector<float>(1000, 2.0F));
}

TEST_CASE("An outcome comes by itself", "[host]") {
    LocalRun run(2);
    std::vector<float> first(1000, 1.0F), second(1000, 2.0F);
    const pcclReduceDescriptor_t sum = sum_of(first.size());
    pcclAsyncReduceOp_t handle{};
    REQUIRE(pcclAllReduceAsync(first.data(), first.data(), &sum, run[0], &handle) == pcclSuccess);
    Told told;
    REQUIRE(pcclAwaitAsyncReduceThen(&handle, &Told::tell, &told) == pcclSuccess);
    CHECK(told.times() == 0);
    // It is being awaited, so no other call may await it.
    CHECK(pcclAwaitAsyncReduce(&handle, nullptr) == pcclRankConnectionLost);
    CHECK(pcclAwaitAsyncReduceThen(&handle, &Told::tell, &told) == pcclRankConnectionLost);
    CHECK(pcclAwaitAsyncReduceThen(&handle, nullptr, &told) == pcclInvalidArgument);
    CHECK(pcclAwaitAsyncReduceThen(nullptr, &Told::tell, &told) == pcclInvalidArgument);
    pcclReduceInfo_t info{};
    REQUIRE(pcclAllReduce(second.data(), second.data(), &sum, run[1], &info) == pcclSuccess);
    REQUIRE(told.wait());
    CHECK(told.result() == pcclSuccess);
    CHECK(told.world() == 2);
    CHECK(told.message().empty());
    CHECK(first == std::vector<float>(1000, 3.0F));
    CHECK(told.times() == 1);
}

TEST_CASE("An outcome comes at the latest when the communicator goes", "[host]") {
    LocalRun run(2);
    std::vector<float> array(1000, 1.0F);
    const pcclReduceDescriptor_t sum = sum_of(array.size());
    pcclAsyncReduceOp_t handle{};
    pcclComm_t* leaving = run.take(0);
    REQUIRE(pcclAllReduceAsync(array.data(), array.data(), &sum, leaving, &handle) == pcclSuccess);
    Told told;
    REQUIRE(pcclAwaitAsyncReduceThen(&handle, &Told::tell, &told) == pcclSuccess);
    REQUIRE(pcclDestroyCommunicator(leaving) == pcclSuccess);
    CHECK(told.times() == 1);
    CHECK(told.result() != pcclSuccess);
    CHECK_FALSE(told.message().empty());
    CHECK(array == std::vector<float>(1000, 1.0F));
}
