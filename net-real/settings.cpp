#include "net-real/settings.hpp"

#include "net-real/log.hpp"

#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace pccl::real {

namespace {

enum Setting : std::size_t {
    peer_timeout,
    master_timeout,
    bind_address,
    port_range,
    concurrent_ops,
    state_dir,
    log_level,
    scratch_bytes,
    count
};

constexpr std::array<SettingInfo, count> table{{
    {"PCCL_PEER_TIMEOUT_MS", "10000", "10..86400000",
     "Silence in milliseconds after which a connection counts as dead and its peer is removed. The master's value "
     "rules."},
    {"PCCL_MASTER_TIMEOUT_MS", "30000", "0..86400000",
     "How long in milliseconds a lost master is waited for before calls fail; 0: they fail at once."},
    {"PCCL_BIND_ADDRESS", "*", "numeric IPv4 or IPv6 address",
     "Address on which a peer listens and from which it connects; *: all addresses of the host."},
    {"PCCL_PORT_RANGE", "48149-48404", "FIRST-LAST, one port, or 0",
     "A peer listens on the first free port of this range; 0: on any free port."},
    {"PCCL_MAX_CONCURRENT_COLLECTIVE_OPS", "16", "1..4096",
     "Collectives of one group that run at the same time; the smallest value of any member counts."},
    {"PCCL_STATE_DIR", "none", "a directory",
     "Where a master keeps its journal: one that was killed and is started again on it takes up the run."},
    {"PCCL_LOG_LEVEL", "WARN", "TRACE, DEBUG, INFO, WARN, ERR, FATAL, NONE",
     "The lowest level that is written to standard error."},
    {"PCCL_MAX_SCRATCH_BYTES", "4294967296", "0..281474976710656",
     "Memory for shared state that is being received; what is beyond it lies in a nameless file under TMPDIR, else "
     "/var/tmp."},
}};

const char* value_of(Setting setting) {
    const char* text = std::getenv(table[setting].name);
    return text == nullptr || *text == '\0' ? nullptr : text;
}

void warn_bad(Setting setting, const char* text) {
    const SettingInfo& info = table[setting];
    log_line(Severity::warn, "pccl",
             std::string(info.name) + "=" + text + " cannot be used (range: " + info.range + "); the default " +
                 info.default_value + " is taken");
}

bool parse_number(std::string_view text, std::uint64_t min, std::uint64_t max, std::uint64_t& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size() && number >= min && number <= max;
}

std::uint64_t read_number(Setting setting, std::uint64_t min, std::uint64_t max, std::uint64_t fallback) {
    const char* text = value_of(setting);
    if (text == nullptr) return fallback;
    std::uint64_t number = 0;
    if (parse_number(text, min, max, number)) return number;
    warn_bad(setting, text);
    return fallback;
}

bool parse_range(std::string_view text, std::uint16_t& first, std::uint16_t& last) {
    const std::size_t dash = text.find('-');
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    if (dash == std::string_view::npos) {
        if (!parse_number(text, 0, 65535, low)) return false;
        high = low;
    } else {
        if (!parse_number(text.substr(0, dash), 1, 65535, low)) return false;
        if (!parse_number(text.substr(dash + 1), low, 65535, high)) return false;
    }
    first = static_cast<std::uint16_t>(low);
    last = static_cast<std::uint16_t>(high);
    return true;
}

}  // namespace

std::span<const SettingInfo> setting_table() { return table; }

std::string setting_help() {
    std::string text;
    for (const SettingInfo& info : table) {
        text += std::string("  ") + info.name + "  (default " + info.default_value + "; " + info.range + ")\n      " +
                info.help + "\n";
    }
    return text;
}

EnvironmentSettings read_environment() {
    EnvironmentSettings settings;
    constexpr std::uint64_t day_ms = 86'400'000;
    settings.peer_timeout =
        static_cast<core::Duration>(read_number(peer_timeout, 10, day_ms, 10'000)) * core::millisecond;
    settings.master_timeout =
        static_cast<core::Duration>(read_number(master_timeout, 0, day_ms, 30'000)) * core::millisecond;
    settings.concurrent_ops = static_cast<std::uint32_t>(read_number(concurrent_ops, 1, 4096, 16));
    settings.scratch_bytes_max = read_number(scratch_bytes, 0, std::uint64_t{1} << 48, std::uint64_t{4} << 30);
    if (const char* text = value_of(state_dir)) settings.state_directory = text;
    if (const char* text = value_of(port_range)) {
        if (!parse_range(text, settings.port_first, settings.port_last)) warn_bad(port_range, text);
    }
    if (const char* text = value_of(bind_address); text != nullptr && std::strcmp(text, "*") != 0) {
        core::Endpoint endpoint;
        if (!parse_endpoint(text, endpoint) || endpoint.port != 0)
            warn_bad(bind_address, text);
        else
            settings.bind_address = endpoint;
    }
    return settings;
}

bool parse_endpoint(std::string_view text, core::Endpoint& endpoint) {
    std::string host(text);
    std::string port;
    if (!host.empty() && host.front() == '[') {
        const std::size_t end = host.find(']');
        if (end == std::string::npos) return false;
        const std::string rest = host.substr(end + 1);
        host = host.substr(1, end - 1);
        if (!rest.empty()) {
            if (rest.front() != ':') return false;
            port = rest.substr(1);
            if (port.empty()) return false;
        }
        if (host.find(':') == std::string::npos) return false;
    } else if (const std::size_t colon = host.find(':');
               colon != std::string::npos && host.find(':', colon + 1) == std::string::npos) {
        port = host.substr(colon + 1);
        host = host.substr(0, colon);
        if (port.empty()) return false;
    }
    core::Endpoint parsed;
    parsed.port = endpoint.port;
    std::uint64_t number = 0;
    if (!port.empty()) {
        if (!parse_number(port, 0, 65535, number)) return false;
        parsed.port = static_cast<std::uint16_t>(number);
    }
    if (host == "*") host = "0.0.0.0";
    if (host == "localhost") host = "127.0.0.1";
    if (::inet_pton(AF_INET, host.c_str(), parsed.address.data()) != 1) {
        if (::inet_pton(AF_INET6, host.c_str(), parsed.address.data()) != 1) return false;
        parsed.is_v6 = true;
    }
    endpoint = parsed;
    return true;
}

}  // namespace pccl::real
