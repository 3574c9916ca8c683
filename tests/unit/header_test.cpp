// The frozen interface of the library: every value, size and offset of pccl.h, ccoip_inet.h and ccoip.h, as programs
// that were compiled long ago expect them (x86-64 and aarch64, LP64). The compiler checks most of it, so a build that
// succeeds has passed. header_test.sh compiles each header alone at each language level.
#include "include/ccoip.h"
#include "include/pccl.h"

#include "core/events.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <fstream>
#include <string>
#include <type_traits>

namespace {

#define VALUE(name, number) static_assert(static_cast<long>(name) == (number), #name)
#define LAYOUT(type, bytes, align) static_assert(sizeof(type) == (bytes) && alignof(type) == (align), #type)
#define FIELD(type, field, offset, bytes)                                                                              \
    static_assert(offsetof(type, field) == (offset) && sizeof(type::field) == (bytes), #type "." #field)

static_assert(sizeof(pcclResult_t) == 4 && sizeof(pcclDataType_t) == 4 && sizeof(pcclDeviceType_t) == 4);
static_assert(sizeof(pcclRedOp_t) == 4 && sizeof(pcclAttribute_t) == 4 && sizeof(pcclSharedStateSyncStrategy_t) == 4);
static_assert(sizeof(pcclDistributionHint_t) == 4 && sizeof(pcclQuantizationAlgorithm_t) == 4);
static_assert(sizeof(ccoip_inet_protocol_t) == 4);

VALUE(pcclSuccess, 0);
VALUE(pcclNotInitialized, 1);
VALUE(pcclInternalError, 2);
VALUE(pcclInvalidArgument, 3);
VALUE(pcclInvalidUsage, 4);
VALUE(pcclTooFewPeers, 5);
VALUE(pcclMasterConnectionFailed, 6);
VALUE(pcclRankConnectionFailed, 7);
VALUE(pcclRankConnectionLost, 8);
VALUE(pcclNoSharedStateAvailable, 9);
VALUE(pcclPendingAsyncOps, 10);
VALUE(pcclUpdateTopologyFailed, 11);
VALUE(pcclTopologyOptimizationFailed, 12);

VALUE(pcclUint8, 0);
VALUE(pcclInt8, 1);
VALUE(pcclInt16, 2);
VALUE(pcclUint16, 3);
VALUE(pcclUint32, 4);
VALUE(pcclInt32, 5);
VALUE(pcclUint64, 6);
VALUE(pcclInt64, 7);
VALUE(pcclFloat16, 8);
VALUE(pcclBFloat16, 9);
VALUE(pcclFloat, 10);
VALUE(pcclDouble, 11);

VALUE(pcclDeviceCpu, 0);
VALUE(pcclDeviceCuda, 1);

VALUE(pcclSum, 0);
VALUE(pcclAvg, 1);
VALUE(pcclProd, 2);
VALUE(pcclMax, 3);
VALUE(pcclMin, 4);

VALUE(PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, 1);
VALUE(PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE, 2);
VALUE(PCCL_ATTRIBUTE_NUM_DISTINCT_PEER_GROUPS, 3);
VALUE(PCCL_ATTRIBUTE_LARGEST_PEER_GROUP_WORLD_SIZE, 4);

VALUE(PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, 0);
VALUE(PCCL_SHARED_STATE_SYNC_STRATEGY_RECEIVE_ONLY, 1);
VALUE(PCCL_SHARED_STATE_SYNC_STRATEGY_SEND_ONLY, 2);

VALUE(pcclDistributionNone, 0);
VALUE(pcclDistributionNormal, 1);
VALUE(pcclDistributionUniform, 2);
VALUE(pcclQuantNone, 0);
VALUE(pcclQuantMinMax, 1);
VALUE(pcclQuantZeroPointScale, 2);
VALUE(inetIPv4, 0);
VALUE(inetIPv6, 1);

VALUE(CCOIP_PROTOCOL_PORT_MASTER, 48148);
VALUE(CCOIP_PROTOCOL_PORT_SHARED_STATE, 48149);
VALUE(CCOIP_PROTOCOL_PORT_P2P, 48150);
VALUE(CCOIP_PROTOCOL_PORT_BANDWIDTH_BENCHMARK, 48151);

LAYOUT(ccoip_ipv4_address_t, 4, 1);
LAYOUT(ccoip_ipv6_address_t, 16, 1);
LAYOUT(ccoip_inet_address_t, 24, 4);
FIELD(ccoip_inet_address_t, protocol, 0, 4);
FIELD(ccoip_inet_address_t, ipv4, 4, 4);
FIELD(ccoip_inet_address_t, ipv6, 8, 16);
LAYOUT(ccoip_socket_address_t, 28, 4);
FIELD(ccoip_socket_address_t, inet, 0, 24);
FIELD(ccoip_socket_address_t, port, 24, 2);

LAYOUT(pcclCommCreateParams_t, 36, 4);
FIELD(pcclCommCreateParams_t, master_address, 0, 28);
FIELD(pcclCommCreateParams_t, peer_group, 28, 4);
FIELD(pcclCommCreateParams_t, p2p_connection_pool_size, 32, 4);

LAYOUT(pcclReduceInfo_t, 24, 8);
FIELD(pcclReduceInfo_t, local_world_size, 0, 4);
FIELD(pcclReduceInfo_t, tx_bytes, 8, 8);
FIELD(pcclReduceInfo_t, rx_bytes, 16, 8);

LAYOUT(pcclReduceOperandDescriptor_t, 8, 4);
FIELD(pcclReduceOperandDescriptor_t, datatype, 0, 4);
FIELD(pcclReduceOperandDescriptor_t, distribution_hint, 4, 4);

LAYOUT(pcclQuantizationOptions_t, 8, 4);
FIELD(pcclQuantizationOptions_t, quantized_datatype, 0, 4);
FIELD(pcclQuantizationOptions_t, algorithm, 4, 4);

LAYOUT(pcclReduceDescriptor_t, 40, 8);
FIELD(pcclReduceDescriptor_t, count, 0, 8);
FIELD(pcclReduceDescriptor_t, op, 8, 4);
FIELD(pcclReduceDescriptor_t, tag, 16, 8);
FIELD(pcclReduceDescriptor_t, src_descriptor, 24, 8);
FIELD(pcclReduceDescriptor_t, quantization_options, 32, 8);

LAYOUT(pcclReduceOpDescriptor_t, 56, 8);
FIELD(pcclReduceOpDescriptor_t, sendbuf, 0, 8);
FIELD(pcclReduceOpDescriptor_t, recvbuf, 8, 8);
FIELD(pcclReduceOpDescriptor_t, descriptor, 16, 40);
static_assert(std::is_same_v<pcclReduceOpDescriptor_t, struct pcclReduceSingleDescriptor_t>);
static_assert(std::is_same_v<decltype(pcclReduceOpDescriptor_t::sendbuf), void*>);
static_assert(std::is_same_v<decltype(pcclReduceOpDescriptor_t::recvbuf), void*>);

LAYOUT(pcclAsyncReduceOp_t, 16, 8);
FIELD(pcclAsyncReduceOp_t, comm, 0, 8);
FIELD(pcclAsyncReduceOp_t, tag, 8, 8);
static_assert(std::is_same_v<decltype(pcclAsyncReduceOp_t::comm), pcclComm_t*>);

LAYOUT(pcclRankUuid_t, 16, 1);
FIELD(pcclRankUuid_t, data, 0, 16);

LAYOUT(pcclTensorInfo_t, 40, 8);
FIELD(pcclTensorInfo_t, name, 0, 8);
FIELD(pcclTensorInfo_t, data, 8, 8);
FIELD(pcclTensorInfo_t, count, 16, 8);
FIELD(pcclTensorInfo_t, datatype, 24, 4);
FIELD(pcclTensorInfo_t, device_type, 28, 4);
FIELD(pcclTensorInfo_t, allow_content_inequality, 32, 1);

LAYOUT(pcclSharedState_t, 24, 8);
FIELD(pcclSharedState_t, revision, 0, 8);
FIELD(pcclSharedState_t, count, 8, 8);
FIELD(pcclSharedState_t, infos, 16, 8);

LAYOUT(pcclSharedStateSyncInfo_t, 16, 8);
FIELD(pcclSharedStateSyncInfo_t, tx_bytes, 0, 8);
FIELD(pcclSharedStateSyncInfo_t, rx_bytes, 8, 8);

LAYOUT(pcclBuildInfo_t, 1, 1);
FIELD(pcclBuildInfo_t, has_cuda_support, 0, 1);

// Opaque types: the tags are part of the interface too (forward declarations in user headers).
static_assert(std::is_same_v<pcclComm_t, struct pcclComm_t>);
static_assert(std::is_same_v<pcclRankInfo_t, struct pcclRankInfo_t>);
static_assert(std::is_same_v<pcclMasterInstance_t, struct pcclMasterInstanceState_t>);

// Signatures of all functions.
#define SIGNATURE(function, ...)                                                                                       \
    static_assert(std::is_same_v<decltype(&function), pcclResult_t (*)(__VA_ARGS__)>, #function)
SIGNATURE(pcclInit, );
SIGNATURE(pcclGetBuildInfo, pcclBuildInfo_t*);
SIGNATURE(pcclCreateCommunicator, const pcclCommCreateParams_t*, pcclComm_t**);
SIGNATURE(pcclConnect, pcclComm_t*);
SIGNATURE(pcclGetAttribute, const pcclComm_t*, pcclAttribute_t, int*);
SIGNATURE(pcclDestroyCommunicator, pcclComm_t*);
SIGNATURE(pcclUpdateTopology, pcclComm_t*);
SIGNATURE(pcclArePeersPending, const pcclComm_t*, bool*);
SIGNATURE(pcclOptimizeTopology, const pcclComm_t*);
SIGNATURE(pcclAllReduce, const void*, void*, const pcclReduceDescriptor_t*, const pcclComm_t*, pcclReduceInfo_t*);
SIGNATURE(pcclAllReduceAsync, const void*, void*, const pcclReduceDescriptor_t*, const pcclComm_t*,
          pcclAsyncReduceOp_t*);
SIGNATURE(pcclAwaitAsyncReduce, const pcclAsyncReduceOp_t*, pcclReduceInfo_t*);
SIGNATURE(pcclSynchronizeSharedState, const pcclComm_t*, pcclSharedState_t*, pcclSharedStateSyncStrategy_t,
          pcclSharedStateSyncInfo_t*);
SIGNATURE(pcclCreateMaster, ccoip_socket_address_t, pcclMasterInstance_t**);
SIGNATURE(pcclRunMaster, pcclMasterInstance_t*);
SIGNATURE(pcclInterruptMaster, pcclMasterInstance_t*);
SIGNATURE(pcclMasterAwaitTermination, pcclMasterInstance_t*);
SIGNATURE(pcclDestroyMaster, pcclMasterInstance_t*);
SIGNATURE(pcclGetMasterPort, pcclMasterInstance_t*, uint16_t*);

// The core's own numbers equal those of the interface.
static_assert(static_cast<long>(pccl::core::Result::topology_optimization_failed) == pcclTopologyOptimizationFailed);
static_assert(static_cast<long>(pccl::core::DataType::f64) == pcclDouble);
static_assert(static_cast<long>(pccl::core::ReduceOp::min) == pcclMin);

}  // namespace

TEST_CASE("the version in the header is the version of the tree") {
    std::ifstream file(PCCL_SOURCE_DIR "/VERSION");
    std::string text;
    REQUIRE(file >> text);
    const std::string header = std::to_string(PCCL_VERSION_MAJOR) + "." + std::to_string(PCCL_VERSION_MINOR) + "." +
                               std::to_string(PCCL_VERSION_PATCH);
    CHECK(text == header);
}

TEST_CASE("an optional pointer is marked by nothing at all") {
    // PCCL_NULLABLE must expand to nothing: it stands between a type and a name.
    int* PCCL_NULLABLE pointer = nullptr;
    CHECK(pointer == nullptr);
}
