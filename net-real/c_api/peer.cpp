// The functions of pccl.h that concern the library and communicators: arguments are checked, the handle is looked up, and
// a Communicator does the rest.
#include "net-real/c_api/communicator.hpp"
#include "net-real/c_api/endpoint.hpp"
#include "net-real/c_api/validate.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

using namespace pccl::c_api;

namespace {

constexpr const char* unknown_handle =
    "not a live communicator handle (null, destroyed or never made); use pcclCreateCommunicator";
constexpr const char* foreign_handle = "this communicator belongs to the process that called fork; make another one";

std::atomic<bool> initialized{false};

Outcome check_initialized() {
    if (initialized.load(std::memory_order_acquire)) return success();
    return failure(pcclNotInitialized, "call pcclInit first");
}

// `arguments` runs before the handle is looked up, `call` with the live communicator.
template <class Arguments, class Call>
pcclResult_t on_communicator(const char* function, const pcclComm_t* handle, Arguments&& arguments,
                             Call&& call) noexcept {
    return guarded(function, [&]() -> Outcome {
        if (Outcome ready = check_initialized(); ready.result != pcclSuccess) return ready;
        if (handle == nullptr) return invalid_argument("the communicator is null");
        if (Outcome checked = arguments(); checked.result != pcclSuccess) return checked;
        const Lease<Communicator> communicator = communicators().find(handle);
        if (!communicator) return invalid_argument(unknown_handle);
        if (communicator.foreign()) return invalid_usage(foreign_handle);
        return call(*communicator);
    });
}

Outcome check_pointer(const void* pointer, const char* name) {
    if (pointer != nullptr) return success();
    return invalid_argument(std::string(name) + " is null");
}

Outcome check_reduce_arguments(const void* send, const void* receive, const pcclReduceDescriptor_t* descriptor) {
    if (descriptor == nullptr) return invalid_argument("descriptor is null");
    return check_reduce(send, receive, *descriptor);
}

}  // namespace

extern "C" {

PCCL_EXPORT pcclResult_t pcclInit(void) {
    initialized.store(true, std::memory_order_release);
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
    return guarded("pcclCreateCommunicator", [&]() -> Outcome {
        if (Outcome ready = check_initialized(); ready.result != pcclSuccess) return ready;
        if (params == nullptr) return invalid_argument("params is null");
        if (comm_out == nullptr) return invalid_argument("comm_out is null");
        if (Outcome address = check_address(params->master_address); address.result != pcclSuccess) return address;
        if (params->master_address.port == 0)
            return invalid_argument("no master listens on port 0; give its real port");
        pccl::real::PeerSettings settings = pccl::real::peer_settings_from_environment();
        settings.master = to_endpoint(params->master_address);
        settings.group = params->peer_group;
        settings.stripes = std::min(params->p2p_connection_pool_size, settings.limits.stripes_max);
        auto communicator = std::make_shared<Communicator>(std::move(settings));
        auto* handle = reinterpret_cast<pcclComm_t*>(communicator.get());
        communicators().add(handle, std::move(communicator));
        *comm_out = handle;
        return success();
    });
}

PCCL_EXPORT pcclResult_t pcclConnect(pcclComm_t* comm) {
    return on_communicator("pcclConnect", comm, success, [](Communicator& live) { return live.connect(); });
}

PCCL_EXPORT pcclResult_t pcclGetAttribute(const pcclComm_t* comm, pcclAttribute_t attribute, int* value_out) {
    const std::uint32_t number = raw_value(attribute);
    return on_communicator(
        "pcclGetAttribute", comm,
        [&]() -> Outcome {
            if (number < PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE || number > PCCL_ATTRIBUTE_LARGEST_PEER_GROUP_WORLD_SIZE) {
                return invalid_argument("unknown attribute " + std::to_string(number) + "; use a pcclAttribute_t");
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
            // Its threads and locks are not in this process: only descriptors are let go, the memory stays.
            taken->abandon_in_child();
            new std::shared_ptr<Communicator>(std::move(taken));
            return success();
        }
        taken->stop();
        taken->wait_until_unused();
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
            // Handles are shallow: what the caller passed as const was never created const.
            if (outcome.result == pcclSuccess) *reduce_handle_out = {const_cast<pcclComm_t*>(comm), descriptor->tag};
            return outcome;
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
