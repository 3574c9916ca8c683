// Wrong arguments and wrong order of calls. For each row of the interface: the right result, and exactly one log line
// that names the cause. Nothing here may crash, hang or affect the run.
#include "local_run.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

using namespace integration;

namespace {

// Tests never listen on fixed ports. This is set before the first communicator reads it.
const int ports_are_free = setenv("PCCL_PORT_RANGE", "0", 1);

template <class Enum>
Enum number(int value) {
    Enum result{};
    static_assert(sizeof result == sizeof value);
    std::memcpy(&result, &value, sizeof value);
    return result;
}

// The call fails with this code and logs one line that begins with the function's name.
void refused(const char* function, pcclResult_t expected, const std::function<pcclResult_t()>& call) {
    CapturedLog log;
    const pcclResult_t result = call();
    const std::string text = log.text();
    INFO(function << " logged: " << text);
    CHECK(result == expected);
    CHECK(log.lines_with(std::string(function) + ": ") + log.lines_with("repeated") >= (text.empty() ? 0 : 1));
    CHECK(log.lines_with("\n") <= 1);
}

struct Fixture {
    LocalMaster master;
    pcclComm_t* fresh = nullptr;      // never connected
    pcclComm_t* connected = nullptr;  // alone in its run
    std::array<float, 64> a{};
    std::array<float, 64> b{};

    Fixture() {
        REQUIRE(master.runs());
        REQUIRE(pcclInit() == pcclSuccess);
        const pcclCommCreateParams_t params = params_for(master.port());
        REQUIRE(pcclCreateCommunicator(&params, &fresh) == pcclSuccess);
        REQUIRE(pcclCreateCommunicator(&params, &connected) == pcclSuccess);
        REQUIRE(pcclConnect(connected) == pcclSuccess);
    }
    ~Fixture() {
        pcclDestroyCommunicator(fresh);
        pcclDestroyCommunicator(connected);
    }
};

pcclTensorInfo_t entry(const char* name, void* data, std::size_t count) {
    pcclTensorInfo_t info{};
    info.name = name;
    info.data = data;
    info.count = count;
    info.datatype = pcclFloat;
    info.device_type = pcclDeviceCpu;
    return info;
}

}  // namespace

// First in this file: Catch runs the cases of a file in order, and nothing may have called pcclInit yet.
TEST_CASE("before pcclInit") {
    pcclComm_t* comm = nullptr;
    int value = 0;
    bool pending = false;
    float x = 0;
    pcclSharedState_t state{};
    pcclAsyncReduceOp_t handle{};
    const pcclCommCreateParams_t params = params_for(1);
    const pcclReduceDescriptor_t descriptor = describe(1, 0);
    CHECK(pcclCreateCommunicator(&params, &comm) == pcclNotInitialized);
    CHECK(pcclConnect(comm) == pcclNotInitialized);
    CHECK(pcclGetAttribute(comm, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &value) == pcclNotInitialized);
    CHECK(pcclDestroyCommunicator(comm) == pcclNotInitialized);
    CHECK(pcclUpdateTopology(comm) == pcclNotInitialized);
    CHECK(pcclArePeersPending(comm, &pending) == pcclNotInitialized);
    CHECK(pcclOptimizeTopology(comm) == pcclNotInitialized);
    CHECK(pcclAllReduce(&x, &x, &descriptor, comm, nullptr) == pcclNotInitialized);
    CHECK(pcclAllReduceAsync(&x, &x, &descriptor, comm, &handle) == pcclNotInitialized);
    CHECK(pcclAwaitAsyncReduce(&handle, nullptr) == pcclNotInitialized);
    CHECK(pcclSynchronizeSharedState(comm, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, nullptr) ==
          pcclNotInitialized);
    pcclBuildInfo_t info{};
    CHECK(pcclGetBuildInfo(&info) == pcclSuccess);
    CHECK_FALSE(info.has_cuda_support);
    CHECK(pcclGetBuildInfo(nullptr) == pcclInvalidArgument);
    LocalMaster master;  // needs no pcclInit
    CHECK(master.runs());
}

