// All settings, in one table. It feeds the environment, the configuration of a communicator, `--help` and
// docs/settings.md.
//
// Each setting has one parser. A bad value in the environment causes a warning and the default is used; it never fails
// a call. A bad value that was given to a call fails that call.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pccl::real {

enum class Setting : std::uint8_t {
    peer_timeout,
    master_timeout,
    bind_address,
    port_range,
    concurrent_ops,
    state_dir,
    log_level,
    advertise_address,
    vote_warn,
    vote_timeout,
    journal_timeout,
    chunk_size,
    benchmark_connections,
    scratch_bytes,
    tcp_congestion,
    staging_bytes,
    shared_memory,
    host,
    io_threads,
    port_mapping,
    invite,
    tls_ca,
    tls_cert,
    tls_key,
    tls_master_name,
    count
};

struct SettingInfo {
    const char* name;  // PCCL_...
    const char* default_value;
    const char* range;
    const char* reader;  // who reads it: peers, the master, both, or the whole process
    const char* help;
};

std::span<const SettingInfo> setting_table();
const SettingInfo& info_of(Setting setting);
// One paragraph per variable, for `--help`.
std::string setting_help();
// The table of docs/settings.md.
std::string setting_markdown();

struct EnvironmentSettings {
    core::Duration peer_timeout = 10 * core::second;    // PCCL_PEER_TIMEOUT_MS
    core::Duration master_timeout = 30 * core::second;  // PCCL_MASTER_TIMEOUT_MS
    std::optional<core::Endpoint> bind_address;         // PCCL_BIND_ADDRESS
    std::uint16_t port_first = 48149;                   // PCCL_PORT_RANGE
    std::uint16_t port_last = 48404;
    std::uint32_t concurrent_ops = 16;                     // PCCL_MAX_CONCURRENT_COLLECTIVE_OPS
    std::string state_directory;                           // PCCL_STATE_DIR; empty: the master keeps nothing
    std::optional<core::Endpoint> advertised;              // PCCL_ADVERTISE_ADDRESS; port 0: that of the listener
    core::Duration vote_warn = 30 * core::second;          // PCCL_VOTE_WARN_S
    core::Duration vote_timeout = 0;                       // PCCL_VOTE_TIMEOUT_S; 0: none
    core::Duration journal_timeout = 0;                    // PCCL_JOURNAL_TIMEOUT_S; 0: none
    std::uint32_t chunk_bytes = 256u << 10;                // PCCL_MULTIPLEX_CHUNK_SIZE
    std::uint32_t benchmark_connections = 16;              // PCCL_NUM_BENCHMARK_CONNECTIONS
    std::uint64_t scratch_bytes = 0;                       // PCCL_MAX_SCRATCH_BYTES; 0: no limit
    std::uint64_t staging_bytes = std::uint64_t{4} << 30;  // PCCL_MAX_STAGING_BYTES
    std::string tcp_congestion;                            // PCCL_TCP_CONGESTION; empty: the system's
    bool shared_memory = true;                             // PCCL_SHARED_MEMORY
    std::string host;                                      // PCCL_HOST; empty: kernel and network namespace
    std::uint32_t io_threads = 1;                          // PCCL_IO_THREADS
    bool port_mapping = false;                             // PCCL_PORT_MAPPING
    std::string invite;                                    // PCCL_INVITE; empty: no invitation
    std::string tls_ca;                                    // PCCL_TLS_CA; empty: certificates are not the operator's
    std::string tls_cert;                                  // PCCL_TLS_CERT
    std::string tls_key;                                   // PCCL_TLS_KEY
    std::string tls_master_name;                           // PCCL_TLS_MASTER_NAME; empty: the address that is dialled
};

// A master leaves out what only peers read: a name would be looked up.
enum class Reader : std::uint8_t { peer, master };
EnvironmentSettings read_environment(Reader reader = Reader::peer);
// Stores a value. False: it cannot be used, `why` names the cause, and nothing has changed.
bool apply_setting(Setting setting, std::string_view text, EnvironmentSettings& settings, std::string& why);

// "1.2.3.4", "1.2.3.4:80", "[::1]:80", "::1", "*" (0.0.0.0). Numeric only; without a port, endpoint.port stays as it
// is.
bool parse_endpoint(std::string_view text, core::Endpoint& endpoint);

}  // namespace pccl::real
