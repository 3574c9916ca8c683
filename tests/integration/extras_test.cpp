// The functions of pccl/ext.h: messages, log callback, settings of one communicator, abort, counters, limits on votes
// and memory.
#include "local_members.hpp"
#include "process.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <mutex>

using namespace integration;

namespace {

// Keeps the lines that the library logs. The test's thread makes and destroys it.
class Receiver {
public:
    Receiver() { REQUIRE(pcclSetLogCallback(&Receiver::receive, this) == pcclSuccess); }
    ~Receiver() { pcclSetLogCallback(nullptr, nullptr); }
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;
    // Waits for a line with this text, at most for 20 s.
    bool got(const std::string& text) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return has(text); });
    }
    bool has_now(const std::string& text) {
        const std::lock_guard lock(mutex_);
        return has(text);
    }
    bool aborted() {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return abort_result_ == pcclSuccess; });
    }
    void abort_on(const std::string& text, pcclComm_t* comm) {
        const std::lock_guard lock(mutex_);
        trigger_ = text;
        victim_ = comm;
    }

private:
    bool has(const std::string& text) const {
        for (const std::string& line : lines_) {
            if (line.find(text) != std::string::npos) return true;
        }
        return false;
    }
    static void receive(pcclLogLevel_t level, const char* line, void* user) {
        auto& self = *static_cast<Receiver*>(user);
        pcclComm_t* victim = nullptr;
        {
            const std::lock_guard lock(self.mutex_);
            self.lines_.push_back(std::to_string(level) + " " + line);
            if (!self.trigger_.empty() && self.lines_.back().find(self.trigger_) != std::string::npos) {
                victim = std::exchange(self.victim_, nullptr);
            }
        }
        const pcclResult_t result = victim != nullptr ? pcclAbort(victim) : pcclSuccess;
        const std::lock_guard lock(self.mutex_);
        if (victim != nullptr) self.abort_result_ = result;
        self.changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> lines_;
    std::string trigger_;
    pcclComm_t* victim_ = nullptr;
    pcclResult_t abort_result_ = pcclInternalError;
};

std::string message(const pcclComm_t* comm) { return pcclGetLastErrorMessage(comm); }
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int attribute(const pcclComm_t* comm, pcclAttribute_t which) {
    int value = -1;
    return pcclGetAttribute(comm, which, &value) == pcclSuccess ? value : -1;
}

std::string statistics(const pcclComm_t* comm) {
    std::size_t needed = 0;
    REQUIRE(pcclGetStats(comm, nullptr, 0, &needed) == pcclSuccess);
    std::vector<char> text(needed + 64);  // the numbers may have grown since
    REQUIRE(pcclGetStats(comm, text.data(), text.size(), &needed) == pcclSuccess);
    CHECK(std::strlen(text.data()) + 1 == needed);
    return text.data();
}

}  // namespace

// First in this file: nothing has called pcclInit yet.
TEST_CASE("before pcclInit") {
    pcclComm_t* comm = nullptr;
    const pcclCommCreateParams_t params = params_for(1);
    CHECK(pcclCreateCommunicatorWithConfig(&params, nullptr, &comm) == pcclNotInitialized);
    CHECK(pcclAbort(nullptr) == pcclNotInitialized);
    CHECK(pcclGetStats(nullptr, nullptr, 0, nullptr) == pcclNotInitialized);
    CHECK(pcclAllReduceMultipleWithRetry(nullptr, 0, nullptr, nullptr, 0) == pcclNotInitialized);
    CHECK(contains(message(nullptr), "pcclInit"));
    int major = 0, minor = 0, patch = -1;
    CHECK(pcclGetVersion(&major, &minor, &patch) == pcclSuccess);
    CHECK(pcclGetVersion(nullptr, nullptr, nullptr) == pcclSuccess);
    CHECK(major == PCCL_VERSION_MAJOR);
    CHECK(minor == PCCL_VERSION_MINOR);
    CHECK(patch == PCCL_VERSION_PATCH);
}