TEST_CASE("creating and destroying") {
    CHECK(pcclInit() == pcclSuccess);
    CHECK(pcclInit() == pcclSuccess);
    pcclComm_t* comm = nullptr;
    pcclCommCreateParams_t params = params_for(1);
    refused("pcclCreateCommunicator", pcclInvalidArgument, [&] { return pcclCreateCommunicator(nullptr, &comm); });
    refused("pcclCreateCommunicator", pcclInvalidArgument, [&] { return pcclCreateCommunicator(&params, nullptr); });
    params.master_address.port = 0;
    refused("pcclCreateCommunicator", pcclInvalidArgument, [&] { return pcclCreateCommunicator(&params, &comm); });
    params = params_for(1);
    params.master_address.inet.protocol = number<ccoip_inet_protocol_t>(2);
    refused("pcclCreateCommunicator", pcclInvalidArgument, [&] { return pcclCreateCommunicator(&params, &comm); });
    CHECK(comm == nullptr);
    refused("pcclDestroyCommunicator", pcclInvalidArgument, [] { return pcclDestroyCommunicator(nullptr); });
    int not_a_communicator = 0;
    refused("pcclDestroyCommunicator", pcclInvalidArgument,
            [&] { return pcclDestroyCommunicator(reinterpret_cast<pcclComm_t*>(&not_a_communicator)); });
    params = params_for(1);
    params.p2p_connection_pool_size = 1'000'000;
    REQUIRE(pcclCreateCommunicator(&params, &comm) == pcclSuccess);
    CHECK(pcclDestroyCommunicator(comm) == pcclSuccess);
    refused("pcclDestroyCommunicator", pcclInvalidArgument, [&] { return pcclDestroyCommunicator(comm); });
    refused("pcclConnect", pcclInvalidArgument, [&] { return pcclConnect(comm); });
}

TEST_CASE("calls on a communicator that was never connected") {
    Fixture run;
    int value = 77;
    bool pending = false;
    pcclSharedState_t state{};
    pcclAsyncReduceOp_t handle{};
    const pcclReduceDescriptor_t descriptor = describe(8, 0);
    refused("pcclGetAttribute", pcclInvalidUsage,
            [&] { return pcclGetAttribute(run.fresh, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &value); });
    CHECK(value == 77);
    refused("pcclUpdateTopology", pcclInvalidUsage, [&] { return pcclUpdateTopology(run.fresh); });
    refused("pcclArePeersPending", pcclInvalidUsage, [&] { return pcclArePeersPending(run.fresh, &pending); });
    refused("pcclOptimizeTopology", pcclInvalidUsage, [&] { return pcclOptimizeTopology(run.fresh); });
    refused("pcclAllReduce", pcclInvalidUsage,
            [&] { return pcclAllReduce(run.a.data(), run.b.data(), &descriptor, run.fresh, nullptr); });
    refused("pcclAllReduceAsync", pcclInvalidUsage,
            [&] { return pcclAllReduceAsync(run.a.data(), run.b.data(), &descriptor, run.fresh, &handle); });
    handle = {run.fresh, 5};
    refused("pcclAwaitAsyncReduce", pcclRankConnectionLost, [&] { return pcclAwaitAsyncReduce(&handle, nullptr); });
    refused("pcclSynchronizeSharedState", pcclInvalidUsage, [&] {
        return pcclSynchronizeSharedState(run.fresh, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, nullptr);
    });
}

TEST_CASE("null pointers") {
    Fixture run;
    int value = 0;
    bool pending = false;
    pcclSharedState_t state{};
    pcclAsyncReduceOp_t handle{};
    const pcclReduceDescriptor_t descriptor = describe(8, 0);
    float* const a = run.a.data();
    refused("pcclConnect", pcclInvalidArgument, [] { return pcclConnect(nullptr); });
    refused("pcclGetAttribute", pcclInvalidArgument,
            [&] { return pcclGetAttribute(nullptr, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &value); });
    refused("pcclGetAttribute", pcclInvalidArgument,
            [&] { return pcclGetAttribute(run.connected, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, nullptr); });
    refused("pcclUpdateTopology", pcclInvalidArgument, [] { return pcclUpdateTopology(nullptr); });
    refused("pcclArePeersPending", pcclInvalidArgument, [&] { return pcclArePeersPending(nullptr, &pending); });
    refused("pcclOptimizeTopology", pcclInvalidArgument, [] { return pcclOptimizeTopology(nullptr); });
    refused("pcclArePeersPending", pcclInvalidArgument, [&] { return pcclArePeersPending(run.connected, nullptr); });
    refused("pcclAllReduce", pcclInvalidArgument, [&] { return pcclAllReduce(a, a, &descriptor, nullptr, nullptr); });
    refused("pcclAllReduce", pcclInvalidArgument, [&] { return pcclAllReduce(a, a, nullptr, run.connected, nullptr); });
    refused("pcclAllReduce", pcclInvalidArgument,
            [&] { return pcclAllReduce(nullptr, a, &descriptor, run.connected, nullptr); });
    refused("pcclAllReduce", pcclInvalidArgument,
            [&] { return pcclAllReduce(a, nullptr, &descriptor, run.connected, nullptr); });
    refused("pcclAllReduceAsync", pcclInvalidArgument,
            [&] { return pcclAllReduceAsync(a, a, &descriptor, run.connected, nullptr); });
    refused("pcclAllReduceAsync", pcclInvalidArgument,
            [&] { return pcclAllReduceAsync(a, a, nullptr, run.connected, &handle); });
    refused("pcclAwaitAsyncReduce", pcclInvalidArgument, [] { return pcclAwaitAsyncReduce(nullptr, nullptr); });
    refused("pcclAwaitAsyncReduce", pcclInvalidArgument, [&] { return pcclAwaitAsyncReduce(&handle, nullptr); });
    refused("pcclSynchronizeSharedState", pcclInvalidArgument, [&] {
        return pcclSynchronizeSharedState(nullptr, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, nullptr);
    });
    refused("pcclSynchronizeSharedState", pcclInvalidArgument, [&] {
        return pcclSynchronizeSharedState(run.connected, nullptr, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR,
                                          nullptr);
    });
}

