// The environment variables, in one table that feeds parsing, `--help` and the documentation.
//
// A value that cannot be used is named in a warning and the default is taken; it never fails a call.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pccl::real {

struct SettingInfo {
    const char* name;  // PCCL_...
    const char* default_value;
    const char* range;
    const char* help;
};

std::span<const SettingInfo> setting_table();
// One paragraph per variable, for `--help`.
std::string setting_help();

struct EnvironmentSettings {
    core::Duration peer_timeout = 10 * core::second;    // PCCL_PEER_TIMEOUT_MS
    core::Duration master_timeout = 30 * core::second;  // PCCL_MASTER_TIMEOUT_MS
    std::optional<core::Endpoint> bind_address;         // PCCL_BIND_ADDRESS
    std::uint16_t port_first = 48149;                   // PCCL_PORT_RANGE
    std::uint16_t port_last = 48404;
    std::uint32_t concurrent_ops = 16;                         // PCCL_MAX_CONCURRENT_COLLECTIVE_OPS
    std::string state_directory;                               // PCCL_STATE_DIR; empty: the master keeps nothing
    std::uint64_t scratch_bytes_max = std::uint64_t{4} << 30;  // PCCL_MAX_SCRATCH_BYTES
};

EnvironmentSettings read_environment();

// "1.2.3.4", "1.2.3.4:80", "[::1]:80", "::1", "*" (0.0.0.0). Numeric only; the port is left alone when there is none.
bool parse_endpoint(std::string_view text, core::Endpoint& endpoint);

}  // namespace pccl::real