TEST_CASE("names and meanings of results") {
    CHECK(std::string(pcclGetErrorName(pcclSuccess)) == "pcclSuccess");
    CHECK(std::string(pcclGetErrorName(pcclTopologyOptimizationFailed)) == "pcclTopologyOptimizationFailed");
    for (int code = 0; code <= 12; ++code) {
        pcclResult_t result{};
        std::memcpy(&result, &code, sizeof result);
        CHECK_FALSE(contains(pcclGetErrorName(result), "unknown"));
        CHECK_FALSE(contains(pcclGetErrorString(result), "unknown"));
    }
    const int strange = 4711;
    pcclResult_t result{};
    std::memcpy(&result, &strange, sizeof result);
    CHECK(contains(pcclGetErrorName(result), "unknown"));
    CHECK(contains(pcclGetErrorString(result), "unknown"));
}

TEST_CASE("the last message belongs to its communicator, and a thread has one of its own") {
    LocalRun run(2);
    CHECK(message(run[0]).empty());
    int value = 0;
    pcclAttribute_t unknown{};
    const int number = 99;
    std::memcpy(&unknown, &number, sizeof unknown);
    CHECK(pcclGetAttribute(run[0], unknown, &value) == pcclInvalidArgument);
    CHECK(contains(message(run[0]), "pcclGetAttribute: unknown attribute 99"));
    CHECK(contains(message(nullptr), "unknown attribute 99"));
    CHECK(message(run[1]).empty());
    std::string of_thread = "?";
    std::thread([&] { of_thread = message(nullptr); }).join();
    CHECK(of_thread.empty());
    std::thread([&] { of_thread = message(run[0]); }).join();
    CHECK(contains(of_thread, "unknown attribute 99"));
    pcclComm_t* gone = run.take(1);
    pcclDestroyCommunicator(gone);
    CHECK(contains(message(gone), "not a live communicator"));
}

TEST_CASE("a log callback gets the lines, with the communicator's name, and may call the library") {
    Receiver receiver;
    pcclCommConfig_t config = PCCL_COMM_CONFIG_INIT;
    config.name = "trainer-7";
    LocalRun run(1, &config);
    bool pending = false;
    CHECK(pcclArePeersPending(run[0], nullptr) == pcclInvalidArgument);
    CHECK(receiver.got("4 "));
    CHECK(receiver.got("pccl pcclArePeersPending: pcclInvalidArgument: pending_out is null"));
    CHECK(pcclConnect(run[0]) == pcclInvalidUsage);
    CHECK(receiver.got("trainer-7/"));
    receiver.abort_on("pcclGetAttribute", run[0]);
    CHECK(pcclGetAttribute(run[0], PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, nullptr) == pcclInvalidArgument);
    CHECK(receiver.aborted());
    CHECK(contains(message(run[0]), "left the run: it was aborted"));
    CHECK_FALSE(receiver.has_now("left the run"));  // no log line: the program itself called abort
    CHECK(pcclArePeersPending(run[0], &pending) == pcclInvalidUsage);
}

TEST_CASE("a lost master is said at once, as a warning") {
    MasterProcess master;
    LocalRun run(1, nullptr, master.port());
    Receiver receiver;
    master.signal(SIGKILL);
    CHECK(receiver.got("the connection to the master is gone"));
    CHECK(receiver.got("it is dialled again for at most 30000 ms, and calls wait meanwhile"));
    CHECK(contains(message(run[0]), "the connection to the master is gone"));
}