TEST_CASE("values that are not in the enums, and what this version does not have") {
    Fixture run;
    int value = 0;
    float* const a = run.a.data();
    for (const int unknown : {0, 6, -1}) {
        refused("pcclGetAttribute", pcclInvalidArgument,
                [&] { return pcclGetAttribute(run.connected, number<pcclAttribute_t>(unknown), &value); });
    }
    std::vector<pcclReduceDescriptor_t> bad(9, describe(8, 0));
    bad[0].op = number<pcclRedOp_t>(5);
    bad[1].op = number<pcclRedOp_t>(-1);
    bad[2].src_descriptor.datatype = number<pcclDataType_t>(12);
    bad[3].src_descriptor.datatype = number<pcclDataType_t>(-1);
    bad[4].src_descriptor.distribution_hint = number<pcclDistributionHint_t>(3);
    bad[5].quantization_options.algorithm = number<pcclQuantizationAlgorithm_t>(3);
    bad[6].quantization_options.algorithm = pcclQuantMinMax;
    bad[7].quantization_options.algorithm = pcclQuantZeroPointScale;
    bad[8].count = SIZE_MAX / 2;
    for (const pcclReduceDescriptor_t& descriptor : bad) {
        pcclAsyncReduceOp_t handle{};
        refused("pcclAllReduce", pcclInvalidArgument,
                [&] { return pcclAllReduce(a, a, &descriptor, run.connected, nullptr); });
        refused("pcclAllReduceAsync", pcclInvalidArgument,
                [&] { return pcclAllReduceAsync(a, a, &descriptor, run.connected, &handle); });
    }
    CapturedLog log;
    CHECK(pcclAllReduce(a, a, &bad[6], run.connected, nullptr) == pcclInvalidArgument);
}

TEST_CASE("buffers that overlap in part") {
    Fixture run;
    const pcclReduceDescriptor_t descriptor = describe(32, 0);
    float* const a = run.a.data();
    refused("pcclAllReduce", pcclInvalidArgument,
            [&] { return pcclAllReduce(a, a + 1, &descriptor, run.connected, nullptr); });
    refused("pcclAllReduce", pcclInvalidArgument,
            [&] { return pcclAllReduce(a + 31, a, &descriptor, run.connected, nullptr); });
    // Adjacent buffers are legal. Alone in the group, the call ends with pcclTooFewPeers.
    refused("pcclAllReduce", pcclTooFewPeers,
            [&] { return pcclAllReduce(a, a + 32, &descriptor, run.connected, nullptr); });
    const pcclReduceDescriptor_t nothing = describe(0, 0);
    refused("pcclAllReduce", pcclTooFewPeers,
            [&] { return pcclAllReduce(nullptr, nullptr, &nothing, run.connected, nullptr); });
}

TEST_CASE("shared states that can never work") {
    Fixture run;
    const auto sync = [&](std::vector<pcclTensorInfo_t> infos, pcclSharedStateSyncStrategy_t strategy) {
        pcclSharedState_t state{};
        state.count = infos.size();
        state.infos = infos.data();
        return pcclSynchronizeSharedState(run.connected, &state, strategy, nullptr);
    };
    const auto popular = PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR;
    const pcclTensorInfo_t good = entry("w", run.a.data(), run.a.size());
    const std::string long_name(1025, 'x');
    std::vector<pcclTensorInfo_t> bad(8, good);
    bad[0].name = nullptr;
    bad[1].data = nullptr;
    bad[2].datatype = number<pcclDataType_t>(99);
    bad[3].device_type = pcclDeviceCuda;
    bad[4].device_type = number<pcclDeviceType_t>(2);
    bad[5].name = long_name.c_str();
    bad[6].count = SIZE_MAX / 2;
    bad[7].name = "";
    for (const pcclTensorInfo_t& info : bad) {
        refused("pcclSynchronizeSharedState", pcclInvalidArgument, [&] { return sync({info}, popular); });
    }
    refused("pcclSynchronizeSharedState", pcclInvalidArgument, [&] { return sync({good, good}, popular); });
    for (const int strategy : {3, 99, -1}) {
        refused("pcclSynchronizeSharedState", pcclInvalidArgument,
                [&] { return sync({good}, number<pcclSharedStateSyncStrategy_t>(strategy)); });
    }
    pcclSharedState_t state{};
    state.count = 1;
    refused("pcclSynchronizeSharedState", pcclInvalidArgument,
            [&] { return pcclSynchronizeSharedState(run.connected, &state, popular, nullptr); });
    // None of this changed anything: alone, a sync succeeds with 0 bytes.
    pcclSharedStateSyncInfo_t info{9, 9};
    pcclTensorInfo_t infos[] = {good};
    state.infos = infos;
    CHECK(pcclSynchronizeSharedState(run.connected, &state, popular, &info) == pcclSuccess);
    CHECK(info.tx_bytes == 0);
    CHECK(info.rx_bytes == 0);
}

