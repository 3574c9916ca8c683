// PeerSettings from the environment.
#include "net-real/peer_runtime.hpp"
#include "net-real/settings.hpp"

#include <algorithm>

namespace pccl::real {

PeerSettings peer_settings_from_environment() { return peer_settings_from(read_environment()); }

PeerSettings peer_settings_from(const EnvironmentSettings& environment) {
    PeerSettings settings;
    settings.timeouts.peer = environment.peer_timeout;
    settings.timeouts.master = environment.master_timeout;
    settings.bind_address = environment.bind_address;
    settings.port_first = environment.port_first;
    settings.port_last = environment.port_last;
    settings.advertised = environment.advertised;
    settings.port_mapping = environment.port_mapping;
    settings.congestion_control = environment.tcp_congestion;
    settings.shared_memory = environment.shared_memory;
    settings.host = environment.host;
    settings.io_threads = environment.io_threads;
    settings.invite = environment.invite;
    settings.tls_files = {environment.tls_ca, environment.tls_cert, environment.tls_key};
    settings.tls_master_name = environment.tls_master_name;
    core::Limits& limits = settings.limits;
    limits.concurrent_ops = environment.concurrent_ops;
    limits.test_connections = environment.benchmark_connections;
    limits.slice_bytes = environment.chunk_bytes;
    if (environment.scratch_bytes != 0)
        limits.eager_bytes =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(limits.eager_bytes, environment.scratch_bytes / 16));
    // A neighbour may have one slice in flight before the operation is known here, so there is room for at least one.
    limits.eager_bytes = std::max(limits.eager_bytes, limits.slice_bytes);
    // Slots get a quarter of the limit, because most of it is for results that wait for their outcome. But an operation
    // needs some slots.
    if (environment.scratch_bytes != 0)
        limits.scratch_bytes = std::min(limits.scratch_bytes, environment.scratch_bytes / 4);
    limits.scratch_bytes =
        std::max<std::uint64_t>(limits.scratch_bytes, std::uint64_t{2} * limits.min_slots * limits.slice_bytes);
    limits.operation_bytes_max = environment.scratch_bytes;
    settings.staging_bytes_max = environment.staging_bytes;
    return settings;
}

}  // namespace pccl::real