#ifndef __SANITIZE_THREAD__  // the race is what is tested
TEST_CASE("a buffer that is written while it is sent is named as the cause of damage") {
    LocalRun run(2);
    Receiver receiver;
    std::vector<std::uint64_t> first(1u << 20, 1), second(1u << 20, 2);
    const pcclReduceDescriptor_t descriptor = describe(first.size(), 1, pcclMax, pcclUint64);
    std::atomic<bool> done{false};
    std::thread writer([&] {
        auto* const words = const_cast<volatile std::uint64_t*>(first.data());
        for (std::uint64_t turn = 0; !done; ++turn)
            for (std::size_t i = 0; i < first.size() && !done; i += 64) words[i] = turn;
    });
    for (int turn = 0; turn < 1000 && !done; ++turn) {
        std::thread other([&] {
            std::vector<std::uint64_t> result(second.size());
            pcclAllReduce(second.data(), result.data(), &descriptor, run[1], nullptr);
        });
        std::thread watcher([&] {
            if (receiver.has_now("arrived damaged")) done = true;
        });
        std::vector<std::uint64_t> result(first.size());
        pcclAllReduce(first.data(), result.data(), &descriptor, run[0], nullptr);
        other.join();
        watcher.join();
    }
    done = true;
    writer.join();
    CHECK(receiver.got("arrived damaged: its program wrote to the buffer while it was being sent"));
}
#endif

TEST_CASE("a cause stands once in the text of an error") {
    LocalRun run(2);
    float value = 1;
    pcclReduceOpDescriptor_t many{&value, &value, describe(1, 6)};
    pcclComm_t* const leaver = run.take(1);
    std::thread goes([&] {
        while (!contains(statistics(run[0]), "\"votes_open\":1")) std::this_thread::yield();
        pcclDestroyCommunicator(leaver);
    });
    CHECK(pcclAllReduceMultipleWithRetry(&many, 1, run[0], nullptr, 1) == pcclTooFewPeers);
    goes.join();
    const std::string text = message(run[0]);
    CAPTURE(text);
    const std::size_t cause = text.find("all other members of the group are gone");
    REQUIRE(cause != std::string::npos);
    CHECK(text.find("all other members of the group are gone", cause + 1) == std::string::npos);
}

TEST_CASE("without a callback lines go to standard error again") {
    { const Receiver receiver; }
    const CapturedLog log;
    CHECK(pcclGetBuildInfo(nullptr) == pcclInvalidArgument);
    CHECK(log.lines_with("pcclGetBuildInfo: pcclInvalidArgument") == 1);
    CHECK(pcclSetLogCallback(nullptr, nullptr) == pcclSuccess);
}

TEST_CASE("configuration: sizes of other versions, bad values, and what is given overrides the environment") {
    pcclInit();
    const pcclCommCreateParams_t params = params_for(1);
    pcclComm_t* comm = nullptr;
    pcclCommConfig_t config = PCCL_COMM_CONFIG_INIT;
    const auto create = [&] { return pcclCreateCommunicatorWithConfig(&params, &config, &comm); };
    const auto created = [&] {
        const bool made = create() == pcclSuccess;
        if (made) pcclDestroyCommunicator(comm);
        return made;
    };
    CHECK(created());
    CHECK(pcclCreateCommunicatorWithConfig(nullptr, &config, &comm) == pcclInvalidArgument);
    CHECK(pcclCreateCommunicatorWithConfig(&params, &config, nullptr) == pcclInvalidArgument);
    config.size = 0;
    CHECK(create() == pcclInvalidArgument);
    config.size = offsetof(pcclCommConfig_t, peer_timeout_ms);  // like a program with an older struct
    config.peer_timeout_ms = 1;                                 // not part of the struct that it has
    CHECK(created());
    config.size = sizeof config;
    CHECK(create() == pcclInvalidArgument);
    CHECK(contains(message(nullptr), "PCCL_PEER_TIMEOUT_MS"));
    config.peer_timeout_ms = -7;
    CHECK(create() == pcclInvalidArgument);
    config.peer_timeout_ms = 0;
    config.master_timeout_ms = PCCL_CONFIG_NONE;
    CHECK(created());
    config.port_range = "9-8";
    CHECK(create() == pcclInvalidArgument);
    config.port_range = nullptr;
    config.reserved = 1;
    CHECK(create() == pcclInvalidArgument);
    config.reserved = 0;
    const std::string long_name(65, 'x');
    config.name = long_name.c_str();
    CHECK(create() == pcclInvalidArgument);
    config.name = nullptr;

    // A newer program: harmless as long as it uses no field that this library does not have.
    struct {
        pcclCommConfig_t known;
        std::uint64_t new_field;
    } newer{PCCL_COMM_CONFIG_INIT, 0};
    newer.known.size = sizeof newer;
    CHECK(pcclCreateCommunicatorWithConfig(&params, &newer.known, &comm) == pcclSuccess);
    pcclDestroyCommunicator(comm);
    newer.new_field = 1;
    CHECK(pcclCreateCommunicatorWithConfig(&params, &newer.known, &comm) == pcclInvalidArgument);

    // The environment alone would make the listener fail.
    LocalMaster master;
    const Variable nowhere("PCCL_BIND_ADDRESS", "203.0.113.1");
    const pcclCommCreateParams_t real_params = params_for(master.port());
    config.bind_address = "127.0.0.1";
    config.port_range = "0";
    REQUIRE(pcclCreateCommunicatorWithConfig(&real_params, &config, &comm) == pcclSuccess);
    CHECK(pcclConnect(comm) == pcclSuccess);
    pcclDestroyCommunicator(comm);
}