TEST_CASE("master functions in the wrong order") {
    pcclMasterInstance_t* master = nullptr;
    uint16_t port = 0;
    refused("pcclCreateMaster", pcclInvalidArgument, [] { return pcclCreateMaster(loopback(0), nullptr); });
    ccoip_socket_address_t unknown = loopback(0);
    unknown.inet.protocol = number<ccoip_inet_protocol_t>(7);
    refused("pcclCreateMaster", pcclInvalidArgument, [&] { return pcclCreateMaster(unknown, &master); });
    refused("pcclRunMaster", pcclInvalidArgument, [] { return pcclRunMaster(nullptr); });
    refused("pcclInterruptMaster", pcclInvalidArgument, [] { return pcclInterruptMaster(nullptr); });
    refused("pcclMasterAwaitTermination", pcclInvalidArgument, [] { return pcclMasterAwaitTermination(nullptr); });
    refused("pcclGetMasterPort", pcclInvalidArgument, [&] { return pcclGetMasterPort(nullptr, &port); });
    refused("pcclDestroyMaster", pcclInvalidArgument, [] { return pcclDestroyMaster(nullptr); });

    REQUIRE(pcclCreateMaster(loopback(0), &master) == pcclSuccess);
    refused("pcclInterruptMaster", pcclInvalidUsage, [&] { return pcclInterruptMaster(master); });
    refused("pcclMasterAwaitTermination", pcclInvalidUsage, [&] { return pcclMasterAwaitTermination(master); });
    refused("pcclGetMasterPort", pcclInvalidUsage, [&] { return pcclGetMasterPort(master, &port); });
    REQUIRE(pcclRunMaster(master) == pcclSuccess);
    refused("pcclRunMaster", pcclInvalidUsage, [&] { return pcclRunMaster(master); });
    refused("pcclGetMasterPort", pcclInvalidArgument, [&] { return pcclGetMasterPort(master, nullptr); });
    REQUIRE(pcclGetMasterPort(master, &port) == pcclSuccess);
    CHECK(port != 0);

    pcclMasterInstance_t* second = nullptr;
    REQUIRE(pcclCreateMaster(loopback(port), &second) == pcclSuccess);  // does not bind
    refused("pcclRunMaster", pcclInvalidUsage, [&] { return pcclRunMaster(second); });
    CHECK(pcclDestroyMaster(second) == pcclSuccess);

    CHECK(pcclInterruptMaster(master) == pcclSuccess);
    CHECK(pcclInterruptMaster(master) == pcclSuccess);
    CHECK(pcclMasterAwaitTermination(master) == pcclSuccess);
    CHECK(pcclMasterAwaitTermination(master) == pcclSuccess);
    refused("pcclRunMaster", pcclInvalidUsage, [&] { return pcclRunMaster(master); });
    CHECK(pcclDestroyMaster(master) == pcclSuccess);
    refused("pcclDestroyMaster", pcclInvalidArgument, [&] { return pcclDestroyMaster(master); });
}

TEST_CASE("the interface leaves a connected communicator usable") {
    Fixture run;
    int value = 0;
    bool pending = true;
    refused("pcclConnect", pcclInvalidUsage, [&] { return pcclConnect(run.connected); });
    refused("pcclOptimizeTopology", pcclInvalidUsage, [&] { return pcclOptimizeTopology(run.connected); });  // alone
    CHECK(pcclUpdateTopology(run.connected) == pcclSuccess);
    CHECK(pcclArePeersPending(run.connected, &pending) == pcclSuccess);
    CHECK_FALSE(pending);
    for (int which = 1; which <= 4; ++which) {
        CHECK(pcclGetAttribute(run.connected, number<pcclAttribute_t>(which), &value) == pcclSuccess);
        CHECK(value == 1);
    }
}
