// See door.hpp.
#include "net-real/c_api/door.hpp"

#include "net-real/c_api/endpoint.hpp"
#include "net-real/c_api/validate.hpp"

#include <algorithm>
#include <atomic>

namespace pccl::c_api {

namespace {
std::atomic<bool> initialized{false};
}  // namespace

void set_initialized() { initialized.store(true, std::memory_order_release); }

Outcome check_initialized() {
    if (initialized.load(std::memory_order_acquire)) return success();
    return failure(pcclNotInitialized, "call pcclInit first");
}

Outcome check_pointer(const void* pointer, const char* name) {
    if (pointer != nullptr) return success();
    return invalid_argument(std::string(name) + " is null");
}

Outcome create_communicator(const pcclCommCreateParams_t* params, pcclComm_t** comm_out, real::PeerSettings settings) {
    if (Outcome ready = check_initialized(); ready.result != pcclSuccess) return ready;
    if (params == nullptr) return invalid_argument("params is null");
    if (comm_out == nullptr) return invalid_argument("comm_out is null");
    if (Outcome address = check_target(params->master_address); address.result != pcclSuccess) return address;
    settings.master = to_endpoint(params->master_address);
    settings.group = params->peer_group;
    settings.stripes = std::min(params->p2p_connection_pool_size, settings.limits.stripes_max);
    auto communicator = std::make_shared<Communicator>(std::move(settings));
    auto* handle = reinterpret_cast<pcclComm_t*>(communicator.get());
    communicators().add(handle, std::move(communicator));
    *comm_out = handle;
    return success();
}

}  // namespace pccl::c_api
