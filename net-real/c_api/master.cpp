// See master.hpp. Also defines the functions of pccl.h for the master.
#include "net-real/c_api/master.hpp"

#include "net-real/c_api/endpoint.hpp"
#include "net-real/c_api/validate.hpp"

#include <utility>

namespace pccl::c_api {
namespace {

constexpr const char* unknown_handle = "not a live master handle (null, destroyed or never made); use pcclCreateMaster";
constexpr const char* foreign_handle = "this master belongs to the process that called fork; make another one";
constexpr const char* never_run = "the master was never run; call pcclRunMaster first";

template <class Call>
pcclResult_t on_master(const char* function, pcclMasterInstance_t* handle, Call&& call) noexcept {
    return guarded(function, [&]() -> Outcome {
        const Lease<Master> master = masters().find(handle);
        if (!master) return invalid_argument(unknown_handle);
        if (master.foreign()) return invalid_usage(foreign_handle);
        Outcome outcome = call(*master);
        outcome.who = "master";
        return outcome;
    });
}

}  // namespace

Outcome Master::run() {
    const std::lock_guard lock(run_mutex_);
    if (stopped_) return invalid_usage("the master is being destroyed; make another one");
    if (runtime() != nullptr) return invalid_usage("the master was run already; make another one");
    auto made = std::make_unique<real::MasterRuntime>(real::master_settings_from_environment());
    std::string error;
    if (!made->bind(address_, error)) return invalid_usage(error);
    if (!made->run(error)) return failure(pcclInternalError, error);
    owned_ = std::move(made);
    published_.store(owned_.get(), std::memory_order_release);
    return success();
}

Outcome Master::interrupt() {
    if (runtime() == nullptr) return invalid_usage(never_run);
    runtime()->interrupt();
    return success();
}

Outcome Master::await_termination() {
    if (runtime() == nullptr) return invalid_usage(never_run);
    runtime()->await_termination();
    return success();
}

Outcome Master::port(std::uint16_t& port) const {
    if (runtime() == nullptr) return invalid_usage(never_run);
    port = runtime()->port();
    return success();
}

void Master::stop() {
    {
        // A run() that has begun publishes its master first. A later one makes none.
        const std::lock_guard lock(run_mutex_);
        stopped_ = true;
    }
    if (runtime() == nullptr) return;
    runtime()->stop();
    runtime()->await_termination();
}

}  // namespace pccl::c_api

using namespace pccl::c_api;

extern "C" {

PCCL_EXPORT pcclResult_t pcclCreateMaster(ccoip_socket_address_t listen_address, pcclMasterInstance_t** master_out) {
    return guarded("pcclCreateMaster", [&]() -> Outcome {
        if (master_out == nullptr) return invalid_argument("master_out is null");
        if (Outcome address = check_address(listen_address); address.result != pcclSuccess) return address;
        auto master = std::make_shared<Master>(to_endpoint(listen_address));
        auto* handle = reinterpret_cast<pcclMasterInstance_t*>(master.get());
        masters().add(handle, std::move(master));
        *master_out = handle;
        return success();
    });
}

PCCL_EXPORT pcclResult_t pcclRunMaster(pcclMasterInstance_t* master) {
    return on_master("pcclRunMaster", master, [](Master& live) { return live.run(); });
}

PCCL_EXPORT pcclResult_t pcclInterruptMaster(pcclMasterInstance_t* master) {
    return on_master("pcclInterruptMaster", master, [](Master& live) { return live.interrupt(); });
}

PCCL_EXPORT pcclResult_t pcclMasterAwaitTermination(pcclMasterInstance_t* master) {
    return on_master("pcclMasterAwaitTermination", master, [](Master& live) { return live.await_termination(); });
}

PCCL_EXPORT pcclResult_t pcclGetMasterPort(pcclMasterInstance_t* master, uint16_t* port_out) {
    return on_master("pcclGetMasterPort", master, [&](Master& live) -> Outcome {
        if (port_out == nullptr) return invalid_argument("port_out is null");
        return live.port(*port_out);
    });
}

PCCL_EXPORT pcclResult_t pcclDestroyMaster(pcclMasterInstance_t* master) {
    return guarded("pcclDestroyMaster", [&]() -> Outcome {
        std::shared_ptr<Master> taken = masters().take(master);
        if (!taken) return invalid_argument(unknown_handle);
        if (taken->belongs_to_another_process()) {
            // Its thread and locks do not exist in this process, so it is leaked. Its descriptors were closed at the
            // fork.
            new std::shared_ptr<Master>(std::move(taken));
            return success();
        }
        taken->stop();
        taken->wait_until_unused();
        return success();
    });
}

}  // extern "C"