TEST_CASE("abort makes every call return, and the communicator may join again") {
    LocalRun run(2);
    CHECK(pcclAbort(nullptr) == pcclInvalidArgument);
    pcclComm_t* aborted = run[1];
    std::vector<float> values(100'000, 1.0f);
    const std::vector<float> before = values;
    const pcclReduceDescriptor_t descriptor = describe(values.size(), 5);
    pcclReduceOpDescriptor_t many{values.data(), values.data(), describe(values.size(), 6)};
    std::vector<float> others(1000, 2.0f);
    const pcclReduceDescriptor_t other_descriptor = describe(others.size(), 7);
    std::vector<float> rest(1000, 3.0f);
    many.sendbuf = many.recvbuf = rest.data();
    many.descriptor.count = rest.size();
    pcclAsyncReduceOp_t handle{};
    REQUIRE(pcclAllReduceAsync(others.data(), others.data(), &other_descriptor, aborted, &handle) == pcclSuccess);
    // None of these calls can end: the other member takes no part.
    std::array<pcclResult_t, 4> results{};
    std::atomic<int> begun{0};
    std::thread threads[] = {
        std::thread([&] {
            ++begun;
            results[0] = pcclAllReduce(values.data(), values.data(), &descriptor, aborted, nullptr);
        }),
        std::thread([&] {
            ++begun;
            results[1] = pcclAllReduceMultipleWithRetry(&many, 1, aborted, nullptr, 1);
        }),
        std::thread([&] {
            ++begun;
            results[2] = pcclAwaitAsyncReduce(&handle, nullptr);
        }),
        std::thread([&] {
            ++begun;
            bool pending = false;
            results[3] = pcclArePeersPending(aborted, &pending);
        }),
    };
    while (begun != 4 || !contains(statistics(aborted), "\"votes_open\":4")) std::this_thread::yield();
    CHECK(pcclAbort(aborted) == pcclSuccess);
    for (std::thread& thread : threads) thread.join();
    CHECK(results[0] == pcclRankConnectionLost);
    CHECK(results[1] == pcclTooFewPeers);
    CHECK(results[2] == pcclRankConnectionLost);
    CHECK(results[3] == pcclInvalidUsage);
    CHECK(values == before);
    for (const pcclAttribute_t which : {PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE,
                                        PCCL_ATTRIBUTE_NUM_DISTINCT_PEER_GROUPS})
        CHECK(attribute(aborted, which) == 1);
    CHECK(pcclAllReduce(values.data(), values.data(), &descriptor, aborted, nullptr) == pcclTooFewPeers);
    CHECK(pcclUpdateTopology(aborted) == pcclUpdateTopologyFailed);
    CHECK(contains(message(aborted), "aborted"));
    CHECK(pcclAbort(aborted) == pcclSuccess);  // does nothing
    pcclComm_t* again = run.take(1);
    run.rejoin(again);
    CHECK(attribute(again, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE) == 2);
    CHECK(attribute(run[0], PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE) == 2);
    CHECK(pcclDestroyCommunicator(again) == pcclSuccess);
}

TEST_CASE("a wait check ends the waits of its own thread alone") {
    LocalRun run(2);
    struct Check {
        std::atomic<int> calls{0};
        std::atomic<bool> ends{false};
        static bool asked(void* user) {
            auto& check = *static_cast<Check*>(user);
            ++check.calls;
            return check.ends;
        }
    } check;
    pcclComm_t* waiting = run[1];
    pcclResult_t checked = pcclInternalError, after = pcclInternalError, set = pcclInternalError,
                 removed = pcclInternalError;
    int calls_before = 0, calls_after = 0;
    std::thread thread([&] {
        set = pcclSetWaitCheck(&Check::asked, &check);
        // It cannot end: the other member takes no part.
        checked = pcclBarrier(1, waiting, nullptr);
        removed = pcclSetWaitCheck(nullptr, nullptr);
        calls_before = check.calls;
        after = pcclBarrier(1, waiting, nullptr);
        calls_after = check.calls;
    });
    while (check.calls < 2) std::this_thread::yield();
    CHECK(attribute(waiting, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE) == 2);
    check.ends = true;
    thread.join();
    CHECK(set == pcclSuccess);
    CHECK(removed == pcclSuccess);
    CHECK(checked == pcclRankConnectionLost);
    CHECK(after == pcclTooFewPeers);
    CHECK(calls_after == calls_before);
    CHECK(attribute(waiting, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE) == 1);
    pcclComm_t* again = run.take(1);
    run.rejoin(again);
    CHECK(attribute(run[0], PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE) == 2);
    pcclDestroyCommunicator(again);
}

TEST_CASE("abort ends a connect that waits, and does nothing before one") {
    LocalRun run(1);
    pcclComm_t* comm = nullptr;
    const pcclCommCreateParams_t params = params_for(run.port());
    REQUIRE(pcclCreateCommunicator(&params, &comm) == pcclSuccess);
    CHECK(pcclAbort(comm) == pcclSuccess);
    std::atomic<bool> done{false};
    pcclResult_t result = pcclSuccess;
    std::thread waiting([&] {
        result = pcclConnect(comm);  // nobody votes
        done = true;
    });
    while (!done) {
        CHECK(pcclAbort(comm) == pcclSuccess);
        std::this_thread::yield();
    }
    waiting.join();
    CHECK(result == pcclMasterConnectionFailed);
    pcclDestroyCommunicator(comm);
}

TEST_CASE("counters of a communicator") {
    LocalRun run(2);
    std::vector<float> a(1000, 1.0f), b(1000, 2.0f);
    const pcclReduceDescriptor_t descriptor = describe(a.size(), 1);
    std::thread other([&] { pcclAllReduce(b.data(), b.data(), &descriptor, run[1], nullptr); });
    CHECK(pcclAllReduce(a.data(), a.data(), &descriptor, run[0], nullptr) == pcclSuccess);
    other.join();
    const std::string text = statistics(run[0]);
    CAPTURE(text);
    CHECK(contains(text, "\"connects\":1,\"losses\":0"));
    CHECK(contains(text, "\"launched\":1,\"committed\":1,\"aborted\":0"));
    CHECK(contains(text, "\"sent_bytes\":4000"));
    CHECK(contains(text, "\"group_world\":2"));
    CHECK(contains(text, "\"neighbours\":[{\"peer\":\""));
    char small[4] = "abc";
    std::size_t needed = 0;
    CHECK(pcclGetStats(run[0], small, sizeof small, &needed) == pcclInvalidArgument);
    CHECK(needed > sizeof small);
    CHECK(std::string(small) == "abc");
    CHECK(pcclGetStats(run[0], nullptr, 1, nullptr) == pcclInvalidArgument);
    CHECK(pcclGetStats(nullptr, nullptr, 0, nullptr) == pcclInvalidArgument);
    pcclComm_t* fresh = nullptr;
    const pcclCommCreateParams_t params = params_for(run.port());
    REQUIRE(pcclCreateCommunicator(&params, &fresh) == pcclSuccess);
    CHECK(contains(statistics(fresh), "\"connects\":0"));
    pcclDestroyCommunicator(fresh);
}

TEST_CASE("votes that wait are explained, and with a limit crossing calls fail") {
    const Variable warn("PCCL_VOTE_WARN_S", "1");
    const Variable limit("PCCL_VOTE_TIMEOUT_S", "3");
    LocalRun run(2);
    pcclResult_t update = pcclSuccess;
    std::thread other([&] { update = pcclUpdateTopology(run[0]); });
    std::atomic<bool> done{false};
    std::string explained;
    std::thread reader([&] {
        while (!done) {
            const std::string text = message(run[0]);
            if (contains(text, "has waited")) explained = text;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    });
    float weight = 0;
    pcclTensorInfo_t tensor{"weight", &weight, 1, pcclFloat, pcclDeviceCpu, false};
    pcclSharedState_t state{0, 1, &tensor};
    CHECK(pcclSynchronizeSharedState(run[1], &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, nullptr) ==
          pcclInvalidUsage);
    CHECK(contains(message(run[1]), "update topology"));
    other.join();
    done = true;
    reader.join();
    CHECK(update == pcclInvalidUsage);
    CHECK(contains(message(run[0]), "synchronize shared state"));
    CHECK(contains(explained, "(in 'synchronize shared state'"));
    // Both are still members.
    std::thread again([&] { update = pcclUpdateTopology(run[0]); });
    CHECK(pcclUpdateTopology(run[1]) == pcclSuccess);
    again.join();
    CHECK(update == pcclSuccess);
    CHECK(attribute(run[0], PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE) == 2);
}

TEST_CASE("with a limit on votes a member that makes no call is removed") {
    const Variable limit("PCCL_VOTE_TIMEOUT_S", "1");
    LocalRun run(2);
    CHECK(pcclUpdateTopology(run[0]) == pcclSuccess);
    CHECK(attribute(run[0], PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE) == 1);
    CHECK(pcclUpdateTopology(run[1]) == pcclUpdateTopologyFailed);
    CHECK(contains(message(run[1]), "PCCL_VOTE_TIMEOUT_S"));
}

TEST_CASE("an operation that can never have its memory is refused to all") {
    pcclCommConfig_t config = PCCL_COMM_CONFIG_INIT;
    config.max_scratch_bytes = 4 << 20;
    LocalRun run(1, &config);
    run.admit();
    std::vector<float> a(2u << 20, 1.0f), b(2u << 20, 2.0f), c(2u << 20);
    const pcclReduceDescriptor_t descriptor = describe(a.size(), 1);
    pcclResult_t other = pcclSuccess;
    std::thread in_place([&] { other = pcclAllReduce(b.data(), b.data(), &descriptor, run[1], nullptr); });
    CHECK(pcclAllReduce(a.data(), a.data(), &descriptor, run[0], nullptr) == pcclInvalidUsage);
    in_place.join();
    CHECK(other == pcclInvalidUsage);
    CHECK(contains(message(run[1]), "PCCL_MAX_SCRATCH_BYTES"));
    CHECK(a.front() == 1.0f);
    std::thread again([&] { other = pcclAllReduce(b.data(), b.data(), &descriptor, run[1], nullptr); });
    CHECK(pcclAllReduce(a.data(), c.data(), &descriptor, run[0], nullptr) == pcclSuccess);
    again.join();
    CHECK(other == pcclSuccess);
    CHECK(c.back() == 3.0f);
}
