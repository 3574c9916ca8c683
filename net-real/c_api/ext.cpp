// The functions of pccl/ext.h, except the counters (statistics.cpp).
#include "core/base/cause.hpp"
#include "core/base/format.hpp"
#include "core/wire/convert.hpp"
#include "net-real/c_api/door.hpp"
#include "net-real/log_callback.hpp"
#include "net-real/settings.hpp"
#include "net-real/wait_check.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

using namespace pccl::c_api;
using namespace pccl;

namespace {

constexpr std::size_t name_max = 64;

static_assert(static_cast<int>(pcclLogTrace) == static_cast<int>(real::Severity::trace));
static_assert(static_cast<int>(pcclLogFatal) == static_cast<int>(real::Severity::fatal));

// Copies the fields that the caller's struct has. The other fields are 0.
Outcome read_config(const pcclCommConfig_t* given, pcclCommConfig_t& config) {
    config = {};
    std::memcpy(&config.size, &given->size, sizeof config.size);
    if (config.size < sizeof config.size || config.size > 4096) {
        return invalid_argument(pccl::core::formatted(
            "config->size is {}; begin with pcclCommConfig_t config = PCCL_COMM_CONFIG_INIT", config.size));
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (std::size_t i = sizeof config; i < config.size; ++i) {
        if (bytes[i] != 0) {
            return invalid_argument(pccl::core::formatted("config uses fields that this version of the library ({}.{}) "
                                                          "does not know; leave them 0, or use a newer library",
                                                          PCCL_VERSION_MAJOR, PCCL_VERSION_MINOR));
        }
    }
    std::memcpy(&config, given, std::min(config.size, sizeof config));
    if (config.reserved != 0) return invalid_argument("config->reserved is not 0");
    return success();
}

// The gang of a configuration; without a name: none.
Outcome read_gang(const pcclCommConfig_t& config, real::PeerSettings& settings) {
    if (config.gang_name == nullptr) {
        if (config.gang_size == 0 && config.gang_place == 0 && config.gang_timeout_ms == 0) return success();
        return invalid_argument("config->gang_size, gang_place or gang_timeout_ms is set, and gang_name is not");
    }
    const core::Limits limits;
    const core::Gang gang{config.gang_name, config.gang_size, config.gang_place};
    if (!core::is_possible(gang, limits))
        return invalid_argument(core::to_text(
            core::make_cause<core::CauseKind::gang_impossible>(limits.gang_name_bytes_max, limits.gang_size_max)));
    const std::int64_t timeout = config.gang_timeout_ms == PCCL_CONFIG_NONE ? 0 : config.gang_timeout_ms;
    if (timeout < 0 || timeout > UINT32_MAX)
        return invalid_argument(core::formatted("config->gang_timeout_ms is {}; use 0 to {}", timeout, UINT32_MAX));
    settings.gang = gang;
    settings.gang_patience = timeout * core::millisecond;
    return success();
}

class Application {
public:
    explicit Application(real::EnvironmentSettings& settings) : settings_(settings) {}
    void text(real::Setting setting, const char* value) {
        if (value != nullptr) apply(setting, value);
    }
    void number(real::Setting setting, std::int64_t value) {
        if (value != 0) apply(setting, std::to_string(value == PCCL_CONFIG_NONE ? 0 : value));
    }
    const std::string& why() const { return why_; }

private:
    void apply(real::Setting setting, std::string_view value) {
        if (why_.empty()) static_cast<void>(real::apply_setting(setting, value, settings_, why_));
    }
    real::EnvironmentSettings& settings_;
    std::string why_;
};

Outcome apply_config(const pcclCommConfig_t& config, real::EnvironmentSettings& settings) {
    Application to(settings);
    to.text(real::Setting::bind_address, config.bind_address);
    to.text(real::Setting::advertise_address, config.advertise_address);
    to.text(real::Setting::port_range, config.port_range);
    to.text(real::Setting::tcp_congestion, config.tcp_congestion);
    to.text(real::Setting::invite, config.invite);
    to.number(real::Setting::peer_timeout, config.peer_timeout_ms);
    to.number(real::Setting::master_timeout, config.master_timeout_ms);
    to.number(real::Setting::scratch_bytes, config.max_scratch_bytes);
    to.number(real::Setting::concurrent_ops, config.max_concurrent_collective_ops);
    to.number(real::Setting::chunk_size, config.multiplex_chunk_size);
    to.number(real::Setting::benchmark_connections, config.num_benchmark_connections);
    if (!to.why().empty()) return invalid_argument("config: " + to.why());
    if (config.name != nullptr && std::strlen(config.name) > name_max)
        return invalid_argument(pccl::core::formatted("config->name is longer than {} bytes", name_max));
    return success();
}

}  // namespace

extern "C" {

PCCL_EXPORT const char* pcclGetErrorName(pcclResult_t result) {
    return to_text(static_cast<pcclResult_t>(raw_value(result)));
}

PCCL_EXPORT const char* pcclGetErrorString(pcclResult_t result) {
    return describe(static_cast<pcclResult_t>(raw_value(result)));
}

PCCL_EXPORT const char* pcclGetLastErrorMessage(const pcclComm_t* comm) {
    try {
        if (comm == nullptr) return last_message_of_thread().c_str();
        thread_local std::string copy;
        const Lease<Communicator> communicator = communicators().find(comm);
        if (!communicator || communicator.foreign()) return !communicator ? unknown_handle : foreign_handle;
        copy = communicator->last_message();
        return copy.c_str();
    } catch (...) {
        return "out of memory";
    }
}

PCCL_EXPORT pcclResult_t pcclGetVersion(int* major, int* minor, int* patch) {
    if (major != nullptr) *major = PCCL_VERSION_MAJOR;
    if (minor != nullptr) *minor = PCCL_VERSION_MINOR;
    if (patch != nullptr) *patch = PCCL_VERSION_PATCH;
    return pcclSuccess;
}

PCCL_EXPORT pcclResult_t pcclSetLogCallback(pcclLogCallback_t callback, void* user) {
    return guarded("pcclSetLogCallback", [&] {
        if (callback == nullptr) {
            real::set_log_callback({});
            return success();
        }
        real::set_log_callback([callback, user](int level, const char* line) {
            callback(static_cast<pcclLogLevel_t>(level), line, user);
        });
        return success();
    });
}

PCCL_EXPORT pcclResult_t pcclCreateCommunicatorWithConfig(const pcclCommCreateParams_t* params,
                                                          const pcclCommConfig_t* config, pcclComm_t** comm_out) {
    return guarded("pcclCreateCommunicatorWithConfig", [&]() -> Outcome {
        pcclCommConfig_t known{};
        real::EnvironmentSettings settings = real::read_environment();
        if (config != nullptr) {
            if (Outcome read = read_config(config, known); read.result != pcclSuccess) return read;
            if (Outcome applied = apply_config(known, settings); applied.result != pcclSuccess) return applied;
        }
        real::PeerSettings peer = real::peer_settings_from(settings);
        if (known.name != nullptr) peer.name = known.name;
        if (Outcome read = read_gang(known, peer); read.result != pcclSuccess) return read;
        return create_communicator(params, comm_out, std::move(peer));
    });
}

PCCL_EXPORT pcclResult_t pcclAbort(pcclComm_t* comm) {
    return on_communicator("pcclAbort", comm, success, [](Communicator& live) { return live.abort(); });
}

PCCL_EXPORT pcclResult_t pcclSetWaitCheck(pcclWaitCheck_t check, void* user) {
    real::set_wait_check(check, user);
    return pcclSuccess;
}

PCCL_EXPORT pcclResult_t pcclAwaitAsyncReduceThen(const pcclAsyncReduceOp_t* reduce_handle,
                                                  pcclReduceCallback_t callback, void* user) {
    return await_then("pcclAwaitAsyncReduceThen", "pcclAwaitAsyncReduce", reduce_handle, callback != nullptr,
                      [callback, user](const Outcome& outcome, const core::Completion& completion) {
                          pcclReduceInfo_t info{};
                          fill(&info, completion);
                          callback(outcome.result, &info, outcome.message.c_str(), user);
                      });
}

}  // extern "C"
