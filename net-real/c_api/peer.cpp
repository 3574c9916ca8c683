// The functions of pccl.h for the library and for communicators. They check the arguments and look up the handle; a
// Communicator does the rest.
#include "core/base/format.hpp"
#include "net-real/c_api/door.hpp"
#include "net-real/c_api/endpoint.hpp"
#include "net-real/c_api/validate.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

using namespace pccl::c_api;

namespace {

Outcome check_reduce_arguments(const void* send, const void* receive, const pcclReduceDescriptor_t* descriptor) {
    if (descriptor == nullptr) return invalid_argument("descriptor is null");
    return check_reduce(send, receive, *descriptor);
}

}  // namespace

extern "C" {

PCCL_EXPORT pcclResult_t pcclInit(void) {
    set_initialized();
    return pcclSuccess;
}

PCCL_EXPORT pcclResult_t pcclGetBuildInfo(pcclBuildInfo_t* info) {
    return guarded("pcclGetBuildInfo", [&]() -> Outcome {
        if (info == nullptr) return invalid_argument("info is null");
        info->has_cuda_support = false;
        return success();
    });
}

PCCL_EXPORT pcclResult_t pcclCreateCommunicator(const pcclCommCreateParams_t* params, pcclComm_t** comm_out) {
    return guarded("pcclCreateCommunicator",
                   [&] { return create_communicator(params, comm_out, pccl::real::peer_settings_from_environment()); });
}

PCCL_EXPORT pcclResult_t pcclConnect(pcclComm_t* comm) {
    return on_communicator("pcclConnect", comm, success, [](Communicator& live) { return live.connect(); });
}

PCCL_EXPORT pcclResult_t pcclGetAttribute(const pcclComm_t* comm, pcclAttribute_t attribute, int* value_out) {
    const std::uint32_t number = raw_value(attribute);
    return on_communicator(
        "pcclGetAttribute", comm,
        [&]() -> Outcome {
            if (number < PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE ||
                number > static_cast<std::uint32_t>(PCCL_ATTRIBUTE_NUM_GANGS)) {
                return invalid_argument(pccl::core::formatted("unknown attribute {}; use a pcclAttribute_t", number));
            }
            return check_pointer(value_out, "value_out");
        },
        [&](Communicator& live) { return live.attribute(number, *value_out); });
}

PCCL_EXPORT pcclResult_t pcclDestroyCommunicator(pcclComm_t* comm) {
    return guarded("pcclDestroyCommunicator", [&]() -> Outcome {
        if (Outcome ready = check_initialized(); ready.result != pcclSuccess) return ready;
        if (comm == nullptr) return invalid_argument("the communicator is null");
        std::shared_ptr<Communicator> taken = communicators().take(comm);
        if (!taken) return invalid_argument(unknown_handle);
        if (taken->belongs_to_another_process()) {
            // Its threads and locks do not exist in this process, so its memory is leaked. Its descriptors are closed
            // already.
            taken->abandon_in_child();
            new std::shared_ptr<Communicator>(std::move(taken));
            return success();
        }
        taken->stop();
        taken->wait_until_unused();
        taken->finish_callbacks();
        return success();
    });
}

PCCL_EXPORT pcclResult_t pcclUpdateTopology(pcclComm_t* comm) {
    return on_communicator("pcclUpdateTopology", comm, success,
                           [](Communicator& live) { return live.update_topology(); });
}

PCCL_EXPORT pcclResult_t pcclArePeersPending(const pcclComm_t* comm, bool* pending_out) {
    return on_communicator(
        "pcclArePeersPending", comm, [&] { return check_pointer(pending_out, "pending_out"); },
        [&](Communicator& live) { return live.are_peers_pending(*pending_out); });
}

PCCL_EXPORT pcclResult_t pcclOptimizeTopology(const pcclComm_t* comm) {
    return on_communicator("pcclOptimizeTopology", comm, success,
                           [](Communicator& live) { return live.optimize_topology(); });
}

PCCL_EXPORT pcclResult_t pcclAllReduce(const void* sendbuf, void* recvbuf, const pcclReduceDescriptor_t* descriptor,
                                       const pcclComm_t* comm, pcclReduceInfo_t* info_out) {
    return on_communicator(
        "pcclAllReduce", comm, [&] { return check_reduce_arguments(sendbuf, recvbuf, descriptor); },
        [&](Communicator& live) { return live.launch_and_await(sendbuf, recvbuf, *descriptor, info_out); });
}

PCCL_EXPORT pcclResult_t pcclAllReduceAsync(const void* sendbuf, void* recvbuf,
                                            const pcclReduceDescriptor_t* descriptor, const pcclComm_t* comm,
                                            pcclAsyncReduceOp_t* reduce_handle_out) {
    return on_communicator(
        "pcclAllReduceAsync", comm,
        [&]() -> Outcome {
            if (reduce_handle_out == nullptr) return invalid_argument("reduce_handle_out is null");
            return check_reduce_arguments(sendbuf, recvbuf, descriptor);
        },
        [&](Communicator& live) {
            Outcome outcome = live.launch(sendbuf, recvbuf, *descriptor);
            // Handles are shallow: an object behind a const handle was never created const.
            if (outcome.result == pcclSuccess) *reduce_handle_out = {const_cast<pcclComm_t*>(comm), descriptor->tag};
            return outcome;
        });
}

PCCL_EXPORT pcclResult_t pcclAllReduceMultipleWithRetry(const pcclReduceOpDescriptor_t* descriptors, size_t op_count,
                                                        const pcclComm_t* comm, pcclReduceInfo_t* info_out,
                                                        int max_in_flight) {
    return on_communicator(
        "pcclAllReduceMultipleWithRetry", comm,
        [&]() -> Outcome {
            if (descriptors == nullptr) return invalid_argument("descriptors is null");
            if (op_count == 0) return invalid_argument("op_count is 0: there is nothing to reduce");
            if (max_in_flight < 1) {
                return invalid_argument(pccl::core::formatted(
                    "max_in_flight is {}; 1 is the least, several operations at a time use the network better",
                    max_in_flight));
            }
            const std::size_t tags_max = pccl::core::Limits{}.tags_max;
            if (op_count > tags_max) {
                return invalid_argument(
                    pccl::core::formatted("{} operations are more than {}; make several calls", op_count, tags_max));
            }
            for (std::size_t i = 0; i < op_count; ++i) {
                const pcclReduceOpDescriptor_t& one = descriptors[i];
                Outcome checked = check_reduce(one.sendbuf, one.recvbuf, one.descriptor);
                if (checked.result == pcclSuccess) continue;
                checked.message = pccl::core::formatted("descriptor {}: {}", i, checked.message);
                return checked;
            }
            return success();
        },
        [&](Communicator& live) {
            return live.reduce_many(descriptors, op_count, static_cast<std::uint32_t>(max_in_flight), info_out);
        });
}

PCCL_EXPORT pcclResult_t pcclAwaitAsyncReduce(const pcclAsyncReduceOp_t* reduce_handle, pcclReduceInfo_t* info_out) {
    return on_communicator("pcclAwaitAsyncReduce", reduce_handle == nullptr ? nullptr : reduce_handle->comm, success,
                           [&](Communicator& live) { return live.await(reduce_handle->tag, info_out); });
}

PCCL_EXPORT pcclResult_t pcclSynchronizeSharedState(const pcclComm_t* comm, pcclSharedState_t* state,
                                                    pcclSharedStateSyncStrategy_t strategy,
                                                    pcclSharedStateSyncInfo_t* info_out) {
    const std::uint32_t number = raw_value(strategy);
    return on_communicator(
        "pcclSynchronizeSharedState", comm,
        [&]() -> Outcome {
            if (state == nullptr) return invalid_argument("state is null");
            return check_shared_state(*state, number);
        },
        [&](Communicator& live) { return live.synchronize(*state, number, info_out); });
}

}  // extern "C"
